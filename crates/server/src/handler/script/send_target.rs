//! Resources that a script names to be sent in place of its own body: another path of the site (X-Accel-Redirect) or
//! a file (X-Sendfile). The server sends them, with ranges and conditional requests, under the fields of the script.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use dunlin_http::Request;

use super::head::{ScriptHead, SendTarget};
use super::stderr::printable;
use super::{Call, Failure, redirect};
use crate::exchange::{Incoming, Response};
use crate::handler::files;
use crate::route::{self, Origin, Route, RouteMatch};

/// The response for `target`, with the fields of `head`.
pub(super) async fn respond(
    call: &Call,
    incoming: Incoming,
    head: ScriptHead,
    target: SendTarget,
) -> Result<Response, Failure> {
    let response = match &target {
        SendTarget::Path(target) => {
            redirect::follow(call, incoming, target, Origin::Server).await?
        }
        SendTarget::File(path) => file(call, incoming, path).await?,
    };
    if response.status >= 400 && !matches!(response.status, 412 | 416) {
        let (SendTarget::Path(path) | SendTarget::File(path)) = &target;
        tracing::warn!(
            script = &*call.rules.label,
            status = response.status,
            "the resource that the script names cannot be sent: {}",
            printable(path)
        );
    }
    Ok(under_fields(head, response))
}

/// The response for the file `path`, which has to lie beneath a `sendfile_root` of the route.
async fn file(call: &Call, incoming: Incoming, path: &[u8]) -> Result<Response, Failure> {
    let refused = || {
        let path = printable(path);
        Failure::Malformed(format!("its X-Sendfile is beneath no `sendfile_root`: {path:?}"))
    };
    let (settings, path) = beneath(call, path).ok_or_else(refused)?;
    // The target does not matter: the file is not found by it.
    let (bytes, head) = redirect::without_body(call, b"/").ok_or_else(refused)?;
    let request = Request::new(&bytes, &head);
    let site = &call.matched.site;
    let matched = RouteMatch {
        site,
        settings: &settings,
        raw_path: &path,
        path: &path,
        query: None,
        client: call.client(&incoming),
        context: call.context.as_ref(),
        via: call.matched.via,
    };
    let reply = files::respond(&call.ctx, &request, &matched);
    let response = route::complete(&request, reply, incoming).await;
    if response.status == 301 {
        return Err(Failure::Malformed("its X-Sendfile is a directory".into()));
    }
    Ok(response)
}

/// The route of the `sendfile_root` that an absolute path leads into, and the rest of the path with a slash at its
/// front. That the path stays there is checked by the kernel when the file is opened.
fn beneath(call: &Call, path: &[u8]) -> Option<(Arc<Route>, Vec<u8>)> {
    let path = Path::new(OsStr::from_bytes(path));
    call.matched.settings.sendfile_routes.iter().find_map(|settings| {
        let by_name = path.strip_prefix(&settings.root).ok().map(Path::to_owned);
        // The root may be a symlink, which the script has followed.
        let rest = by_name.or_else(|| {
            let root = call.ctx.shared.root(&settings.root).ok()?;
            path.strip_prefix(OsStr::from_bytes(&root.path)).ok().map(Path::to_owned)
        })?;
        Some((Arc::clone(settings), [b"/", rest.as_os_str().as_bytes()].concat()))
    })
}

/// Fields that describe the sent bytes, which the script does not know.
const OF_CONTENT: [&str; 5] =
    ["accept-ranges", "content-encoding", "content-range", "etag", "last-modified"];

/// Replaces fields of the response by those of the script, except for those that describe the content.
fn under_fields(head: ScriptHead, mut response: Response) -> Response {
    let in_parts = response.status == 206 && response.fields.get("Content-Range").is_none();
    let stays = |name: &str| {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let of_content = OF_CONTENT.iter().any(|other| is(other));
        match response.status {
            400.. => is("set-cookie"),
            304 => !of_content && !name.to_ascii_lowercase().starts_with("content-"),
            _ if in_parts => !of_content && !is("content-type"),
            _ => !of_content,
        }
    };
    let fields: Vec<_> = head
        .fields
        .iter()
        .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
        .filter(|(name, _)| stays(name))
        .collect();
    for (name, _) in &fields {
        // Both lists apply.
        if !name.eq_ignore_ascii_case("vary") {
            response.fields.remove(name);
        }
    }
    for (name, value) in fields {
        response.fields.push(name, value);
    }
    response
}
