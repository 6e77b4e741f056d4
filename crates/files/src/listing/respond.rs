//! The response with a directory listing.

use std::fs::File;
use std::io;
use std::path::Path;

use dunlin_http::semantics::negotiate::prefers_json;
use dunlin_http::{FieldLines, FieldName, Request};
use rustix::fs::{OFlags, Stat, open};
use smallvec::SmallVec;

use super::order::Sort;
use super::page::{self, View, html};
use super::{Links, json, read};
use crate::file_response::FileResponse;
use dunlin_config::field_edits::apply_edits;
use dunlin_config::{Settings, Symlinks};
use dunlin_fs::content::Piece;
use dunlin_fs::mode::Mode;
use dunlin_fs::protected::Protected;

/// Maximum number of entries in a listing.
const MAX_ENTRIES: usize = 10_000;

/// Lists `directory`, the directory of the decoded `path`, as JSON for clients that prefer it, otherwise as HTML. Blocks; for
/// the pool for listings.
///
/// # Errors
/// When the directory cannot be read.
pub fn respond(
    request: &Request<'_>,
    settings: &Settings,
    (path, query): (&[u8], Option<&[u8]>),
    directory: &File,
    protected: &Protected,
) -> io::Result<FileResponse> {
    let links = links(settings.symlinks, &settings.root, path)?;
    // Omit names that would get 404.
    let is_omitted = |stat: &Stat| protected.covers(stat, Mode::Blocking).unwrap_or(true);
    let mut listing = read(directory, settings.hidden, &links, MAX_ENTRIES, &is_omitted)?;
    let (sort, order) = Sort::from_query(query);
    let accept: SmallVec<[&[u8]; 2]> = request.values(FieldName::Accept).collect();
    let mut response = FileResponse::new(200, FieldLines::new());
    let text = if prefers_json(&accept) {
        response.fields.push("Content-Type", "application/json");
        json(&mut listing, path, sort, order)
    } else {
        response.fields.push("Content-Type", "text/html; charset=utf-8");
        response.fields.push("Content-Security-Policy", &*page::CSP);
        let host = request.field(FieldName::Host).unwrap_or_default();
        html(&mut listing, View { path, host, sort, order })
    };
    response.push(Piece::Memory(text.into()));
    response.fields.push("Vary", "Accept");
    response.fields.push("Cache-Control", "no-cache");
    if settings.nosniff {
        response.fields.push("X-Content-Type-Options", "nosniff");
    }
    apply_edits(settings, &mut response.fields);
    Ok(response)
}

/// The symlinks that requests of the route can follow, so that the listing contains only these.
fn links<'a>(symlinks: Symlinks, root: &Path, path: &'a [u8]) -> io::Result<Links<'a>> {
    Ok(match symlinks {
        Symlinks::Deny => Links::Omit,
        Symlinks::Follow => Links::Follow,
        Symlinks::Beneath => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = open(root, flags, rustix::fs::Mode::empty())?;
            Links::Beneath { root, path: path.strip_prefix(b"/").unwrap_or(path) }
        }
    })
}
