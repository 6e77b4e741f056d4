//! Whether a request came by a connection on which its site is served.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::field_edits::apply_to_message;
use dunlin_exchange::Client;
use dunlin_http::{FieldName, Request};
use dunlin_net::log_limiter::LogLimiter;
use dunlin_tls::Policy;

use super::decode::decode;
use super::reply::{Direction, Routed};
use super::route_match::{RouteMatch, Via};
use super::sites::Site;
use crate::checks::to_https;
use crate::handler::rejection::rejected;
use crate::handler::{error_page, errors};
use crate::worker::WorkerContext;

/// Returns `true` if the connection that the request came by meets what the site requires of handshakes. Without TLS there is
/// none, so that a site is admitted that requires no certificate of its clients.
#[inline]
pub(super) fn is_admitted(ctx: &WorkerContext, client: Client, site: &Site) -> bool {
    match client.policy {
        Policy::EXEMPT => true,
        Policy::UNENCRYPTED => {
            !ctx.fast_path.some_require_certificates
                || !ctx.shared.certificates.requires_certificates(site.index)
        }
        met => met == ctx.shared.certificates.policy(site.index),
    }
}

/// Returns the response to a request for a site that is not served on this connection. `site` is the one that the request
/// names, if there is one.
#[cold]
pub(super) fn misdirected(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    raw_path: &[u8],
    site: Option<&Arc<Site>>,
) -> Routed {
    let is_encrypted = client.policy != Policy::UNENCRYPTED;
    if let Some(site) = site
        && !is_encrypted
        && let Some(routed) = redirect_to_tls(ctx, client, request, raw_path, site)
    {
        return routed;
    }
    static LOG_LIMITER: LogLimiter = LogLimiter::new();
    let host = error_page::quoted(request.field(FieldName::Host).unwrap_or_default());
    let (reason, text) = match site {
        None => ("no site for host", format!("This server has no site for {host}.")),
        Some(site) if is_encrypted && site.tls.is_none() => (
            "the site has no `tls`, and the connection has",
            format!("{host} is not served over TLS here."),
        ),
        Some(_) if is_encrypted => (
            "the TLS handshake met the policy of another site, or of an earlier configuration",
            format!("{host} needs a separate connection."),
        ),
        Some(_) => (
            "the site requires certificates of its clients, and the connection has no TLS",
            format!("{host} is served over TLS only."),
        ),
    };
    if LOG_LIMITER.is_due() {
        let advice = if site.is_none() { "; add it to the `host` of a site" } else { "" };
        tracing::info!("request misdirected: {reason} {host:?}{advice}");
    }
    let mut response = errors::plain_page(421, Some(&text), true);
    if let Some(site) = site {
        apply_to_message(&site.route(b"/"), response.status, &mut response.fields);
    }
    Routed {
        direction: Direction::Misdirected,
        // The limit of the site does not apply: the response does not reveal it.
        body_limit: u64::MAX,
        ..Routed::unrouted(response)
    }
}

/// Returns the redirect of a route that sends clients without TLS to https.
fn redirect_to_tls(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    raw_path: &[u8],
    site: &Arc<Site>,
) -> Option<Routed> {
    let mut path = Vec::new();
    decode(raw_path, site.config(), &mut path).ok()?;
    let settings = &site.route(&path);
    let port = settings.checks.as_ref()?.https.as_ref()?.redirect?;
    let matched = RouteMatch {
        site,
        settings,
        raw_path,
        path: &path,
        query: None,
        client,
        context: None,
        via: Via::default(),
    };
    let reply = rejected(ctx, request, &matched, to_https(request, port));
    Some(Routed::new(site, settings, reply, false, None))
}
