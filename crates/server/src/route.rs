//! From a request to the site, the settings and the handler that serve it.

mod known;

use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::http1::{BodyLength, Refusal};
use dunlin_http::semantics::status::reason;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::{Coding, Method, host, path};
use dunlin_http::{FieldLines, FieldName, OwnedRequest, Request};

pub(crate) use self::known::{Answer, Known, Quick, known};
use crate::cache::front::{Hit, Plain};
use crate::cache::{Representation, Stored};
use crate::config::{Settings, Site};
use crate::early_hints::EarlyHints;
use crate::event_loop::Loop;
use crate::gate::{Asker, Client, Gates, Pass, Refused, Verdict, Waiting};
use crate::handler::file::OwnedSubject;
use crate::handler::{error_page, file, redirect, respond, script, status};
use crate::record::{Course, Follow};
use crate::response::Response;
use crate::stream;
use crate::tls::Facts;
use crate::transport::{Ends, Peer};

/// A handler's work that goes on after the poll that began it.
pub(crate) type Job = Pin<Box<dyn Future<Output = Response>>>;

/// How a handler answers.
pub(crate) enum Reply {
    /// An answer that a resource keeps ready.
    Prepared(Prepared),
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
    /// Where it came from and to; `None` by a Unix socket.
    pub(crate) ends: Option<Ends>,
    /// It came by TLS.
    pub(crate) encrypted: bool,
    /// What is known of the encryption.
    pub(crate) tls: Option<Facts>,
    /// How many handlers have passed the request on.
    pub(crate) redirects: u8,
    /// Takes what scripts tell of the request.
    pub(crate) course: Rc<Course>,
    /// Takes what is to be sent before the answer.
    pub(crate) early_hints: EarlyHints,
}

impl Incoming {
    /// Who asks, as far as the connection tells.
    pub(crate) fn client(&self) -> Client {
        let address = self.ends.map_or(Peer::Unix, |ends| Peer::of(ends.remote));
        Client { address, encrypted: self.encrypted, early: false, is_subrequest: false }
    }
}

/// A whole representation, or the 304 that spares it.
pub(crate) struct Prepared<H = Rc<Hit>> {
    pub(crate) hit: H,
    pub(crate) coding: Coding,
    pub(crate) not_modified: bool,
    /// For the log.
    pub(crate) cache: &'static str,
    /// The body, when it is not the one that the resource has.
    pub(crate) content: Option<Stored>,
}

impl<H: Deref<Target = Hit>> Prepared<H> {
    /// What is sent when the answer is to be whole, as it is, if head and body have no more bytes than `most`.
    #[inline]
    pub(crate) fn plain(&self, most: usize) -> Option<&Plain> {
        let is_whole = self.coding == Coding::Identity && !self.not_modified;
        let is_kept = is_whole && self.content.is_none();
        self.hit.plain.as_ref().filter(|plain| is_kept && plain.block.len() <= most)
    }

    /// The body of the answer in that form.
    pub(crate) fn body<'a>(&'a self, form: &'a Representation) -> &'a Stored {
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
    pub(crate) follow: Follow,
    /// What the gates know of it.
    pub(crate) pass: Option<Rc<Pass>>,
}

/// What a request is about, once its target is understood.
pub(crate) struct Subject<'a> {
    pub(crate) site: &'a Arc<Site>,
    pub(crate) settings: &'a Arc<Settings>,
    /// The path as it stands in the target.
    pub(crate) raw_path: &'a [u8],
    /// The path after decoding.
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    /// Who asks.
    pub(crate) client: Client,
    /// What the gates know of who asks; `None` when the route has none.
    pub(crate) pass: Option<&'a Rc<Pass>>,
}

impl<'a> Subject<'a> {
    /// With what the gates know, if the route has any.
    fn with(&self, pass: Option<&'a Rc<Pass>>) -> Self {
        Self { client: pass.map_or(self.client, |pass| pass.client), pass, ..*self }
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
fn find_site<'c>(ctx: &'c Loop, authority: Option<&[u8]>) -> Option<&'c Arc<Site>> {
    let sites = &ctx.shared.config.sites;
    sites
        .only()
        .or_else(|| sites.find(authority.and_then(host::parse).map_or(&b""[..], |host| host.name)))
}

