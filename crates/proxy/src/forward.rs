//! The way of a request to an upstream and back.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_client::Exchange;
use dunlin_config::{Proxy, UpstreamHost};
use dunlin_exchange::{Body, EarlyHints, Incoming, Named, Response, Stream, StreamKind, stream};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::{Method, status};
use dunlin_http::{BodySize, ChunkQueue, FieldLines, FieldName, ResponseHead, Version};
use dunlin_net::clock;
use dunlin_net::watchdog::Watchdog;

use crate::balance::Choice;
use crate::call::Call;
use crate::download::{Download, Running};
use crate::failure::{Failure, Kind};
use crate::idle::Reuse;
use crate::label::Label;
use crate::location::{self, Authorities};
use crate::proxy_header;
use crate::read_ahead::read_ahead;
use crate::references;
use crate::request;
use crate::response::{self, Fields};
use crate::stream_tunnel::StreamTunnel;
use crate::trailers::Trailers;
use crate::tunnel::Tunnel;
use crate::upgrade_request::UpgradeRequest;
use crate::upload::Upload;
use crate::upstream::Upstream;
use crate::upstream_permit::UpstreamPermit;

/// The number of times that a request is sent again to an upstream that has not processed it, the second time by a new
/// connection.
const MAX_REPEATS: u32 = 2;
/// A response with at most this much of a body is sent at once if it arrives at once.
const WHOLE: usize = 64 * 1024;
const NOT_TAKEN: &str = "it took nothing of the request within `idle_timeout`";

/// The response of an upstream.
pub struct Forwarded {
    /// The response. Its body has not arrived yet, or not all of it.
    pub response: Response,
    /// The resource of the server that is sent in its place, under its fields.
    pub named: Option<Named>,
}

/// Forwards a request and returns the response as soon as its head is there. Takes the body of the request. `label` names the
/// request in the error log.
///
/// # Errors
/// Why no upstream has responded. The failure was logged.
pub async fn forward(
    call: &Call<'_>,
    label: &Rc<dyn Label>,
    incoming: &mut Incoming,
) -> Result<Forwarded, Failure> {
    if request::is_in_loop(call) {
        return Err(Failure::new(Kind::Loop, "the request has come through this server before"));
    }
    let upgrade = UpgradeRequest::requested(call, incoming)?;
    let expects_continue = call.request.has(FieldName::Expect);
    let trailers = || Trailers::new(call.forwarded_field, call.user_fields);
    let upload = Upload::begin(incoming, expects_continue, call.group, trailers);
    let mut upload = Some(upload.await?);
    let group = call.group;
    if let Some(retry) = &group.rules.retry {
        group.retries.earn(retry.budget);
    }
    let key = call.key();
    let sticky = call.sticky_upstream();
    let mut tried = Vec::new();
    loop {
        let sticky_id = sticky.map(|upstream| upstream.id);
        let now = clock::now();
        let choice = Choice { tried: &tried, key: &key, sticky: sticky_id, now };
        let Some(upstream) = group.choose(choice) else {
            return Err(Failure::new(Kind::Configuration, "there is no upstream"));
        };
        let (upgrade, tried_before) = (upgrade.as_ref(), tried.len());
        let attempt = Attempt { call, label, incoming, upgrade, upstream, tried: tried_before };
        let failure = match attempt.run(&mut upload, now).await {
            Ok(mut forwarded) => {
                if let Some(cookie) = call.set_cookie(sticky, upstream) {
                    forwarded.response.fields.push("Set-Cookie", cookie);
                }
                return Ok(forwarded);
            }
            Err(failure) => failure,
        };
        tried.push(upstream.id);
        let is_retried = call.retries(&failure, upload.as_ref(), tried.len());
        if failure.is_of_upstream() {
            let status = failure.status();
            let result = match is_retried {
                true => "another upstream gets the request".to_owned(),
                false => format!("the response is {status}"),
            };
            let request = (&**label, &*incoming.script_context);
            upstream.report_failure(failure.reason(), &result, request);
            group.note_failure(upstream, clock::now());
        }
        if !is_retried {
            return Err(failure);
        }
        if let Some(upload) = &mut upload {
            dunlin_client::Body::restart(upload);
        }
        incoming.script_context.count_retry();
    }
}

