//! The response with a directory listing.

use std::fs::File;
use std::io;

use dunlin_http::semantics::Method;
use dunlin_http::semantics::negotiate::prefers_json;
use dunlin_http::{FieldName, Request};
use rustix::fs::{OFlags, Stat, open};
use smallvec::SmallVec;

use super::listing::{self, Links, Sort};
use crate::config::Symlinks;
use crate::exchange::Response;
use crate::fs::mode::Mode;
use crate::fs::protected::Protected;
use crate::handler::file::apply_edits;
use crate::route::{RouteMatch, error_response};

/// Maximum number of entries in a listing.
const MAX_ENTRIES_ENTRIES: usize = 10_000;

/// Lists `directory` as JSON for clients that prefer it, otherwise as HTML. Blocks; for the pool for listings.
pub(crate) fn respond(
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    directory: File,
    protected: &Protected,
) -> Response {
    let settings = matched.settings;
    let listing = links(matched).and_then(|links| {
        // Omit names that would get 404.
        let leave = |stat: &Stat| protected.covers(stat, Mode::Blocking).unwrap_or(true);
        listing::read(&directory, settings.hidden, &links, MAX_ENTRIES_ENTRIES, &leave)
    });
    let mut entries = match listing {
        Ok(entries) => entries,
        Err(error) => {
            tracing::error!("{}: {error}", String::from_utf8_lossy(matched.path));
            return error_response(500, true);
        }
    };
    let (sort, order) = Sort::from_query(matched.query);
    let accept: SmallVec<[&[u8]; 2]> = request.values(FieldName::Accept).collect();
    let mut response = if prefers_json(&accept) {
        let text = listing::json(&mut entries, matched.path, sort, order);
        Response::with_text(200, "application/json", text)
    } else {
        let text = listing::html(&mut entries, matched.path, sort, order);
        let mut response = Response::with_text(200, "text/html; charset=utf-8", text);
        response.fields.push("Content-Security-Policy", &*listing::CSP);
        response
    };
    response.fields.push("Vary", "Accept");
    response.fields.push("Cache-Control", "no-cache");
    if settings.nosniff {
        response.fields.push("X-Content-Type-Options", "nosniff");
    }
    apply_edits(settings, &mut response.fields);
    if request.method() == Method::Head { response.without_body() } else { response }
}

/// The symlinks that requests of the route can follow, so that the listing shows only these.
fn links<'a>(matched: &RouteMatch<'a>) -> io::Result<Links<'a>> {
    let settings = matched.settings;
    Ok(match settings.symlinks {
        Symlinks::Deny => Links::Leave,
        Symlinks::Follow => Links::Follow,
        Symlinks::Beneath => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = open(&settings.root, flags, rustix::fs::Mode::empty())?;
            Links::Beneath { root, path: matched.path.strip_prefix(b"/").unwrap_or(matched.path) }
        }
    })
}
