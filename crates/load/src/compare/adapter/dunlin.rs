//! Dunlin: this program.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site};
use crate::compare::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter =
    Adapter { name: "dunlin", program, version: &["version"], lacks, launch };

fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// The one place that tells what Dunlin does not do yet.
fn lacks(variant: &Variant) -> Option<&'static str> {
    if variant.http2 {
        return Some("HTTP/2 is not built yet");
    }
    if variant.tls {
        return Some("TLS is not built yet");
    }
    match variant.script {
        Some(Script::InProcess) => Some("scripts do not run within the server"),
        Some(Script::Cgi) | None => None,
        Some(_) => Some("this kind of script is not built yet"),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let mut server = "threads = 1\n".to_owned();
    if site.variant.log || site.variant.dns {
        let format = if site.variant.dns { "{remote_name} {status}" } else { "combined" };
        server +=
            &format!("access_log = {{ path = \"{folder}/access.log\", format = \"{format}\" }}\n");
    }
    if let Some(resolver) = site.resolver {
        server += &format!("\n[server.reverse_dns]\nresolver = \"{resolver}\"\n");
    }
    if site.variant.no_keepalive {
        server += "\n[server.http1]\nconnection = \"close\"\n";
    }
    let mut routes = String::new();
    if site.variant.no_cache {
        routes += "[[site.route]]\npath = \"/*\"\ncache = false\n";
    }
    if site.variant.records {
        routes += "[[site.route]]\npath = \"*.var\"\nrecords = \"variable\"\n";
    }
    if site.variant.script == Some(Script::Cgi) {
        routes += &format!(
            "[[site.route]]\npath = \"/cgi-bin/*\"\nscript = {{ kind = \"cgi\", directory = \"{root}/cgi-bin\" }}\n"
        );
    }
    let text = format!(
        "[server]\n{server}\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n\n[[site]]\nroot = \"{root}\"\n{routes}"
    );
    let file = site.write("dunlin.toml", &text)?;
    Ok(Launch {
        command: vec![site.program(), "serve".into(), "--config".into(), file],
        environment: Vec::new(),
        configuration: text,
    })
}
