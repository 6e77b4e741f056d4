//! Local redirects: a script names another path of this server, whose response is sent (RFC 3875 §6.2.2).

use dunlin_http::http1::Connection;
use dunlin_http::{BodyLength, Head, Request, Version};

use super::Call;
use super::Failure;
use crate::exchange::{Incoming, Response, stream};
use crate::route::{self, Origin};

/// Redirects in a row, so that a loop ends.
const MAX_REDIRECTS: u8 = 10;

/// Responds as to a request for `target` without a body.
pub(super) async fn follow(
    call: &Call,
    incoming: Incoming,
    target: &[u8],
    origin: Origin,
) -> Result<Response, Failure> {
    if incoming.redirects == MAX_REDIRECTS {
        return Err(Failure::Malformed(format!(
            "more than {MAX_REDIRECTS} local redirects in a row"
        )));
    }
    let what = if origin == Origin::Client { "Location" } else { "X-Accel-Redirect" };
    let (bytes, head) = without_body(call, target)
        .ok_or_else(|| Failure::Malformed(format!("its {what} is not a path of this server")))?;
    let request = Request::new(&bytes, &head);
    let client = call.client(&incoming).admitted();
    let routed = route::dispatch(&call.ctx, client, origin, &request, &mut Vec::new())
        .map_err(|refusal| Failure::Malformed(format!("its {what}: {}", refusal.reason)))?;
    let incoming = Incoming {
        body: stream::empty(),
        length: BodyLength::None,
        received: None,
        redirects: incoming.redirects + 1,
        ..incoming
    };
    Ok(route::complete(&request, routed.reply, incoming).await)
}

/// The request rewritten for `target` without a body: its bytes and its parsed head. `None` if `target` is not a
/// path.
pub(super) fn without_body(call: &Call, target: &[u8]) -> Option<(Vec<u8>, Head)> {
    let bytes = rewritten(&call.request.as_request(), target, &[]);
    let mut head = Head::default();
    let read = Connection::default().head(&bytes, &call.ctx.http1.limits, &mut head);
    (target.starts_with(b"/") && read == Ok(Some(bytes.len()))).then_some((bytes, head))
}

/// The request with another target, without its body and the fields `left_out`, whose names are in lower case.
pub(crate) fn rewritten(request: &Request<'_>, target: &[u8], left_out: &[&str]) -> Vec<u8> {
    let head = request.method_text() == b"HEAD";
    let version = match request.version() {
        Version::Http10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let method: &[u8] = if head { b"HEAD " } else { b"GET " };
    let mut bytes = [method, target, b" ", version.as_bytes(), b"\r\n"].concat();
    for (name, value) in request.fields() {
        let of_body = ["content-length", "content-type", "transfer-encoding", "expect"];
        let mut dropped = of_body.iter().chain(left_out);
        if !dropped.any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            bytes.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}
