//! HAProxy, as a reverse proxy.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site, lacks_dunlin_features};
use crate::scenario::Variant;

pub(super) const ADAPTER: Adapter = Adapter {
    name: "haproxy",
    program,
    install: "Debian package haproxy",
    version: &["-v"],
    lacks,
    launch,
};

fn program() -> PathBuf {
    "haproxy".into()
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    if !variant.proxy {
        return Some("it serves no files");
    }
    if variant.tls || variant.http2 || variant.log || variant.no_keepalive {
        return Some("its adapter configures plain HTTP/1.1 only");
    }
    lacks_dunlin_features(variant)
}

fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let (address, port) = (site.address, site.port);
    let upstream = site.upstream.map(|address| address.to_string()).unwrap_or_default();
    let text = format!(
        "global
  nbthread 1
  maxconn 4000

defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 60s

frontend clients
  bind {address}:{port} backlog 4096
  default_backend files

backend files
  server only {upstream} pool-max-conn 256
"
    );
    let file = site.write("haproxy.cfg", &text)?;
    Ok(Launch {
        command: vec![site.program(), "-db".into(), "-f".into(), file],
        environment: Vec::new(),
        configuration: text,
    })
}