/// An attempt to send the request to one upstream.
struct Attempt<'a> {
    call: &'a Call<'a>,
    /// Names the request in the error log.
    label: &'a Rc<dyn Label>,
    incoming: &'a Incoming,
    /// The protocol upgrade that the client requested.
    upgrade: Option<&'a UpgradeRequest<'a>>,
    upstream: &'a Arc<Upstream>,
    /// Upstreams that were tried before.
    tried: usize,
}

impl Attempt<'_> {
    /// Sends the request. `upload` is `None` afterwards if the body was consumed.
    async fn run(&self, upload: &mut Option<Upload>, now: Instant) -> Result<Forwarded, Failure> {
        let Self { call, incoming, upstream, .. } = self;
        let script_context = &incoming.script_context;
        script_context.set_upstream(&upstream.name);
        let (permit, chosen) = UpstreamPermit::wait(call.worker, call.group, upstream, now).await?;
        let origin = upstream.origin();
        let origin = origin.map_err(|reason| Failure::new(Kind::Configuration, reason))?;
        if let Some(upgrade) = self.upgrade.filter(|upgrade| upgrade.extended_connect().is_some()) {
            self.prepare_tunnel(upgrade, upload);
        }
        let request = request::request(call, incoming, upstream, origin, self.upgrade);
        upstream.counts.requests.fetch_add(1, Ordering::Relaxed);
        let preface = proxy_header::of(call, incoming);
        let is_idempotent = call.is_idempotent();
        let can_repeat = is_idempotent && upload.as_ref().is_some_and(Upload::can_restart);
        let mut reuse = if can_repeat { Reuse::Any } else { Reuse::Recent };
        let mut repeats = 0;
        loop {
            let size = upload.as_ref().map_or(BodySize::Empty, dunlin_client::Body::size);
            let connected = permit.connect(reuse, &request, size, &preface, chosen).await;
            let log_rejected = |failure: &Failure| {
                if failure.kind == Kind::Upgrade {
                    let request = (&**self.label, &**script_context);
                    upstream.log_rejected_response(failure, request);
                }
            };
            let (link, was_open) = connected.inspect_err(log_rejected)?;
            // An open connection of HTTP/1.1 takes no time.
            let is_at_once = was_open && !upstream.address.is_http2();
            let started = if is_at_once { chosen } else { clock::now() };
            script_context.start(chosen, started);
            let Some(body) = upload.take() else {
                return Err(Failure::new(Kind::Client, "the body of the request is gone"));
            };
            let exchange = link.send(&request, body);
            // Boxed, since each step of the way holds it, and the future of the request has room for all of them.
            let mut exchange = Box::new(exchange.map_err(|error| Failure::of_client(&error))?);
            let before = exchange.progress();
            let mut watchdog = Watchdog::new(&permit.worker.deadlines);
            let limits = self.limits(&permit.rules, can_repeat);
            let head = head(&mut exchange, &mut watchdog, limits, &incoming.early_hints).await;
            let failure = match head {
                Ok(head) => {
                    script_context.mark(&script_context.first_byte);
                    if head.status == 101 && !exchange.is_sent() {
                        send_rest(&mut exchange, &mut watchdog, limits.idle).await?;
                    }
                    self.note_response(head.status, started);
                    if self.call.retries_status(head.status, can_repeat, self.tried + 1) {
                        *upload = Some(exchange.into_body());
                        let what = format!("its response has the status {}", head.status);
                        return Err(Failure::new(Kind::Unwanted, what));
                    }
                    let script_context = Rc::clone(script_context);
                    let label = Rc::clone(self.label);
                    let running = Running { exchange, permit, watchdog, script_context, label };
                    return self.respond(head, running);
                }
                Err(failure) => failure,
            };
            // An unsent request was not processed.
            let is_unsent = !upstream.address.is_http2() && exchange.progress() == before;
            let body = upload.insert(exchange.into_body());
            // The upstream has closed the idle connection, or has not processed the request (RFC 9113 §8.7).
            let is_lost = was_open && failure.kind == Kind::Lost && (is_idempotent || is_unsent);
            let is_refused = failure.kind == Kind::Unprocessed && repeats < MAX_REPEATS;
            if !(is_lost || is_refused) || !dunlin_client::Body::restart(body) {
                return Err(failure);
            }
            if is_lost || repeats > 0 {
                reuse = Reuse::None;
            }
            repeats += 1;
        }
    }

    /// Connects the data stream of an extended CONNECT to the request, or to the tunnel that follows it.
    fn prepare_tunnel(&self, upgrade: &UpgradeRequest<'_>, upload: &mut Option<Upload>) {
        if !self.upstream.address.is_http2() {
            if self.tried > 0 && upload.as_ref().is_some_and(Upload::is_tunnel) {
                upgrade.take_back(upload);
            }
        } else if let Some(body) = upgrade.as_body() {
            *upload = Some(body);
        }
    }

    /// Returns `true` if the upstream gets an extended CONNECT.
    fn is_extended_connect(&self) -> bool {
        self.upstream.address.is_http2()
            && self.upgrade.is_some_and(|it| it.extended_connect().is_some())
    }

    /// Returns the limits of time for the head of the response.
    fn limits(&self, rules: &Proxy, can_repeat: bool) -> Limits {
        let retry = rules.retry.as_ref().filter(|retry| {
            let attempts = self.tried + 1;
            can_repeat
                && attempts < self.call.group.upstreams.len()
                && attempts <= retry.attempts as usize
        });
        let first_byte = retry.and_then(|retry| retry.timeout).or(rules.first_byte_timeout);
        Limits { first_byte, idle: rules.idle_timeout, is_tunnel: self.is_extended_connect() }
    }

    /// Notes that the upstream has responded.
    fn note_response(&self, status: u16, sent: Instant) {
        let group = self.call.group;
        if group.upstreams.len() == 1 {
            return group.note_success(self.upstream);
        }
        let now = clock::now();
        self.upstream.note_time(now.saturating_duration_since(sent));
        match status {
            502..=504 => group.note_failure(self.upstream, now),
            _ => group.note_success(self.upstream),
        }
    }

    /// Returns the body of a response of this length. As much of it as `buffer` allows is received before the client takes
    /// it.
    fn source(&self, download: Download, length: Option<u64>) -> stream::Receiver {
        let group = self.call.group;
        let limit = length.unwrap_or(u64::MAX).min(group.rules.buffer.response);
        let most_held = ChunkQueue::most_held(limit);
        let memory = if limit > 0 { group.memory.reserve(most_held) } else { None };
        match memory {
            Some(memory) => read_ahead(download, memory),
            None => stream::from_source(Box::new(download)),
        }
    }

    /// Maps references of the upstream to itself.
    fn adapt(&self, fields: &mut FieldLines) {
        let rules = self.call.group.rules();
        if location::concerns(fields, rules) {
            let named = match &rules.host {
                UpstreamHost::Named(field) => self.call.host_value(field),
                _ => None,
            };
            let authorities = Authorities {
                own: self.upstream.address.url().map(|url| url.authority().as_bytes()),
                sent: named.as_deref().map(str::as_bytes),
                client: self.call.request.field(FieldName::Host),
            };
            location::adapt(fields, rules, authorities);
        }
        if !rules.references.is_empty() {
            references::replace(fields, &rules.references, &self.call.facts());
        }
    }

    /// Returns the response with this head. Does not wait, so that the future of a request has no room for a response: the task
    /// that sends the response polls for the rest of the body.
    fn respond(&self, head: ResponseHead, running: Running) -> Result<Forwarded, Failure> {
        if let Some(upgrade) = self.upgrade {
            let request = (&**self.label, &*self.incoming.script_context);
            let log = |failure: &Failure| self.upstream.log_rejected_response(failure, request);
            upgrade.check(&head).inspect_err(log)?;
        }
        if head.status == 101 {
            let response = self.switch(&head, running)?;
            return Ok(Forwarded { response, named: None });
        }
        let upgrade = self.required_upgrade(&head);
        let passes_server = self.call.group.rules().passes_server_field;
        let server = passes_server.then(|| head.fields.get("Server").map(<[u8]>::to_vec)).flatten();
        let Fields { mut lines, length, has_date, mut named } = response::fields(head.fields);
        server.into_iter().for_each(|server| lines.push("Server", server));
        if named.len() > 1 {
            let reason = "its response has more than one X-Accel-Redirect or X-Sendfile field";
            return Err(Failure::new(Kind::Malformed, reason));
        }
        let mut response = Response { fields: lines, has_date, ..Response::new(head.status) };
        self.adapt(&mut response.fields);
        if !named.is_empty() {
            // What is sent is generated now.
            response.fields.remove("Date");
        }
        if let Some(upgrade) = upgrade {
            response.fields.push_parsed(b"Connection", b"Upgrade");
            response.fields.push_parsed(b"Upgrade", &upgrade);
        }
        if (200..300).contains(&head.status) && self.is_extended_connect() {
            let response = Self::open_tunnel(response, running)?;
            return Ok(Forwarded { response, named: None });
        }
        let response = self.with_body(response, length, running)?;
        Ok(Forwarded { response, named: named.pop() })
    }

    /// Returns the protocols that the upstream requires by status 426, which a client of HTTP/1.1 gets (RFC 9110 §15.5.22).
    fn required_upgrade(&self, head: &ResponseHead) -> Option<Vec<u8>> {
        let is_passed = head.status == 426 && self.call.request.version() == Version::Http11;
        head.fields.get("Upgrade").filter(|_| is_passed).map(<[u8]>::to_vec)
    }

    /// Returns the response with its body, of which the head states the length.
    fn with_body(
        &self,
        mut response: Response,
        length: Option<u64>,
        mut running: Running,
    ) -> Result<Response, Failure> {
        let cx = &mut Context::from_waker(Waker::noop());
        let is_head = self.call.request.method() == Method::Head;
        if is_head || !status::has_body(response.status) {
            if let Poll::Ready(None) = running.exchange.poll_data(cx) {
                running.end();
            }
            response.body = streamed(stream::empty(), length);
            return Ok(response);
        }
        let mut pieces = ChunkQueue::of_connection();
        match arrived(&mut running.exchange, &mut pieces, cx)? {
            Arrived::All => {
                let trailers = running.end();
                complete(&mut response, pieces, trailers);
            }
            Arrived::Part => {
                let download = Download::new(pieces, running);
                response.body = streamed(self.source(download, length), length);
            }
        }
        Ok(response)
    }

    /// Begins the tunnel of an extended CONNECT that an upstream of HTTP/2 has accepted.
    fn open_tunnel(mut response: Response, mut running: Running) -> Result<Response, Failure> {
        running.permit.become_tunnel()?;
        running.watchdog.reset();
        // For clients, it is a success (RFC 8441 §5).
        response.status = 101;
        let source = stream::from_source(Box::new(StreamTunnel::new(running)));
        let (length, kind) = (None, StreamKind::Endless);
        response.body = Body::streamed(Stream { source, length, kind });
        Ok(response)
    }

    /// Switches to the protocol that the upstream has accepted.
    fn switch(&self, head: &ResponseHead, running: Running) -> Result<Response, Failure> {
        let Some(upgrade) = self.upgrade else {
            let reason = "it has switched to another protocol without a request";
            return Err(Failure::new(Kind::Malformed, reason));
        };
        let Running { exchange, mut permit, mut watchdog, .. } = running;
        permit.become_tunnel()?;
        let upgraded = exchange.upgrade().map_err(|error| Failure::of_client(&error))?;
        let mut response = Response::new(head.status);
        response.fields = response::without_date(head.fields.clone());
        let client = upgrade.begin(&mut response, head);
        watchdog.reset();
        let source = stream::from_source(Box::new(Tunnel::new(upgraded, client, permit, watchdog)));
        let (length, kind) = (None, StreamKind::Endless);
        response.body = Body::streamed(Stream { source, length, kind });
        Ok(response)
    }
}

