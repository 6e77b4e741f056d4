//! mini_httpd: a process for each connection.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_proxy};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "mini-httpd",
    program,
    install: "Debian package mini-httpd",
    version: &["-V"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    "mini_httpd".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::Cgi) | None if variant.tls || variant.http2 => {
            Some("its adapter does not configure TLS")
        }
        Some(Script::Cgi) | None if variant.log => {
            Some("its adapter cannot configure a buffered log")
        }
        Some(Script::Cgi) | None => lacks_proxy(variant),
        Some(_) => Some("it does not support such scripts"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let mut command: Vec<String> = vec![
        site.program(),
        "-D".into(),
        "-h".into(),
        site.address.to_string(),
        "-p".into(),
        site.port.to_string(),
        "-d".into(),
        site.root.display().to_string(),
        "-i".into(),
        site.folder.join("pid").display().to_string(),
    ];
    if site.variant.script == Some(Script::Cgi) {
        command.extend(["-c".into(), "cgi-bin/*".into()]);
    }
    Ok(Launch { configuration: command.join(" "), command, environment: Vec::new() })
}
