//! From a request to the site, the settings and the handler that serve it.

mod admission;
mod fast_path;
mod registry;
mod reroute;
mod sites;

use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::{ContentCoding, Method, host, path};
use dunlin_http::{BodyLength, FieldLines, FieldName, OwnedRequest, Request, RequestError};

pub(crate) use self::admission::{Direction, dispatch_client};
use self::admission::{is_admitted, misdirected};
pub(crate) use self::fast_path::{FastPath, FastPathConditions, FastResponse, fast_path};
pub(crate) use self::reroute::{MOST_REDIRECTS, complete, reroute};
pub(crate) use self::sites::{Route, Site, Sites};
use crate::cache::worker_cache::{CacheEntry, Prebuilt};
use crate::cache::{Representation, StoredContent};
use crate::checks::{
    CheckInput, Checks, Client, Decision, PendingDecision, Rejection, RequestContext,
};
use crate::clock;
use crate::config::Handler;
use crate::early_hints::EarlyHints;
use crate::handler::file::OwnedSubject;
use crate::handler::file::apply_to_message;
use crate::handler::{errors, file, redirect, respond, script, status};
use crate::response::Response;
use crate::stream;
use crate::telemetry::{RouteTelemetry, ScriptContext};
use crate::tls::{Policy, TlsInfo};
use crate::transport::{Ends, Peer};
use crate::worker::WorkerContext;

/// A handler's work that goes on after the poll that began it.
pub(crate) type Job = Pin<Box<dyn Future<Output = Response>>>;

/// How a handler answers.
pub(crate) enum Reply {
    /// An answer that a resource keeps ready.
    Cached(CachedResponse),
    /// An answer that is there.
    Response(Box<Response>),
    /// An answer that takes time.
    Job(Job),
    /// An answer that takes time, and whose handler reads the request's body or sends its own as
    /// it is made.
    Exchange(Exchange),
}

/// Begins an exchange with a handler.
pub(crate) type Exchange = Box<dyn FnOnce(Incoming) -> Job>;

/// What an exchange has of the request besides its head.
pub(crate) struct Incoming {
    pub(crate) body: stream::Receiver,
    pub(crate) length: BodyLength,
    /// Once all of the body was received: where it is.
    pub(crate) received: Option<script::Received>,
    /// Where it came from and to; `None` by a Unix socket.
    pub(crate) ends: Option<Ends>,
    /// It came by TLS.
    pub(crate) encrypted: bool,
    /// What is known of the encryption.
    pub(crate) tls: Option<TlsInfo>,
    /// How many handlers have passed the request on.
    pub(crate) redirects: u8,
    /// Takes what scripts tell of the request.
    pub(crate) script_context: Rc<ScriptContext>,
    /// Takes what is to be sent before the answer.
    pub(crate) early_hints: EarlyHints,
}

impl Incoming {
    /// The same for a request without a body, for what responds when a handler has failed.
    pub(crate) fn without_body(&self) -> Self {
        Self {
            body: stream::empty(),
            length: BodyLength::None,
            received: None,
            ends: self.ends,
            encrypted: self.encrypted,
            tls: self.tls.clone(),
            redirects: self.redirects,
            script_context: Rc::clone(&self.script_context),
            early_hints: self.early_hints.clone(),
        }
    }

    /// Who asks, as far as the connection tells.
    pub(crate) fn client(&self) -> Client {
        let address = self.ends.map_or(Peer::Unix, |ends| Peer::of(ends.remote));
        Client {
            address,
            encrypted: self.encrypted,
            early: false,
            via_proxy: false,
            is_subrequest: false,
            // The request was admitted to its site when it arrived.
            policy: Policy::EXEMPT,
        }
    }
}

/// A whole representation, or the 304 that spares it.
pub(crate) struct CachedResponse<H = Rc<CacheEntry>> {
    pub(crate) entry: H,
    pub(crate) coding: ContentCoding,
    pub(crate) not_modified: bool,
    /// For the log.
    pub(crate) cache: &'static str,
    /// The body, when it is not the one that the resource has.
    pub(crate) content: Option<StoredContent>,
}

impl<H: Deref<Target = CacheEntry>> CachedResponse<H> {
    /// What is sent when the answer is to be whole, as it is, if head and body have no more bytes than `most`.
    #[inline]
    pub(crate) fn prebuilt(&self, most: usize) -> Option<&Prebuilt> {
        let is_whole = self.coding == ContentCoding::Identity && !self.not_modified;
        let is_kept = is_whole && self.content.is_none();
        self.entry.prebuilt.as_ref().filter(|prebuilt| is_kept && prebuilt.block.len() <= most)
    }

