//! lighttpd.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_proxy};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "lighttpd",
    program,
    install: "Debian package lighttpd",
    version: &["-v"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    "lighttpd".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::Cgi | Script::Fastcgi) | None => lacks_proxy(variant),
        Some(_) => Some("it does not support such scripts"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let address = site.address;
    let (mut modules, mut more) = (Vec::new(), String::new());
    if site.variant.log {
        modules.push("mod_accesslog");
        more += &format!("accesslog.filename = \"{folder}/access.log\"\n");
    }
    if let Some((certificate, key)) = site.certificate {
        modules.push("mod_openssl");
        more += &format!(
            "ssl.engine = \"enable\"\nssl.pemfile = \"{}\"\nssl.privkey = \"{}\"\n",
            certificate.display(),
            key.display()
        );
    }
    if site.variant.script == Some(Script::Cgi) {
        modules.push("mod_cgi");
        more += "$HTTP[\"url\"] =^ \"/cgi-bin/\" { cgi.assign = ( \"\" => \"\" ) }\n";
    }
    if site.variant.script == Some(Script::Fastcgi) {
        modules.push("mod_fastcgi");
        let (program, socket) = site.fastcgi();
        more += &format!(
            "fastcgi.server = ( \"/cgi-bin/\" => (( \"bin-path\" => \"{program}\", \"socket\" => \"{socket}\", \"max-procs\" => 1, \"check-local\" => \"disable\" )) )\n"
        );
    }
    let modules: Vec<String> = modules.iter().map(|name| format!("\"{name}\"")).collect();
    let requests = if site.variant.no_keepalive { "0" } else { "1000000000" };
    let text = format!(
        "server.modules = ( {} )
server.document-root = \"{root}\"
server.port = {port}
server.bind = \"{address}\"
server.listen-backlog = 4096
server.max-keep-alive-requests = {requests}
server.max-keep-alive-idle = 600
server.max-connections = 19900
server.max-fds = 20000
{more}",
        modules.join(", ")
    );
    let file = site.write("lighttpd.conf", &text)?;
    Ok(Launch {
        command: vec![site.program(), "-D".into(), "-f".into(), file],
        environment: Vec::new(),
        configuration: text,
    })
}
