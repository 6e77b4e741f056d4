//! Merecat, which continues thttpd.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_ours};
use crate::compare::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter =
    Adapter { name: "merecat", program, version: &["-V"], lacks, launch };

fn program() -> PathBuf {
    "merecat".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::Cgi) => {
            Some("its CGI needs a pattern in a configuration that this adapter does not write yet")
        }
        Some(_) => Some("it has no such scripts"),
        None if variant.tls || variant.http2 => Some("it is set up without TLS here"),
        None if variant.no_keepalive => Some("it cannot be told to close each connection"),
        None if variant.log => Some("it logs to syslog only"),
        None => lacks_ours(variant),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let command: Vec<String> = vec![
        site.program(),
        "-n".into(),
        "-p".into(),
        site.port.to_string(),
        "-l".into(),
        "none".into(),
        "-I".into(),
        site.folder.join("merecat").display().to_string(),
        site.root.display().to_string(),
    ];
    Ok(Launch { configuration: command.join(" "), command, environment: Vec::new() })
}
