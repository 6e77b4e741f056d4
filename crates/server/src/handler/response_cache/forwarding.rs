//! Requests that the store has no response for.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dunlin_config::ResponseCacheRules;
use dunlin_exchange::{Body, Incoming, Response, Stream, StreamKind, stream};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::date;
use dunlin_http::{BodyLength, FieldLines, FieldName, Method};
use dunlin_net::clock;
use dunlin_response_cache::flight::{Decision, Leader, Role};
use dunlin_response_cache::freshness::{Freshness, Received, Usability};
use dunlin_response_cache::invalidation::{is_successful, named_urls};
use dunlin_response_cache::key::{self, Key};
use dunlin_response_cache::memory::Found;
use dunlin_response_cache::request::RequestDirectives;
use dunlin_response_cache::respond::{is_not_modified, without_content};
use dunlin_response_cache::status::Forward;
use dunlin_response_cache::storable::{Requested, Rules};
use dunlin_response_cache::stored::{Stored, StoredHead, merged};
use dunlin_tls::ClientCertificate;

use super::fill::{FlightBody, fill};
use super::outcome::Outcome;
use super::presented::{AsForwarded, certificate};
use super::request_kind::{CONDITIONS, CONDITIONS_AND_CODINGS, SPECIAL, hides_codings};
use super::reuse::{from_flight, from_stored, reuse};
use super::shared::ResponseCache;
use super::{Reusable, without_own_fields};
use crate::handler::call::HandlerCall;
use crate::handler::origin::fetch;
use crate::handler::rewrite::RewrittenRequest;

/// The time for which a request waits for the response to another one before it goes upstream itself.
pub(super) const WAIT: Duration = Duration::from_secs(10);

/// A request that the store has no response for.
pub(super) struct Forwarding {
    pub(super) call: Rc<HandlerCall>,
    pub(super) cache: Arc<ResponseCache>,
    /// The verified certificate of the client.
    pub(super) certificate: Option<Rc<ClientCertificate>>,
    pub(super) key: Key,
    pub(super) is_query: bool,
    pub(super) rules: ResponseCacheRules,
    pub(super) directives: RequestDirectives,
    /// A stored response that needs a validation.
    pub(super) stored: Reusable,
    pub(super) why: Forward,
}

/// The first step of a request that is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStep {
    /// Its response may invalidate stored ones.
    Invalidate,
    /// The content is a part of the key, and is received first.
    Query,
    /// The store is looked into with the certificate of the client.
    LookUp,
    /// The response may be on disk.
    Restore,
    /// The stored response is sent, and validated in the background.
    RevalidateLater,
    /// The store has no response that may be used.
    Respond,
}

impl Forwarding {
    /// Responds, beginning with `first`.
    pub(super) async fn run(
        mut self: Box<Self>,
        first: FirstStep,
        incoming: Box<Incoming>,
    ) -> Response {
        self.certificate = certificate(&incoming);
        if self.call.matched.settings.proxy.is_some() {
            incoming.script_context.set_proxied();
        }
        match first {
            FirstStep::Invalidate => self.invalidate(incoming).await,
            FirstStep::Query => self.query(incoming).await,
            FirstStep::LookUp => self.look_up(incoming).await,
            FirstStep::Restore => self.restore(incoming).await,
            FirstStep::RevalidateLater => self.revalidate_later(incoming).await,
            FirstStep::Respond => self.respond(incoming).await,
        }
    }

