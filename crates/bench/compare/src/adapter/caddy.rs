//! Caddy.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_other_features};
use crate::scenario::Variant;

pub(super) const ADAPTER: Adapter = Adapter {
    name: "caddy",
    program,
    install: "Debian package caddy",
    version: &["version"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    "caddy".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    match variant.script {
        Some(_) => Some("it does not support CGI"),
        None if variant.no_keepalive => Some("it cannot be configured to close each connection"),
        None => lacks_other_features(variant),
    }
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (folder, root, port) = (site.folder.display(), site.root.display(), site.port);
    let address = site.address;
    let scheme = if site.variant.tls { "https" } else { "http" };
    let tls = site.certificate.map_or(String::new(), |(certificate, key)| {
        format!("  tls {} {}\n", certificate.display(), key.display())
    });
    let protocols = match (site.variant.http2, site.variant.tls) {
        _ if site.variant.http3 => "h1 h2 h3",
        (true, true) => "h1 h2",
        (true, false) => "h1 h2c",
        (false, _) => "h1",
    };
    let log = if site.variant.log {
        format!("  log {{\n    output file {folder}/access.log\n  }}\n")
    } else {
        String::new()
    };
    let handler = match site.upstream {
        Some(upstream) => format!("reverse_proxy {upstream}"),
        None => format!("root * {root}\n  file_server"),
    };
    let text = format!(
        "{{
  admin off
  auto_https off
  servers {{
    protocols {protocols}
  }}
}}
{scheme}://{address}:{port} {{
  bind {address}
{tls}{log}  {handler}
}}
"
    );
    let file = site.write("Caddyfile", &text)?;
    let environment = [("GOMAXPROCS", "1".to_owned()), ("HOME", folder.to_string())];
    Ok(Launch {
        command: ["run", "--adapter", "caddyfile", "--config"]
            .iter()
            .fold(vec![site.program()], |mut command, word| {
                command.push((*word).to_owned());
                command
            })
            .into_iter()
            .chain([file])
            .collect(),
        environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
        configuration: text,
    })
}