    /// The body of the answer in that form.
    pub(crate) fn body<'a>(&'a self, form: &'a Representation) -> &'a StoredContent {
        self.content.as_ref().unwrap_or(&form.body)
    }
}

/// A request that found its handler.
pub(crate) struct Routed {
    pub(crate) reply: Reply,
    /// The site's number, for the log.
    pub(crate) site: usize,
    /// Bytes of a body that are read at most.
    pub(crate) body_limit: u64,
    /// The answer is to be sent when the body has been read.
    pub(crate) reads_body: bool,
    /// Whether the access log has a line for it.
    pub(crate) log: bool,
    pub(crate) route_telemetry: RouteTelemetry,
    /// What the gates know of it.
    pub(crate) context: Option<Rc<RequestContext>>,
    pub(crate) direction: Direction,
}

/// What a request is about, once its target is understood.
pub(crate) struct Subject<'a> {
    pub(crate) site: &'a Arc<Site>,
    pub(crate) settings: &'a Arc<Route>,
    /// The path as it stands in the target.
    pub(crate) raw_path: &'a [u8],
    /// The path after decoding.
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    /// Who asks.
    pub(crate) client: Client,
    /// What the gates know of who asks; `None` when the route has none.
    pub(crate) context: Option<&'a Rc<RequestContext>>,
    /// How the request came to be routed to this path.
    pub(crate) via: Via,
}

/// What led a request to a path that is not its target's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Via {
    /// Internal redirects so far.
    pub(crate) redirects: u8,
    /// The status for which the path is the error page.
    pub(crate) error: Option<u16>,
}

impl<'a> Subject<'a> {
    /// With what the gates know, if the route has any.
    pub(crate) fn with(&self, context: Option<&'a Rc<RequestContext>>) -> Self {
        Self { client: context.map_or(self.client, |context| context.client), context, ..*self }
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Self {
        Self::Response(Box::new(response))
    }
}

/// Who names the path that is to be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Client,
    /// A script or the configuration, which may name what clients may not.
    Server,
}

/// The site of that authority.
#[inline]
fn find_site<'c>(ctx: &'c WorkerContext, authority: Option<&[u8]>) -> Option<&'c Arc<Site>> {
    let sites = &ctx.shared.sites;
    sites
        .only()
        .or_else(|| sites.find(authority.and_then(host::parse).map_or(&b""[..], |host| host.name)))
}

/// Finds site, route and handler, and has the handler answer.
///
/// # Errors
/// A refusal when the target cannot be understood.
pub(crate) fn dispatch(
    ctx: &Rc<WorkerContext>,
    client: Client,
    origin: Origin,
    request: &Request<'_>,
    path_buffer: &mut Vec<u8>,
) -> Result<Routed, RequestError> {
    let target = target::parse(request.method(), request.target())
        .map_err(|_| RequestError { status: 400, reason: "the request-target is malformed" })?;
    let (raw_path, query) = match target {
        Target::Origin { path, query } | Target::Absolute { path, query, .. } => (path, query),
        Target::Authority(_) => return Ok(unrouted(method_not_allowed())),
        Target::Asterisk => (b"*".as_slice(), None),
    };
    let authority = request.field(FieldName::Host);
    if let Some(challenges) = ctx.shared.certificates.challenges()
        && let Some(answer) = challenges.text(raw_path)
    {
        let answer = Response::with_text(200, "application/octet-stream", answer);
        return Ok(unrouted(answer));
    }
    if client.early && !is_harmless(request) {
        return Ok(too_early());
    }
    let site = match find_site(ctx, authority) {
        Some(site) if is_admitted(ctx, client, site) => site,
        site => return Ok(misdirected(ctx, client, request, raw_path, site)),
    };
    // The handshake may have named another site, which takes early data.
    if client.early && !site.tls.as_ref().is_some_and(|tls| tls.early_data) {
        return Ok(too_early());
    }
    let method = request.method();
    if matches!(method, Method::Get | Method::Head) {
        let entry = ctx.cache.borrow().get(site.serial, raw_path, ctx.clock.now()).cloned();
        if let Some(entry) = entry
            && let Some(routed) =
                dispatch_cached(ctx, client, request, site, (raw_path, query), &entry)
        {
            return Ok(routed);
        }
    }
    if raw_path == b"*" {
        return Ok(unrouted(options(ALLOW)));
    }
    path_buffer.clear();
    if let Err(error) = path::decode(raw_path, path_buffer) {
        let (status, reason) = path_rejection(error);
        if status == 404 {
            let settings = site.route(b"/");
            let (reply, context) = not_found(ctx, request, site, settings, client);
            return Ok(routed(site, settings, reply, false, Some(context)));
        }
        return Err(RequestError { status, reason });
    }
    let settings = site.route(path_buffer);
    // Their files are in no worker's own cache, which is looked into above.
    if settings.internal && origin == Origin::Client {
        let (reply, context) = not_found(ctx, request, site, settings, client);
        return Ok(routed(site, settings, reply, false, Some(context)));
    }
    let via = Via::default();
    let subject =
        Subject { site, settings, raw_path, path: path_buffer, query, client, context: None, via };
    Ok(match enter(ctx, client, request, &subject, None) {
        Ok(context) => {
            // The route that responds in the end may have gates of its own.
            let context =
                context.or_else(|| settings.reroutes.then(|| Rc::new(RequestContext::new(client))));
            handle(ctx, request, &subject.with(context.as_ref()))
        }
        Err(stopped) => *stopped,
    })
}