    /// Responds as soon as the head of a response is there.
    pub(super) async fn respond(mut self: Box<Self>, incoming: Box<Incoming>) -> Response {
        let hash = self.cache.memory.hash(self.key.site, &self.key.url);
        let is_marked = self.cache.marks.has(hash, self.call.ctx.clock.now());
        let is_conditional = self.call.request().has_any(SPECIAL);
        // A body without a stated length, as HTTP/2 allows. It is not part of the key.
        let has_body = incoming.length != BodyLength::None && !self.is_query;
        if has_body || !self.wants_whole() || is_marked && is_conditional && self.stored.is_none() {
            return self.pass(incoming).await;
        }
        // A response to an earlier request is not as new as these demand.
        let demands_new = self.directives.no_cache || self.directives.max_age == Some(0);
        let mut joins = !is_marked && !demands_new;
        let mut variant = Vec::new();
        while joins {
            let reader = match self.cache.flights.join(&self.key, &variant) {
                Role::Leader(leader) => return self.lead(leader, incoming).await,
                Role::Waiter(reader) => reader,
            };
            let decision = poll_fn(|cx| reader.poll_decision(cx));
            match clock::timeout(WAIT, decision).await {
                Some(Decision::Rejoin) => {}
                None | Some(Decision::Forward) => joins = false,
                Some(Decision::Stored(stored)) => match self.usable(&stored.head) {
                    true => return self.reuse(&stored, Outcome::Collapsed(self.why)),
                    false => joins = false,
                },
                Some(Decision::Response(head, length)) => {
                    if self.is_selected_by(&head) {
                        if self.is_usable_now(&head.freshness) {
                            let request = self.call.request();
                            let response = from_flight(&request, &head, reader, length);
                            return Outcome::Collapsed(self.why).note(&self.cache, response);
                        }
                        joins = false;
                    } else {
                        // It waits for the response that it selects, if that is not the case already.
                        let selected = head.vary.variant(&self.presented());
                        joins = variant.is_empty() && selected.is_some();
                        variant = selected.unwrap_or_default();
                    }
                }
            }
        }
        let leader = self.cache.flights.lead(&self.key);
        self.fetch(leader, incoming).await
    }

    /// Goes upstream for all requests that wait, unless the response was stored since the store was looked into.
    async fn lead(&mut self, leader: Leader, incoming: Box<Incoming>) -> Response {
        let found = self.cache.find(
            (self.key.site, &self.key.url),
            &self.presented(),
            self.cache.is_sampled(),
        );
        if let Found::Response(stored) = found {
            if self.is_usable_now(&stored.head.freshness) {
                leader.resolve(Arc::clone(&stored));
                return self.reuse(&stored, Outcome::Hit);
            }
            self.stored = Some(stored);
        }
        self.fetch(leader, incoming).await
    }

    /// Forwards a request for the whole response, which is stored if it may be.
    pub(super) async fn fetch(&self, leader: Leader, incoming: Box<Incoming>) -> Response {
        let request = self.call.request();
        // The content of a QUERY cannot be sent with other fields.
        let validated = self.stored.as_ref().filter(|_| !self.is_query);
        let conditions = validated.map_or(FieldLines::NONE, |stored| stored.head.conditions());
        let hides_codings = hides_codings(&request, &self.call.matched.settings);
        let is_whole = conditions.is_empty() && !request.has_any(SPECIAL);
        let validation = if is_whole && !hides_codings {
            Rc::clone(&self.call)
        } else {
            let limits = &self.call.ctx.http1.limits;
            let target = request.target();
            let left_out: &[&str] =
                if hides_codings { &CONDITIONS_AND_CODINGS } else { &CONDITIONS };
            let Some(made) =
                RewrittenRequest::with_fields(&request, target, left_out, &conditions, limits)
            else {
                drop(leader);
                return self.pass(incoming).await;
            };
            self.call.with_request(&made.as_request())
        };
        let again = validated.is_some().then(|| incoming.without_body());
        let began = clock::monotonic_millis();
        let response = fetch(validation, incoming).await;
        if let (true, 304, Some(again)) = (response.is_named, response.status, again) {
            // It confirms the resource that was named, which is not what is stored.
            leader.decline();
            self.cache.remove(&self.key);
            return self.pass(again).await;
        }
        let date = response.fields.get("Date").and_then(date::parse);
        let at = clock::monotonic_millis();
        let unix = clock::since_1970().as_secs();
        let delay = at.saturating_sub(began);
        // The age is computed by the clock of the worker, which may be late by a tick.
        let at = at.saturating_sub(clock::TICK.as_millis() as u64);
        let received = Received { date, unix, at, delay };
        if let Some(stored) = &self.stored {
            if response.status == 304 {
                return self.validated(leader, stored, &response, received);
            }
            let is_error = matches!(response.status, 500 | 502 | 503 | 504);
            if is_error && stored.head.freshness.is_usable_after_error(at) {
                leader.resolve(Arc::clone(stored));
                return self.reuse(stored, Outcome::InsteadOf(response.status));
            }
        }
        self.received(leader, response, received)
    }

