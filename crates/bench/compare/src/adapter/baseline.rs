//! The baseline: a bare responder, one epoll loop that sends the same prepared bytes for every request.

use std::io;
use std::path::PathBuf;

use super::{Adapter, BASELINE, BASELINE_FILE, Launch, Site};
use crate::scenario::Variant;

pub(super) const ADAPTER: Adapter = Adapter {
    name: BASELINE,
    program,
    install: "built by `cargo build --release -p baseline`, beside this program",
    version: &[],
    lacks,
    launch,
};

fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("baseline")
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    (*variant != Variant::default()).then_some("it only sends prepared bytes")
}

/// Serves one file at every path: the one that the runner has copied to [`BASELINE_FILE`].
fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let command = vec![
        site.program(),
        "--listen".into(),
        format!("{}:{}", site.address, site.port),
        "--file".into(),
        site.root.join(BASELINE_FILE).display().to_string(),
    ];
    Ok(Launch { configuration: command.join(" "), command, environment: Vec::new() })
}