/// The status of the response to a path that cannot be decoded, and the reason.
pub(crate) fn path_rejection(error: path::PathError) -> (u16, &'static str) {
    match error {
        path::PathError::Malformed => {
            (400, "a percent sign in the path is not followed by two hexadecimal digits")
        }
        path::PathError::Nul => (400, "the path holds a NUL"),
        path::PathError::EncodedSlash => {
            (404, "the path holds an encoded slash, which no file name can")
        }
        path::PathError::AboveRoot => (400, "the path leads above the root"),
    }
}

/// Whether it does no harm when the request is answered more than once: a safe method without a body
/// (RFC 8470 §3, RFC 9110 §9.2.1).
fn is_harmless(request: &Request<'_>) -> bool {
    let has_body = request.has(FieldName::TransferEncoding)
        || request.field(FieldName::ContentLength).is_some_and(|length| length != b"0");
    matches!(request.method(), Method::Get | Method::Head | Method::Options) && !has_body
}

/// Answers with what the worker's cache has, if that may be used.
#[inline]
fn dispatch_cached(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    site: &Arc<Site>,
    (raw_path, query): (&[u8], Option<&[u8]>),
    entry: &Rc<CacheEntry>,
) -> Option<Routed> {
    if entry.checks.is_some() {
        return None;
    }
    if entry.prebuilt.is_none() {
        if file::has_changed(entry) {
            entry.validity.invalidate();
            return None;
        }
        if ctx.is_worth_a_copy(&entry.resource) {
            return None;
        }
    }
    let (settings, via) = (&entry.settings, Via::default());
    let subject =
        Subject { site, settings, raw_path, path: b"", query, client, context: None, via };
    let context = match enter(ctx, client, request, &subject, None) {
        Ok(context) => context,
        Err(stopped) => return Some(*stopped),
    };
    ctx.count_hit();
    let subject = subject.with(context.as_ref());
    let reply = file::answer_from_cache(ctx, request, &subject, entry, "hit");
    Some(routed(site, settings, reply, false, context))
}

/// Asks the gates of the route; `None` when it has none, nobody is behind a proxy, and nobody wants to know when
/// the route was found. `at_once` is the length of the answer's body when that is there and will leave before
/// anything else is asked.
#[inline]
fn enter(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    subject: &Subject<'_>,
    at_once: Option<u64>,
) -> Result<Option<Rc<RequestContext>>, Box<Routed>> {
    let server = &ctx.shared.config.server;
    let is_direct = server.trusted_proxies.is_empty() && !client.is_subrequest;
    if subject.settings.checks.is_none() && is_direct {
        let is_timed = subject.settings.server_timing || ctx.needs_timings();
        return Ok(is_timed.then(|| Rc::new(RequestContext::new(client))));
    }
    ask(ctx, client.behind(request, server), request, subject, at_once).map(Some)
}

fn ask(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    subject: &Subject<'_>,
    at_once: Option<u64>,
) -> Result<Rc<RequestContext>, Box<Routed>> {
    let context = Rc::new(RequestContext::new(client));
    let subject = &subject.with(Some(&context));
    let Some(checks) = &subject.settings.checks else { return Ok(context) };
    let reply = match checks
        .check(&CheckInput { ctx, request, context: &context, now: context.routed_at, at_once }, 0)
    {
        (_, Decision::Allow) => return Ok(context),
        (_, Decision::Reject(refused)) => refuse(ctx, request, subject, refused),
        (number, Decision::Wait(waiting)) => wait(ctx, request, subject, (number, Some(waiting))),
        (number, Decision::ReceiveBody) => wait(ctx, request, subject, (number, None)),
    };
    let (site, settings) = (subject.site, subject.settings);
    Err(Box::new(routed(site, settings, reply, false, Some(Rc::clone(&context)))))
}