    /// Forwards the request unchanged; a successful response invalidates stored responses (RFC 9111 §4.4).
    pub(super) async fn invalidate(self: Box<Self>, incoming: Box<Incoming>) -> Response {
        let response = fetch(Rc::clone(&self.call), incoming).await;
        if is_successful(response.status) {
            let call = &self.call;
            for site in call.ctx.shared.sites.serials(&call.matched.site) {
                self.cache.invalidate(&Key { site, url: self.key.url.clone() });
                for url in named_urls(&self.key.url, &response.fields) {
                    self.cache.invalidate(&Key { site, url: url[..].into() });
                }
            }
        }
        Outcome::Bypass(self.why).note(&self.cache, without_own_fields(response))
    }

    /// Forwards the request unchanged.
    pub(super) async fn pass(&self, incoming: Box<Incoming>) -> Response {
        let response = fetch(Rc::clone(&self.call), incoming).await;
        let detail = match self.call.request() {
            request if request.method() == Method::Head => "method",
            request if request.has(FieldName::Range) => "partial",
            request if !request.has_any(SPECIAL) => "body",
            _ => "conditional",
        };
        Outcome::Miss(self.why, Err(detail)).note(&self.cache, without_own_fields(response))
    }

    /// Returns `true` if the whole response can satisfy the request: a range in the middle may be a small part of it.
    fn wants_whole(&self) -> bool {
        let request = self.call.request();
        let is_from_start = |range: &[u8]| range.starts_with(b"bytes=0-");
        (request.method() == Method::Get || self.is_query)
            && !request.has(FieldName::IfRange)
            && request.field(FieldName::Range).is_none_or(is_from_start)
    }

    /// Returns the response with a 304 of the origin: the stored one with new fields (RFC 9111 §4.3.4).
    fn validated(
        &self,
        leader: Leader,
        stored: &Arc<Stored>,
        response: &Response,
        received: Received,
    ) -> Response {
        let fields = self.storable_fields(&response.fields);
        let presented = self.presented();
        match stored.head.updated(self.requested(&presented), &presented, &fields, received) {
            Ok(head) => {
                let updated = Arc::new(Stored { head, body: stored.body.clone() });
                let changing = self.cache.changing();
                if !leader.is_invalidated() {
                    self.cache.update(&self.key, stored, &updated);
                }
                drop(changing);
                leader.resolve(Arc::clone(&updated));
                self.reuse(&updated, Outcome::Revalidated)
            }
            Err(detail) => {
                leader.decline();
                self.cache.remove(&self.key);
                let request = self.call.request();
                let mut response =
                    from_stored(&self.call.ctx, &request, &self.call.matched.settings, stored);
                response.fields = merged(&response.fields, &fields);
                Outcome::Miss(self.why, Err(detail)).note(&self.cache, without_own_fields(response))
            }
        }
    }

    /// Returns the response with one of the origin, which is stored if it may be.
    fn received(&self, leader: Leader, response: Response, received: Received) -> Response {
        let head = match self.storable(&response, received) {
            Ok(head) => head,
            Err(detail) => {
                leader.decline();
                self.mark();
                // What is stored is not the current response.
                if self.stored.is_some() && response.status < 500 {
                    self.cache.remove(&self.key);
                }
                return Outcome::Miss(self.why, Err(detail))
                    .note(&self.cache, without_own_fields(response));
            }
        };
        if head.freshness.usability(&RequestDirectives::default(), received.at)
            == Usability::Validate
        {
            // Requests that wait could not use it.
            self.mark();
        }
        let response = self.keep(leader, head, response);
        Outcome::Miss(self.why, Ok(())).note(&self.cache, without_own_fields(response))
    }