/// Finds site, route and handler, and has the handler answer.
///
/// # Errors
/// A refusal when the target cannot be understood.
pub(crate) fn dispatch(
    ctx: &Rc<Loop>,
    client: Client,
    origin: Origin,
    request: &Request<'_>,
    path_buffer: &mut Vec<u8>,
) -> Result<Routed, Refusal> {
    let target = target::parse(request.method(), request.target())
        .map_err(|_| Refusal { status: 400, reason: "the request-target is malformed" })?;
    let (authority, raw_path, query) = match target {
        Target::Origin { path, query } => (request.field(FieldName::Host), path, query),
        // RFC 9112 §3.2.2: the target's authority counts, whatever Host says.
        Target::Absolute { authority, path, query, .. } => (Some(authority), path, query),
        Target::Authority(_) => return Ok(unrouted(method_not_allowed())),
        Target::Asterisk => (request.field(FieldName::Host), b"*".as_slice(), None),
    };
    if let Some(challenges) = ctx.shared.certificates.challenges()
        && let Some(answer) = challenges.text(raw_path)
    {
        let answer = Response::with_text(200, "application/octet-stream", answer);
        return Ok(unrouted(answer));
    }
    if client.early && !is_harmless(request) {
        // Its body, if it has one, is read and thrown away like that of any early answer.
        return Ok(Routed { body_limit: EARLY_BODY, ..unrouted(error_response(425, true)) });
    }
    let Some(site) = find_site(ctx, authority) else { return Ok(unrouted(misdirected())) };
    let method = request.method();
    if matches!(method, Method::Get | Method::Head) {
        let hit = ctx.front.borrow().get(site.serial, raw_path, ctx.clock.now()).cloned();
        if let Some(hit) = hit
            && let Some(routed) = dispatch_hit(ctx, client, request, site, (raw_path, query), &hit)
        {
            return Ok(routed);
        }
    }
    if raw_path == b"*" {
        return Ok(unrouted(options()));
    }
    path_buffer.clear();
    if let Err(error) = path::decode(raw_path, path_buffer) {
        let reason = match error {
            path::PathError::EncodedSlash => {
                let settings = site.route(b"/");
                let reply = not_found(ctx, request, site, settings, client);
                return Ok(routed(site, settings, reply, false, None));
            }
            path::PathError::AboveRoot => "the path leads above the root",
            path::PathError::Nul => "the path holds a NUL",
            _ => "the path is malformed",
        };
        return Err(Refusal { status: 400, reason });
    }
    let settings = site.route(path_buffer);
    // Their files are in no loop's own cache, which is looked into above.
    if settings.internal && origin == Origin::Client {
        let reply = not_found(ctx, request, site, settings, client);
        return Ok(routed(site, settings, reply, false, None));
    }
    let subject =
        Subject { site, settings, raw_path, path: path_buffer, query, client, pass: None };
    Ok(match enter(ctx, client, request, &subject, None) {
        Ok(pass) => handle(ctx, request, &subject.with(pass.as_ref())),
        Err(stopped) => *stopped,
    })
}

/// Whether it does no harm when the request is answered more than once: a safe method without a body
/// (RFC 8470 §3, RFC 9110 §9.2.1).
fn is_harmless(request: &Request<'_>) -> bool {
    let has_body = request.has(FieldName::TransferEncoding)
        || request.field(FieldName::ContentLength).is_some_and(|length| length != b"0");
    matches!(request.method(), Method::Get | Method::Head | Method::Options) && !has_body
}

