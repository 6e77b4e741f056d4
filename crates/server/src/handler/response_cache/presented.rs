//! Requests as the handler behind the cache gets them.

use std::rc::Rc;

use dunlin_config::Settings;
use dunlin_exchange::{Incoming, RequestContext};
use dunlin_http::Request;
use dunlin_proxy::Sent;
use dunlin_response_cache::presented::{Lines, Presented};
use dunlin_response_cache::vary::Vary;
use dunlin_script::Seen;
use dunlin_tls::ClientCertificate;

use super::request_kind::{CONDITIONS, hides_codings, is_query};
use crate::handler::rewrite::OF_BODY;
use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// A request as the handler behind the cache gets it.
pub(super) struct AsForwarded<'a> {
    origin: Origin<'a>,
    spelling: Option<&'a [u8]>,
    hides_codings: bool,
}

enum Origin<'a> {
    Proxy(Sent<'a>),
    Script(Seen<'a>),
}

impl<'a> AsForwarded<'a> {
    /// Creates the request of a client with that certificate; `key_path` is the path as the key has it.
    pub(super) fn new(
        ctx: &'a Rc<WorkerContext>,
        (request, matched): (Request<'a>, &RouteMatch<'a>),
        certificate: Option<&'a ClientCertificate>,
        key_path: &[u8],
    ) -> Self {
        let checked = matched.context.map(|context| &**context);
        let origin = match &matched.settings.proxy {
            Some(group) => {
                Origin::Proxy(Sent::new(matched.proxied(ctx, group, request), certificate))
            }
            None => {
                let client = checked.map_or(matched.client, |checked| checked.client);
                let forwarded_field = &ctx.shared.config.server.forwarded_field;
                let names = (forwarded_field, &*matched.site.user_fields);
                Origin::Script(Seen::new(request, (client, certificate), checked, names))
            }
        };
        let spelling = Some(matched.raw_path).filter(|path| *path != key_path);
        let hides_codings = hides_codings(&request, matched.settings);
        Self { origin, spelling, hides_codings }
    }

    /// Returns `true` if the response may be one for a user: the request has credentials, or its origin learns who the client
    /// is (RFC 9111 §3.5).
    pub(super) fn is_authenticated(&self) -> bool {
        let (checked, names_certificate) = match &self.origin {
            Origin::Proxy(sent) => (sent.call().checked, sent.names_certificate()),
            Origin::Script(seen) => (seen.checked(), seen.names_certificate()),
        };
        let request = self.request();
        let mut names = request.fields().map(|(name, _)| name);
        names_certificate
            || checked.is_some_and(RequestContext::names_client)
            || names.any(|name| name.eq_ignore_ascii_case(b"authorization"))
    }

    fn request(&self) -> Request<'a> {
        match &self.origin {
            Origin::Proxy(sent) => sent.call().request,
            Origin::Script(seen) => seen.request(),
        }
    }

    /// Returns `true` if the request loses a field of that name if the cache rewrites it, which depends on what is stored.
    fn may_lose(&self, name: &[u8]) -> bool {
        let request = self.request();
        let is_it = |other: &[u8]| other.eq_ignore_ascii_case(name);
        OF_BODY.iter().any(|other| is_it(other.as_bytes()))
            && !is_query(&request)
            && request.fields().any(|(other, _)| is_it(other))
    }
}

impl Presented for AsForwarded<'_> {
    fn lines(&self, name: &[u8]) -> Option<Lines<'_>> {
        let mut lines = Lines::new();
        // The request is for the whole response, whatever the client's is for.
        if CONDITIONS.iter().any(|other| other.as_bytes() == name) {
            return Some(lines);
        }
        if self.hides_codings && name == b"accept-encoding" {
            return Some(lines);
        }
        if self.may_lose(name) {
            return None;
        }
        let is_known = match &self.origin {
            Origin::Proxy(sent) => sent.each_line(name, |line| lines.push(line)),
            Origin::Script(seen) => seen.each_line(name, |line| lines.push(line)),
        };
        is_known.then_some(lines)
    }

    fn spelling(&self) -> Option<&[u8]> {
        self.spelling
    }
}

/// Returns `true` if the handler may get the certificate of a client, so that a response is looked up when that is known.
pub(super) fn needs_certificate(matched: &RouteMatch<'_>) -> bool {
    let is_requested = matched.site.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    is_requested
        && matched
            .settings
            .proxy
            .as_ref()
            .is_none_or(|group| group.rules().forward_client_certificate.is_some())
}

/// Returns the verified certificate of the client.
pub(super) fn certificate(incoming: &Incoming) -> Option<Rc<ClientCertificate>> {
    incoming.tls.as_ref().and_then(|tls| tls.client.clone())
}

/// Returns `true` if a response that varies in this way is for all requests for the same target that have `Accept-Encoding`, or all
/// that do not: no other field of theirs selects it.
pub(super) fn varies_by_hidden_fields(vary: &Vary, settings: &Settings) -> bool {
    vary.names().all(|name| name == b"accept-encoding" && !settings.compress.is_empty())
}
