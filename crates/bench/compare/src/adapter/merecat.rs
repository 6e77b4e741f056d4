//! Merecat, which continues thttpd.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_proxy};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "merecat",
    program,
    install: "https://github.com/troglobit/merecat",
    version: &["-V"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    "merecat".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::Cgi) | None if variant.tls || variant.http2 => {
            Some("its adapter does not configure TLS")
        }
        Some(Script::Cgi) | None if variant.no_keepalive => {
            Some("it cannot be configured to close each connection")
        }
        Some(Script::Cgi) | None if variant.log => Some("it logs to syslog only"),
        Some(Script::Cgi) | None => lacks_proxy(variant),
        Some(_) => Some("it does not support such scripts"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let mut text = format!("port = {}\n", site.port);
    if site.variant.script == Some(Script::Cgi) {
        // The default of one program at a time is far below the limits of other servers.
        text += "cgi \"cgi-bin/*\" {\n  enabled = true\n  limit = 100\n}\n";
    }
    let file = site.write("merecat.conf", &text)?;
    let command: Vec<String> = vec![
        site.program(),
        "-n".into(),
        "-f".into(),
        file,
        "-l".into(),
        "none".into(),
        "-I".into(),
        "merecat".into(),
        "-P".into(),
        site.folder.join("pid").display().to_string(),
        site.root.display().to_string(),
    ];
    let configuration = format!("# {}\n{text}", command.join(" "));
    Ok(Launch { configuration, command, environment: Vec::new() })
}