/// Answers with what the loop's own cache has, if that may be used.
#[inline]
fn dispatch_hit(
    ctx: &Rc<Loop>,
    client: Client,
    request: &Request<'_>,
    site: &Arc<Site>,
    (raw_path, query): (&[u8], Option<&[u8]>),
    hit: &Rc<Hit>,
) -> Option<Routed> {
    if hit.gates.is_some() {
        return None;
    }
    if hit.plain.is_none() {
        if file::has_changed(hit) {
            hit.version.retire();
            return None;
        }
        if ctx.is_worth_a_copy(&hit.resource) {
            return None;
        }
    }
    let settings = &hit.settings;
    let subject = Subject { site, settings, raw_path, path: b"", query, client, pass: None };
    let pass = match enter(ctx, client, request, &subject, None) {
        Ok(pass) => pass,
        Err(stopped) => return Some(*stopped),
    };
    ctx.count_hit();
    let subject = subject.with(pass.as_ref());
    let reply = file::answer_hit(ctx, request, &subject, hit, "hit");
    Some(routed(site, settings, reply, false, pass))
}

/// Asks the gates of the route; `None` when it has none, nobody is behind a proxy, and nobody wants to know when
/// the route was found. `at_once` is the length of the answer's body when that is there and will leave before
/// anything else is asked.
#[inline]
fn enter(
    ctx: &Rc<Loop>,
    client: Client,
    request: &Request<'_>,
    subject: &Subject<'_>,
    at_once: Option<u64>,
) -> Result<Option<Rc<Pass>>, Box<Routed>> {
    let trusted = &ctx.shared.config.server.trusted_proxies;
    if subject.settings.gates.is_none() && trusted.is_empty() {
        let is_timed = subject.settings.server_timing || ctx.is_telling_times();
        return Ok(is_timed.then(|| Rc::new(Pass::new(client))));
    }
    ask(ctx, client.behind(request, trusted), request, subject, at_once).map(Some)
}

fn ask(
    ctx: &Rc<Loop>,
    client: Client,
    request: &Request<'_>,
    subject: &Subject<'_>,
    at_once: Option<u64>,
) -> Result<Rc<Pass>, Box<Routed>> {
    let pass = Rc::new(Pass::new(client));
    let subject = &subject.with(Some(&pass));
    let Some(gates) = &subject.settings.gates else { return Ok(pass) };
    let reply = match gates.ask(&Asker { ctx, request, pass: &pass, now: pass.asked, at_once }, 0) {
        (_, Verdict::Pass) => return Ok(pass),
        (_, Verdict::Refuse(refused)) => refuse(ctx, request, subject, refused),
        (number, Verdict::Wait(waiting)) => {
            let wait = Wait {
                ctx: Rc::clone(ctx),
                request: request.to_owned(),
                subject: subject.to_owned(),
                gates: Arc::clone(gates),
                pass: Rc::clone(&pass),
            };
            Reply::Exchange(Box::new(move |incoming| Box::pin(wait.at(number, waiting, incoming))))
        }
    };
    let (site, settings) = (subject.site, subject.settings);
    Err(Box::new(routed(site, settings, reply, false, Some(Rc::clone(&pass)))))
}

pub(crate) fn refuse(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    refused: Refused,
) -> Reply {
    if let Some(response) = refused.response {
        return Reply::Response(response);
    }
    file::error_reply(ctx, request, subject, refused.status, refused.fields)
}

/// A request that waits at a gate.
struct Wait {
    ctx: Rc<Loop>,
    request: OwnedRequest,
    subject: OwnedSubject,
    gates: Arc<Gates>,
    pass: Rc<Pass>,
}

impl Wait {
    /// Waits at the gate of that number, passes those behind it and has the handler answer.
    async fn at(mut self, number: usize, waiting: Waiting, incoming: Incoming) -> Response {
        self.pass.set_ends(incoming.ends);
        if let Err(refused) = self.all(number, waiting).await {
            let request = self.request.as_request();
            let reply = refuse(&self.ctx, &request, &self.subject(), refused);
            return file::into_response(&request, reply).await;
        }
        self.pass.set_passed(Instant::now());
        if self.subject.path.is_empty() {
            let mut path = Vec::new();
            // It was decoded when the answer that the cache had was kept.
            let _ = path::decode(&self.subject.raw_path, &mut path);
            self.subject.path = path.into();
        }
        let request = self.request.as_request();
        match handle(&self.ctx, &request, &self.subject()).reply {
            Reply::Exchange(begin) => begin(incoming).await,
            reply => file::into_response(&request, reply).await,
        }
    }

