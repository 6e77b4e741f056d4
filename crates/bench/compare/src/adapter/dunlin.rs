//! Dunlin, by this program.

use std::io;
use std::path::PathBuf;

use super::{Adapter, HAS_COMPONENTS, Launch, Site};
use crate::scenario::{Script, Variant};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "dunlin",
    program,
    install: "this program",
    version: &["version"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// Returns the features that Dunlin does not have.
fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(Script::InProcess | Script::Component) if !HAS_COMPONENTS => {
            Some("this build has no components")
        }
        Some(_) | None => None,
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let address = site.address;
    let mut server = "threads = 1\nconnections = 19900\nevict_idle_above = 19900\n".to_owned();
    // It has compiled components.
    server += &format!("state = \"{folder}/state\"\n");
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
    if let Some(upstream) = site.upstream {
        routes += &format!(
            "[[site.route]]\npath = \"/*\"\nproxy = {{ to = \"http://{upstream}\", idle_connections = 256 }}\n"
        );
    }
    if site.variant.no_cache {
        routes += "[[site.route]]\npath = \"/*\"\ncache = false\n";
    }
    if site.variant.records {
        routes += "[[site.route]]\npath = \"*.var\"\nrecords = \"variable\"\n";
    }
    let directory = format!("directory = \"{root}/cgi-bin\"");
    let script = match site.variant.script {
        Some(Script::Cgi) => Some(format!("kind = \"cgi\", {directory}")),
        Some(Script::Warm) => Some(format!("kind = \"warm\", {directory}")),
        Some(Script::Fastcgi) => {
            Some(format!("kind = \"fastcgi\", command = [\"{}\"], processes = 1", site.fastcgi().0))
        }
        Some(Script::Cgiplus) => {
            Some(format!("kind = \"cgiplus\", directory = \"{root}/plus\", processes = 1"))
        }
        _ => None,
    };
    let timing = if site.variant.phases { "server_timing = true\n" } else { "" };
    if let Some(script) = script {
        routes +=
            &format!("[[site.route]]\npath = \"/cgi-bin/*\"\n{timing}script = {{ {script} }}\n");
    }
    if matches!(site.variant.script, Some(Script::InProcess | Script::Component)) {
        for component in site.programs("component", "wasm") {
            let name = component.file_stem().unwrap_or_default().display();
            let file = component.display();
            // A CGI program is at the path itself, a typed call beneath it.
            for path in [format!("/cgi-bin/{name}"), format!("/cgi-bin/{name}/*")] {
                routes += &format!(
                    "[[site.route]]\npath = \"{path}\"\n{timing}script = {{ kind = \"component\", file = \"{file}\" }}\n"
                );
            }
        }
    }
    let (listen, tls) = match site.certificate {
        Some((certificate, key)) => (
            if site.variant.http3 { "tls = true\nhttp3 = true\n" } else { "tls = true\n" },
            format!(
                "tls = {{ certificate = \"{}\", key = \"{}\" }}\n",
                certificate.display(),
                key.display()
            ),
        ),
        None => ("", String::new()),
    };
    let text = format!(
        "[server]\n{server}\n[[listen]]\naddress = \"{address}:{port}\"\n{listen}\n[[site]]\nroot = \"{root}\"\n{tls}{routes}"
    );
    let file = site.write("dunlin.toml", &text)?;
    Ok(Launch {
        command: vec![site.program(), "serve".into(), "--config".into(), file],
        environment: Vec::new(),
        configuration: text,
    })
}