/// Limits of time for the head of a response.
#[derive(Clone, Copy)]
struct Limits {
    first_byte: Option<Duration>,
    idle: Option<Duration>,
    /// The response comes before the end of what the client sends.
    is_tunnel: bool,
}

/// Waits for the head of the final response, and passes interim responses on.
async fn head(
    exchange: &mut Exchange<Upload>,
    watchdog: &mut Watchdog,
    limits: Limits,
    hints: &EarlyHints,
) -> Result<ResponseHead, Failure> {
    let mut was_sent = false;
    poll_fn(|cx| {
        loop {
            match exchange.poll_head(cx) {
                Poll::Ready(Ok(head)) if head.is_interim() => pass_on(head, hints),
                Poll::Ready(Ok(head)) => return Poll::Ready(Ok(head)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failure::of_client(&error))),
                Poll::Pending => break,
            }
        }
        let is_sent = exchange.is_sent() || limits.is_tunnel;
        if is_sent != was_sent {
            watchdog.reset();
            was_sent = is_sent;
        }
        // Neither interim responses nor parts of a head are a response: they do not extend the time for it.
        let (limit, progress, kind, reason) = if is_sent {
            let reason = "no response within the time limit (`first_byte_timeout`)";
            (limits.first_byte, 0, Kind::ResponseTimeout, reason)
        } else if exchange.is_blocked() {
            (limits.idle, exchange.progress(), Kind::WriteTimeout, NOT_TAKEN)
        } else {
            // The client has not sent the rest of the body; it has a time limit of its own.
            return Poll::Pending;
        };
        let late = watchdog.poll(cx, limit, progress);
        late.map(|()| Err(Failure::new(kind, reason)))
    })
    .await
}

