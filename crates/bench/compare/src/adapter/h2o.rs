//! H2O.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_proxy};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "h2o",
    program,
    install: "Debian package h2o",
    version: &["--version"],
    lacks,
    launch,
};

/// The behaviour of the C program for mruby.
const RUBY: &str = r#"
      "/cgi-bin/hello":
        mruby.handler: |
          line = "x" * 1024
          Proc.new do |env|
            size = env["QUERY_STRING"].to_i
            whole = size / 1024
            [200, {"content-type" => "text/plain"}, [line * whole + line[0, size - whole * 1024]]]
          end"#;

fn program() -> PathBuf {
    "h2o".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::InProcess) | None => lacks_proxy(variant),
        Some(_) => Some("it does not support CGI"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let address = site.address;
    let ssl = site.certificate.map_or(String::new(), |(certificate, key)| {
        format!(
            ", ssl: {{ certificate-file: {}, key-file: {} }}",
            certificate.display(),
            key.display()
        )
    });
    let log =
        if site.variant.log { format!("access-log: {folder}/access.log\n") } else { String::new() };
    let keepalive = if site.variant.no_keepalive {
        "http1-request-timeout: 10"
    } else {
        "http1-request-timeout: 600"
    };
    let script = if site.variant.script == Some(Script::InProcess) { RUBY } else { "" };
    let text = format!(
        "num-threads: 1
{keepalive}
max-connections: 20000
{log}hosts:
  default:
    listen: {{ host: {address}, port: {port}{ssl} }}
    paths:
      \"/\": {{ file.dir: {root} }}{script}
"
    );
    let file = site.write("h2o.conf", &text)?;
    Ok(Launch {
        command: vec![site.program(), "-m".into(), "worker".into(), "-c".into(), file],
        environment: Vec::new(),
        configuration: text,
    })
}