    /// Stores the body of a response.
    fn keep(&self, leader: Leader, head: StoredHead, mut response: Response) -> Response {
        let request = self.call.request();
        let not_modified = matches!(head.status, 200..=299) && is_not_modified(&request, &head);
        let max = self.rules.response_size;
        let Some(stream) = response.body.take_stream() else {
            let (mut writer, _) = leader.begin(head, Some(response.body.length()), max);
            let mut body = std::mem::take(&mut response.body);
            while let Some(Piece::Memory(bytes)) = body.first_mut() {
                writer.push(bytes.clone());
                response.body.push(Piece::Memory(bytes.clone()));
                body.drop_first();
            }
            if request.has_any(SPECIAL)
                && let Some(stored) = self.cache.store_end(&self.key, &mut writer)
            {
                return from_stored(&self.call.ctx, &request, &self.call.matched.settings, &stored);
            }
            self.cache.store_end(&self.key, &mut writer);
            return response;
        };
        let Stream { source, length, .. } = *stream;
        let (writer, reader) = leader.begin(head, length, max);
        tokio::task::spawn_local(fill(Arc::clone(&self.cache), self.key.clone(), source, writer));
        if not_modified {
            response.status = 304;
            response.fields = without_content(&response.fields);
            return response;
        }
        let source = stream::from_source(Box::new(FlightBody(reader)));
        response.body = Body::streamed(Stream { source, length, kind: StreamKind::Body });
        response
    }

    /// Returns the head of a response if it may be stored; otherwise why not.
    fn storable(
        &self,
        response: &Response,
        received: Received,
    ) -> Result<StoredHead, &'static str> {
        // A file has a cache of its own, and a resource is named for one request.
        if response.cache != "-" || response.is_named || response.upgrade.is_some() {
            return Err("not-generated");
        }
        let proxy_status = response.fields.get("Proxy-Status").unwrap_or_default();
        if response.is_error || proxy_status.starts_with(b"dunlin; error=") {
            return Err("error");
        }
        if response.body.stream_kind().is_some_and(|kind| kind != StreamKind::Body) {
            return Err("endless");
        }
        let fields = self.storable_fields(&response.fields);
        let rules = Rules {
            set_cookie: self.rules.set_cookie,
            is_heuristic: self.rules.is_heuristic,
            lifetime: self.rules.lifetime(response.status),
            max_body: self.rules.response_size,
        };
        let (presented, head) = (self.presented(), (response.status, &fields));
        let requested = self.requested(&presented);
        let head = StoredHead::new(requested, &presented, head, received, &rules)?;
        let length = response.body.known_length();
        if length.is_some_and(|length| length > self.rules.response_size) {
            return Err("too-large");
        }
        Ok(head)
    }

    /// Returns the fields of a response without those that the server has added for one request.
    fn storable_fields(&self, fields: &FieldLines) -> FieldLines {
        let settings = &self.call.matched.settings;
        let mut fields = fields.clone();
        if settings.server_timing {
            fields.remove("Server-Timing");
        }
        if settings.handler.script().is_some_and(|script| script.send_request_id) {
            fields.remove("X-Request-Id");
        }
        fields
    }

    /// Returns the request as the origin gets it.
    pub(super) fn presented(&self) -> AsForwarded<'_> {
        let request = (self.call.request(), &self.call.matched());
        AsForwarded::new(
            &self.call.ctx,
            request,
            self.certificate.as_deref(),
            key::path(&self.key.url),
        )
    }

    fn requested(&self, presented: &AsForwarded<'_>) -> Requested {
        Requested {
            method: if self.is_query { Method::Get } else { self.call.request().method() },
            is_authenticated: presented.is_authenticated(),
            no_store: self.directives.no_store,
        }
    }

    pub(super) fn reuse(&self, stored: &Stored, outcome: Outcome) -> Response {
        let request = self.call.request();
        reuse(&self.call.ctx, &self.cache, &request, &self.call.matched.settings, stored, outcome)
    }

    /// Returns `true` if the request may have a response that another one has validated.
    fn usable(&self, head: &StoredHead) -> bool {
        let now = clock::monotonic_millis();
        self.is_selected_by(head)
            && (self.is_usable_now(&head.freshness) || head.freshness.is_usable_after_error(now))
    }

    /// Returns `true` if the request selects the response.
    fn is_selected_by(&self, head: &StoredHead) -> bool {
        head.vary.matches(&self.presented())
    }

    fn is_usable_now(&self, freshness: &Freshness) -> bool {
        let usability = freshness.usability(&self.directives, clock::monotonic_millis());
        usability != Usability::Validate
    }

    /// Further requests for the URL do not wait for each other.
    fn mark(&self) {
        let hash = self.cache.memory.hash(self.key.site, &self.key.url);
        self.cache.marks.set(hash, clock::monotonic_millis());
    }
}
