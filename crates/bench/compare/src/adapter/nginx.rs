//! nginx.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_dunlin_features};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "nginx",
    program,
    install: "Debian package nginx",
    version: &["-v"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    "nginx".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::Cgi) => Some("it does not support CGI"),
        Some(Script::Fastcgi) | None => lacks_dunlin_features(variant),
        Some(_) => Some("it does not support such scripts"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let address = site.address;
    let cache = if site.variant.no_cache {
        "open_file_cache off;"
    } else {
        "open_file_cache max=10000 inactive=600s; open_file_cache_valid 600s;"
    };
    let log = if site.variant.log {
        format!("{folder}/access.log combined buffer=64k flush=1s")
    } else {
        "off".to_owned()
    };
    let keepalive = if site.variant.no_keepalive { "0" } else { "600s" };
    let tls = site.certificate.map_or(String::new(), |(certificate, key)| {
        format!("ssl_certificate {}; ssl_certificate_key {};", certificate.display(), key.display())
    });
    let ssl = match (site.variant.tls, site.variant.http2) {
        (true, true) => " ssl http2",
        (true, false) => " ssl",
        (false, true) => " http2",
        (false, false) => "",
    };
    let fastcgi = if site.variant.script == Some(Script::Fastcgi) {
        format!(
            "location /cgi-bin/ {{
      fastcgi_pass unix:{};
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param SCRIPT_NAME $fastcgi_script_name;
      fastcgi_param REQUEST_URI $request_uri;
      fastcgi_param SERVER_PROTOCOL $server_protocol;
      fastcgi_param REMOTE_ADDR $remote_addr;
      fastcgi_param SERVER_NAME $server_name;
      fastcgi_param SERVER_PORT $server_port;
    }}",
            site.fastcgi().1
        )
    } else {
        String::new()
    };
    let (upstream, forward) = match site.upstream {
        Some(address) => (
            format!(
                "upstream files {{ server {address}; keepalive 256; keepalive_requests 1000000000; }}"
            ),
            "location / { proxy_pass http://files; proxy_http_version 1.1; proxy_set_header Connection \"\"; }",
        ),
        None => (String::new(), ""),
    };
    let text = format!(
        "worker_processes 1;
daemon off;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 20000; }}
http {{
  access_log {log};
  sendfile on;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  keepalive_timeout {keepalive};
  {cache}
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {upstream}
  server {{
    listen {address}:{port} backlog=4096{ssl};
    {tls}
    root {root};
    {fastcgi}
    {forward}
  }}
}}
"
    );
    let file = site.write("nginx.conf", &text)?;
    Ok(Launch {
        command: site.beside_fastcgi(vec![
            site.program(),
            "-e".into(),
            "stderr".into(),
            "-c".into(),
            file,
        ]),
        environment: Vec::new(),
        configuration: text,
    })
}