/// Has the request wait at the gate of that number: for its body when there is no `waiting`.
fn wait(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    (number, waiting): (usize, Option<PendingDecision>),
) -> Reply {
    let (Some(checks), Some(context)) = (&subject.settings.checks, subject.context) else {
        // Only gates make a request wait.
        return error_response(500, true).into();
    };
    let wait = Wait {
        ctx: Rc::clone(ctx),
        request: request.to_owned(),
        subject: subject.to_owned(),
        checks: Arc::clone(checks),
        context: Rc::clone(context),
    };
    Reply::Exchange(Box::new(move |incoming| Box::pin(wait.at(number, waiting, incoming))))
}

pub(crate) fn refuse(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    refused: Rejection,
) -> Reply {
    if let Some(mut response) = refused.response {
        apply_to_message(subject.settings, &mut response.fields);
        return Reply::Response(response);
    }
    if let (300..400, Some(location)) = (refused.status, refused.fields.get("Location")) {
        return redirect::redirect(subject.settings, refused.status, location).into();
    }
    file::error_reply(ctx, request, subject, refused.status, refused.fields)
}

/// A request that waits at a gate.
struct Wait {
    ctx: Rc<WorkerContext>,
    request: OwnedRequest,
    subject: OwnedSubject,
    checks: Arc<Checks>,
    context: Rc<RequestContext>,
}

impl Wait {
    /// Waits at the gate of that number, passes those behind it and has the handler answer.
    async fn at(
        mut self,
        number: usize,
        waiting: Option<PendingDecision>,
        mut incoming: Incoming,
    ) -> Response {
        self.context.set_ends(incoming.ends);
        if let Err(reply) = self.all(number, waiting, &mut incoming).await {
            return complete(&self.request.as_request(), reply, incoming).await;
        }
        self.context.set_admitted_at(clock::now());
        if self.subject.path.is_empty() {
            let mut path = Vec::new();
            // It was decoded when the answer that the cache had was kept.
            let _ = path::decode(&self.subject.raw_path, &mut path);
            self.subject.path = path.into();
        }
        let request = self.request.as_request();
        complete(&request, handle(&self.ctx, &request, &self.subject()).reply, incoming).await
    }

    fn subject(&self) -> Subject<'_> {
        self.subject.borrow().with(Some(&self.context))
    }

    /// Passes the gate of that number and those behind it.
    async fn all(
        &self,
        mut number: usize,
        mut waiting: Option<PendingDecision>,
        incoming: &mut Incoming,
    ) -> Result<(), Reply> {
        let Self { ctx, context, .. } = self;
        let request = &self.request.as_request();
        loop {
            match waiting.take() {
                Some(waiting) => waiting.await.map_err(|refused| self.refuse(refused))?,
                None => script::receive_body(ctx, request, &self.subject(), incoming).await?,
            }
            let input = CheckInput { ctx, request, context, now: clock::now(), at_once: None };
            (number, waiting) = match self.checks.check(&input, number + 1) {
                (_, Decision::Allow) => return Ok(()),
                (_, Decision::Reject(refused)) => return Err(self.refuse(refused)),
                (next, Decision::Wait(longer)) => (next, Some(longer)),
                (next, Decision::ReceiveBody) => (next, None),
            };
        }
    }

    fn refuse(&self, refused: Rejection) -> Reply {
        refuse(&self.ctx, &self.request.as_request(), &self.subject(), refused)
    }
}

/// Has the handler of the route make the response.
pub(crate) fn handle(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
) -> Routed {
    let settings = subject.settings;
    #[cfg(test)]
    if let Some(reply) = crate::testing::handler::reply(subject.path, request) {
        return routed(subject.site, settings, reply, true, subject.context.cloned());
    }
    let mut reads_body = false;
    let reply = match &settings.handler {
        Handler::Files => files(ctx, request, subject),
        Handler::Script(_) if matches!(request.method(), Method::Trace | Method::Connect) => {
            not_for_files(ctx, request, subject)
        }
        Handler::Script(script) => script::answer(ctx, request, subject, script),
        Handler::Redirect(rule) => {
            reads_body = true;
            redirect::respond(request, subject, rule).into()
        }
        Handler::Respond(fixed) => {
            reads_body = true;
            respond::respond(settings, fixed).into()
        }
        Handler::Status(status) => status::answer(ctx, request, subject, status),
        Handler::AddSlash => {
            reads_body = true;
            redirect::to_slash(request, subject).into()
        }
    };
    routed(subject.site, settings, reply, reads_body, subject.context.cloned())
}

