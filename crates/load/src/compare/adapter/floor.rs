//! The bare responder: one epoll loop that answers every request with the same prepared bytes.

use std::io;
use std::path::PathBuf;

use super::{Adapter, Launch, Site};
use crate::compare::scenario::Variant;

pub(super) const ADAPTER: Adapter = Adapter { name: "floor", program, version: &[], lacks, launch };

fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("floor")
}

fn lacks(variant: &Variant) -> Option<&'static str> {
    (*variant != Variant::default()).then_some("it only answers with prepared bytes")
}

/// It serves one file whatever is asked for: the one that the runner has linked as `floor`.
fn launch(site: &Site<'_>) -> io::Result<Launch> {
    let command = vec![
        site.program(),
        "--listen".into(),
        format!("127.0.0.1:{}", site.port),
        "--file".into(),
        site.root.join(".floor").display().to_string(),
    ];
    Ok(Launch { configuration: command.join(" "), command, environment: Vec::new() })
}