    fn subject(&self) -> Subject<'_> {
        self.subject.borrow().with(Some(&self.pass))
    }

    async fn all(&self, mut number: usize, mut waiting: Waiting) -> Result<(), Refused> {
        loop {
            waiting.await?;
            let Self { ctx, pass, .. } = self;
            let request = &self.request.as_request();
            let asker = Asker { ctx, request, pass, now: Instant::now(), at_once: None };
            match self.gates.ask(&asker, number + 1) {
                (_, Verdict::Pass) => return Ok(()),
                (_, Verdict::Refuse(refused)) => return Err(refused),
                (next, Verdict::Wait(longer)) => (number, waiting) = (next, longer),
            }
        }
    }
}

/// The one place where a route's settings choose the handler.
fn handle(ctx: &Rc<Loop>, request: &Request<'_>, subject: &Subject<'_>) -> Routed {
    let (site, settings) = (subject.site, subject.settings);
    let pass = || subject.pass.cloned();
    let method = request.method();
    if let Some(redirect) = &settings.redirect {
        let response = redirect::respond(request, subject, redirect);
        return routed(site, settings, response.into(), true, pass());
    }
    if let Some(fixed) = &settings.respond {
        return routed(site, settings, respond::respond(settings, fixed).into(), true, pass());
    }
    if let Some(status) = &settings.status {
        let reply = status::answer(ctx, request, status.rest(subject.path), subject.query);
        return routed(site, settings, reply, false, pass());
    }
    if let Some(rules) = &settings.script
        && !matches!(method, Method::Trace | Method::Connect)
    {
        let reply = script::answer(ctx, request, subject, rules);
        return routed(site, settings, reply, false, pass());
    }
    let reply = match method {
        Method::Get | Method::Head => file::answer(ctx, request, subject),
        Method::Options => options().into(),
        Method::Other => refusal(ctx, request, subject, 501),
        _ => refusal(ctx, request, subject, 405),
    };
    routed(site, settings, reply, false, pass())
}

fn routed(
    site: &Site,
    settings: &Settings,
    reply: Reply,
    reads_body: bool,
    pass: Option<Rc<Pass>>,
) -> Routed {
    Routed {
        reply,
        site: site.index,
        body_limit: settings.body_size,
        reads_body,
        log: settings.access_log,
        follow: Follow::of(settings),
        pass,
    }
}

fn unrouted(response: Response) -> Routed {
    Routed {
        reply: response.into(),
        site: 0,
        body_limit: 0,
        reads_body: false,
        log: true,
        follow: Follow::default(),
        pass: None,
    }
}

/// Bytes of a body that may come with early data; more of it is not accepted.
const EARLY_BODY: u64 = 16 * 1024;

const ALLOW: &str = "GET, HEAD, OPTIONS";

fn options() -> Response {
    let mut response = Response::new(204);
    response.fields.push("Allow", ALLOW);
    response
}

fn method_not_allowed() -> Response {
    let mut response = error_response(405, true);
    response.fields.push("Allow", ALLOW);
    response
}

fn misdirected() -> Response {
    error_response(421, true)
}

fn not_found(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    site: &Arc<Site>,
    settings: &Arc<Settings>,
    client: Client,
) -> Reply {
    let (raw_path, path, query) = (b"/", b"/", None);
    let subject = Subject { site, settings, raw_path, path, query, client, pass: None };
    refusal(ctx, request, &subject, 404)
}

/// An error of that status as the route wants it shown.
pub(crate) fn refusal(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    status: u16,
) -> Reply {
    let mut fields = FieldLines::default();
    if status == 405 {
        fields.push("Allow", ALLOW);
    }
    file::error_reply(ctx, request, subject, status, fields)
}

/// The answer to a message that the engine or the router refuses.
pub(crate) fn refusal_response(refusal: &Refusal, html: bool) -> Response {
    error_response(refusal.status, html)
}

/// The plain answer of an error status.
pub(crate) fn error_response(status: u16, html: bool) -> Response {
    let (media_type, body) = error_page::render(status, reason(status), html);
    let mut response = Response::with_text(status, media_type, body);
    response.fields.push("X-Content-Type-Options", "nosniff");
    response
}
