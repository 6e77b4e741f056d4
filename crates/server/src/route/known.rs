//! The short way of most requests: for whole files that a worker's own cache has.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::semantics::Method;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldName, Request};

use super::{Prepared, Reply, Routed, Subject, Via, enter, find_site, is_admitted, routed};
use crate::cache::front::{Front, Hit};
use crate::checks::{Client, RequestContext};
use crate::config::Site;
use crate::handler::file;
use crate::worker::{SharedState, WorkerContext};

/// What is known of a request without asking further.
pub(crate) enum Known<'f> {
    /// The answer, which the gates have let pass.
    Answer(Answer<'f>),
    /// The gates have something to say, by what they do with the request or by fields of the answer.
    Routed(Box<Routed>),
}

/// An answer as the cache has it. It is not moved about, and its entry is not written to, so that entries
/// which are seldom used are not brought into the processor's caches to be changed.
pub(crate) struct Answer<'f> {
    pub(crate) prepared: Prepared<&'f Hit>,
    /// The site's number, for the log.
    pub(crate) site: usize,
    /// What the gates know of it; `None` when the route has none.
    pub(crate) context: Option<Rc<RequestContext>>,
}

/// A whole file that the worker's cache has, when nothing about the request asks for more than the gates of
/// its route: what most requests are. Everything else is left to [`dispatch`](super::dispatch), which would
/// answer these in the same way. Blocks of at most `short` bytes leave before anything else is asked.
#[inline]
pub(crate) fn known<'f>(
    ctx: &Rc<WorkerContext>,
    front: &'f Front,
    client: Client,
    request: &Request<'_>,
    short: usize,
) -> Option<Known<'f>> {
    let method = request.method();
    if !matches!(method, Method::Get | Method::Head) || client.early || !ctx.quick.is_open {
        return None;
    }
    let Ok(Target::Origin { path, query }) = target::parse(method, request.target()) else {
        return None;
    };
    let site = match &ctx.quick.only_site {
        Some(site) => site,
        None => find_site(ctx, request.field(FieldName::Host))?,
    };
    if !is_admitted(ctx, client, site) {
        return None;
    }
    let hit = front.get(site.serial, path, ctx.clock.now()).filter(|hit| hit.is_ready())?;
    let coding = file::plain_coding(request, hit)?;
    let prepared =
        Prepared { hit: &**hit, coding, not_modified: false, cache: "hit", content: None };
    if hit.settings.checks.is_some() || ctx.needs_timings() {
        let (settings, raw_path, via) = (&hit.settings, path, Via::default());
        let subject =
            Subject { site, settings, raw_path, path: b"", query, client, context: None, via };
        let at_once = prepared.plain(short).map(|plain| plain.sent(method).len() as u64);
        return Some(pass_gates(ctx, request, &subject, (hit, prepared), at_once));
    }
    ctx.count_hit();
    Some(Known::Answer(Answer { prepared, site: site.index, context: None }))
}

fn pass_gates<'f>(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    (hit, prepared): (&Rc<Hit>, Prepared<&'f Hit>),
    at_once: Option<u64>,
) -> Known<'f> {
    let context = match enter(ctx, subject.client, request, subject, at_once) {
        Ok(context) => context,
        Err(stopped) => return Known::Routed(stopped),
    };
    ctx.count_hit();
    if !context.as_ref().is_some_and(|context| context.has_fields()) {
        return Known::Answer(Answer { prepared, site: subject.site.index, context });
    }
    let Prepared { coding, not_modified, cache, content, .. } = prepared;
    let hit = Rc::clone(hit);
    let reply = Reply::Prepared(Prepared { hit, coding, not_modified, cache, content });
    Known::Routed(Box::new(routed(subject.site, subject.settings, reply, false, context)))
}

/// What [`known`] asks of the configuration, beside each other.
pub(crate) struct Quick {
    /// Whether it may answer: there are no proxies to be looked behind, and no challenges of a
    /// certificate authority to be answered instead.
    is_open: bool,
    /// The site when there is one only, for every host.
    only_site: Option<Arc<Site>>,
    /// Whether there are sites that require certificates of their clients.
    pub(super) some_require_certificates: bool,
}

impl Quick {
    pub(crate) fn new(shared: &SharedState) -> Self {
        let config = &shared.config;
        let is_open =
            config.server.trusted_proxies.is_empty() && shared.certificates.challenges().is_none();
        Self {
            is_open,
            only_site: config.sites.only().cloned(),
            some_require_certificates: (0..config.sites.iter().count())
                .any(|site| shared.certificates.requires_certificates(site)),
        }
    }
}