/// The response for the route's files.
fn files(ctx: &Rc<WorkerContext>, request: &Request<'_>, subject: &Subject<'_>) -> Reply {
    match request.method() {
        Method::Get | Method::Head => file::answer(ctx, request, subject),
        Method::Trace | Method::Connect => not_for_files(ctx, request, subject),
        // A script may respond in the end, to any method.
        _ if subject.settings.reroutes => file::answer(ctx, request, subject),
        _ => not_for_files(ctx, request, subject),
    }
}

/// The response to a method that files do not have.
pub(crate) fn not_for_files(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
) -> Reply {
    match request.method() {
        Method::Options => {
            let mut response = options(allowed(subject.settings));
            apply_to_message(subject.settings, &mut response.fields);
            response.into()
        }
        Method::Other => refusal(ctx, request, subject, 501),
        _ => refusal(ctx, request, subject, 405),
    }
}

fn routed(
    site: &Site,
    settings: &Route,
    reply: Reply,
    reads_body: bool,
    context: Option<Rc<RequestContext>>,
) -> Routed {
    Routed {
        reply,
        site: site.index,
        body_limit: settings.body_size,
        reads_body,
        log: settings.access_log,
        route_telemetry: RouteTelemetry::of(settings),
        context,
        direction: Direction::Right,
    }
}

fn unrouted(response: Response) -> Routed {
    Routed {
        reply: response.into(),
        site: 0,
        body_limit: 0,
        reads_body: false,
        log: true,
        route_telemetry: RouteTelemetry::default(),
        context: None,
        direction: Direction::Right,
    }
}

/// Bytes of a body that may come with early data; more of it is not accepted.
const EARLY_BODY: u64 = 16 * 1024;

const ALLOW: &str = "GET, HEAD, OPTIONS";

fn options(allow: &str) -> Response {
    let mut response = Response::new(204);
    response.fields.push("Allow", allow);
    response
}

/// The methods by which a route's files can be had.
fn allowed(settings: &Route) -> &str {
    let methods = settings.checks.as_ref().and_then(|checks| checks.methods.as_ref());
    methods.map_or(ALLOW, |methods| methods.allow())
}

/// The response to what may not be served before the end of the handshake (RFC 8470 §5.2). The body, if there is one, is
/// read and dropped.
fn too_early() -> Routed {
    Routed { body_limit: EARLY_BODY, ..unrouted(error_response(425, true)) }
}

fn method_not_allowed() -> Response {
    let mut response = error_response(405, true);
    response.fields.push("Allow", ALLOW);
    response
}

fn not_found(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    site: &Arc<Site>,
    settings: &Arc<Route>,
    client: Client,
) -> (Reply, Rc<RequestContext>) {
    let client = client.behind(request, &ctx.shared.config.server);
    let context = Rc::new(RequestContext::new(client));
    if let Some(https) = settings.checks.as_ref().and_then(|checks| checks.https.as_ref()) {
        https.add_strict(&context);
    }
    let (raw_path, path, query, via) = (b"/", b"/", None, Via::default());
    let subject = Subject { site, settings, raw_path, path, query, client, context: None, via };
    (refusal(ctx, request, &subject, 404), context)
}

/// An error of that status as the route wants it shown.
pub(crate) fn refusal(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    status: u16,
) -> Reply {
    let mut fields = FieldLines::default();
    if status == 405 {
        fields.push("Allow", allowed(subject.settings));
    }
    file::error_reply(ctx, request, subject, status, fields)
}

/// The response to a message that the engine, the router or a limit refuses, with the fields that the request's
/// route sets, as far as the request has come.
pub(crate) fn refusal_to(
    ctx: &WorkerContext,
    request: Option<&Request<'_>>,
    refusal: &RequestError,
    html: bool,
) -> Response {
    let mut response = error_response(refusal.status, html);
    let Some(request) = request else { return response };
    let (
        Ok(Target::Origin { path: raw_path, .. } | Target::Absolute { path: raw_path, .. }),
        Some(site),
    ) = (
        target::parse(request.method(), request.target()),
        find_site(ctx, request.field(FieldName::Host)),
    )
    else {
        return response;
    };
    let mut path = Vec::new();
    let settings = match path::decode(raw_path, &mut path) {
        Ok(()) => site.route(&path),
        Err(_) => site.route(b"/"),
    };
    apply_to_message(settings, &mut response.fields);
    response
}

/// The plain answer of an error status.
pub(crate) fn error_response(status: u16, html: bool) -> Response {
    errors::plain_page(status, None, html)
}