/// Sends the rest of a request after which the upstream switches to another protocol.
async fn send_rest(
    exchange: &mut Exchange<Upload>,
    watchdog: &mut Watchdog,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    watchdog.reset();
    poll_fn(|cx| {
        if let Poll::Ready(sent) = exchange.poll_sent(cx) {
            return Poll::Ready(sent.map_err(|error| Failure::of_client(&error)));
        }
        // The client has a time limit of its own.
        let limit = limit.filter(|_| exchange.is_blocked());
        let late = watchdog.poll(cx, limit, exchange.progress());
        late.map(|()| Err(Failure::new(Kind::WriteTimeout, NOT_TAKEN)))
    })
    .await
}

/// Passes an interim response on to the client. The server sends 100 itself when the body is read.
fn pass_on(head: ResponseHead, hints: &EarlyHints) {
    if head.status != 100 {
        hints.send_interim((head.status, response::without_date(head.fields)));
    }
}

/// The part of a body that has arrived with its head.
enum Arrived {
    All,
    Part,
}

/// Reads the body bytes received so far.
fn arrived(
    exchange: &mut Exchange<Upload>,
    pieces: &mut ChunkQueue,
    cx: &mut Context<'_>,
) -> Result<Arrived, Failure> {
    while !pieces.is_full(WHOLE) {
        match exchange.poll_data(cx) {
            Poll::Ready(Some(Ok(bytes))) => pieces.push(bytes),
            Poll::Ready(None) => return Ok(Arrived::All),
            Poll::Ready(Some(Err(error))) => return Err(Failure::of_client(&error)),
            Poll::Pending => return Ok(Arrived::Part),
        }
    }
    Ok(Arrived::Part)
}

/// Sets the complete body of the response.
fn complete(response: &mut Response, mut pieces: ChunkQueue, trailers: FieldLines) {
    if !trailers.is_empty() {
        let download = Box::new(Download::complete(pieces, trailers));
        response.body = streamed(stream::from_source(download), None);
        return;
    }
    while let Some(bytes) = pieces.pop() {
        response.body.push(Piece::Memory(bytes));
    }
}

fn streamed(source: stream::Receiver, length: Option<u64>) -> Body {
    Body::streamed(Stream { source, length, kind: StreamKind::Body })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that a function returns.
    fn future_size<F>(
        _: impl FnOnce(&'static Call<'static>, &'static Rc<dyn Label>, &'static mut Incoming) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// Each request copies the future to where it stays.
    #[test]
    fn the_future_of_a_request_is_small() {
        assert!(future_size(forward) <= 1536, "{}", future_size(forward));
    }
}
