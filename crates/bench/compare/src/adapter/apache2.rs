//! Apache httpd, with the event MPM.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_proxy};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "apache2",
    program,
    install: "Debian package apache2",
    version: &["-v"],
    lacks,
    launch,
};

/// The behaviour of the C program for mod_lua.
const LUA: &str = r#"local line = string.rep("x", 1024)
function handle(r)
  r.content_type = "text/plain"
  local size = tonumber(r.args) or 0
  while size > 0 do
    r:write(size < 1024 and line:sub(1, size) or line)
    size = size - 1024
  end
  return apache2.OK
end
"#;

fn program() -> PathBuf {
    "apache2".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::Cgi | Script::Fastcgi | Script::InProcess) | None => lacks_proxy(variant),
        Some(_) => Some("it does not support such scripts"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let address = site.address;
    let mut more = String::new();
    let module =
        |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    if site.variant.log {
        more += &format!(
            "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\nCustomLog {folder}/access.log combined\nBufferedLogs On\n"
        );
    }
    if let Some((certificate, key)) = site.certificate {
        more += &module("socache_shmcb");
        more += &module("ssl");
        more += &format!(
            "SSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nSSLSessionCache shmcb:{folder}/ssl(512000)\n",
            certificate.display(),
            key.display()
        );
    }
    if site.variant.http2 {
        more += &module("http2");
        more += if site.variant.tls { "Protocols h2\n" } else { "Protocols h2c\n" };
    }
    if site.variant.script == Some(Script::Cgi) {
        more += &module("alias");
        more += &module("cgid");
        more += &format!("ScriptSock {folder}/cgi.sock\nScriptAlias /cgi-bin/ {root}/cgi-bin/\n");
    }
    if site.variant.script == Some(Script::Fastcgi) {
        more += &module("proxy");
        more += &module("proxy_fcgi");
        more += &format!("ProxyPass /cgi-bin/ \"unix:{}|fcgi://localhost/\"\n", site.fastcgi().1);
    }
    if site.variant.script == Some(Script::InProcess) {
        more += &module("lua");
        let program = site.write("hello.lua", LUA)?;
        // One interpreter for each thread, and the program loaded once, for speed.
        more += &format!(
            "LuaScope thread\nLuaCodeCache forever\nLuaMapHandler ^/cgi-bin/hello$ {program} handle\n"
        );
    }
    let keepalive = if site.variant.no_keepalive { "Off" } else { "On" };
    let text = format!(
        "ServerRoot {folder}
ServerName localhost
Listen {address}:{port}
ListenBacklog 4096
PidFile {folder}/pid
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
User www-data
Group www-data
StartServers 1
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
KeepAlive {keepalive}
MaxKeepAliveRequests 0
KeepAliveTimeout 600
EnableSendfile On
{more}DocumentRoot {root}
<Directory {root}>
  Require all granted
</Directory>
"
    );
    let file = site.write("apache2.conf", &text)?;
    Ok(Launch {
        command: site.beside_fastcgi(vec![
            site.program(),
            "-DFOREGROUND".into(),
            "-f".into(),
            file,
        ]),
        environment: Vec::new(),
        configuration: text,
    })
}
