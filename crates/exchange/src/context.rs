//! The context of one request, from its first byte to its access record.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_config::PendingField;
use dunlin_http::FieldLines;
use dunlin_limits::bandwidth::{ConnectionPace, Pacer, Sender};
use dunlin_limits::concurrency::Permit;
use dunlin_net::address::SocketAddresses;
use dunlin_net::clock;
use dunlin_telemetry::traces::Span;
use dunlin_telemetry::{ConnectionStart, ReadTimes, RouteTelemetry, ScriptContext, Timings, nanos};

use super::Client;
use super::computed::{ComputedFields, ResponseFacts};

/// The scheme by which a user was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Basic authentication (RFC 7617).
    Basic,
    /// By another service, with any scheme.
    Forward,
    /// With a token (RFC 6750).
    Bearer,
}

/// The context of one request: what the server knows about it and has granted to it. The exchange owns it; dropping it
/// returns the permits, for whatever reason the exchange ends.
#[derive(Debug)]
pub struct RequestContext {
    /// The client, resolved through trusted proxies.
    pub client: Client,
    /// When routing was done and the first check ran.
    pub routed_at: Instant,
    /// `routed_at` is the end of a phase of its own.
    measures_routing: bool,
    /// Start of the connection, for its first request.
    connection_start: Cell<Option<ConnectionStart>>,
    read_times: Cell<ReadTimes>,
    admitted_at: Cell<Option<Instant>>,
    /// When the first byte of the response was written.
    response_at: Cell<Option<Instant>>,
    /// Index of the site.
    site: Cell<usize>,
    /// Bytes of the response body before its content coding; `None` if the exchange has coded none.
    plain_bytes: Cell<Option<u64>>,
    /// Field lines of the response, if the access log needs them.
    response_lines: RefCell<Box<[u8]>>,
    route: Cell<RouteTelemetry>,
    /// Span of a traced request.
    span: OnceCell<Box<Span>>,
    /// Context of the script, if one runs.
    script: OnceCell<Rc<ScriptContext>>,
    user: OnceCell<(Arc<str>, Scheme)>,
    /// Remote and local address of the connection; set for requests that wait.
    ends: OnceCell<Option<SocketAddresses>>,
    /// Response fields that checks add to the handler's.
    fields: RefCell<FieldLines>,
    computed: ComputedFields,
    /// Response fields that replace the handler's of their names; those without a value remove them.
    replacing: RefCell<FieldLines>,
    /// Responses depend on the field `Origin` of requests.
    varies_by_origin: Cell<bool>,
    /// Request fields in which authentication has what handlers get.
    request_fields: RefCell<FieldLines>,
    /// Permit of the concurrency limit.
    permit: OnceCell<Permit>,
    /// Share of the bandwidth limit; `None` when the response was sent without pacing.
    sender: OnceCell<Option<Sender>>,
}

impl RequestContext {
    /// Creates the context of a request that is routed now.
    #[inline]
    pub fn new(client: Client) -> Self {
        Self { measures_routing: true, ..Self::unmeasured(client, clock::now()) }
    }

    /// Creates the context of a request whose routing is not measured.
    #[inline]
    pub fn unmeasured(client: Client, now: Instant) -> Self {
        Self {
            client,
            routed_at: now,
            measures_routing: false,
            connection_start: Cell::new(None),
            read_times: Cell::new(ReadTimes::at(now)),
            admitted_at: Cell::new(None),
            response_at: Cell::new(None),
            site: Cell::new(0),
            plain_bytes: Cell::new(None),
            response_lines: RefCell::default(),
            route: Cell::default(),
            span: OnceCell::new(),
            script: OnceCell::new(),
            user: OnceCell::new(),
            ends: OnceCell::new(),
            fields: RefCell::default(),
            computed: ComputedFields::default(),
            replacing: RefCell::default(),
            varies_by_origin: Cell::new(false),
            request_fields: RefCell::default(),
            permit: OnceCell::new(),
            sender: OnceCell::new(),
        }
    }

    /// Sets when the request and its connection have begun.
    #[inline]
    pub fn set_times(&self, read_times: ReadTimes, connection_start: Option<ConnectionStart>) {
        self.read_times.set(read_times);
        self.connection_start.set(connection_start);
    }

    /// Sets the span of a traced request.
    #[inline]
    pub fn set_span(&self, span: Box<Span>) {
        // A request has one span.
        let _ = self.span.set(span);
    }

    /// Returns the span of a traced request.
    #[inline]
    pub fn span(&self) -> Option<&Span> {
        self.span.get().map(|span| &**span)
    }

    /// Sets the site and the telemetry settings of the route.
    #[inline]
    pub fn set_route(&self, site: usize, route: RouteTelemetry) {
        self.site.set(site);
        self.route.set(route);
    }

    /// Index of the site.
    #[inline]
    pub fn site(&self) -> usize {
        self.site.get()
    }

    /// Adds bytes of the response body to those before its content coding.
    pub fn add_plain_bytes(&self, bytes: u64) {
        self.plain_bytes.set(Some(self.plain_bytes.get().unwrap_or(0) + bytes));
    }

    /// Returns the bytes of the response body before its content coding, if the exchange has coded it.
    pub fn plain_bytes(&self) -> Option<u64> {
        self.plain_bytes.get()
    }

    /// Keeps the field lines of the response for its record.
    pub fn keep_response_lines(&self, lines: &[u8]) {
        self.response_lines.replace(lines.into());
    }

    /// Returns the field lines of the response, if they were kept.
    pub fn response_lines(&self) -> Ref<'_, [u8]> {
        Ref::map(self.response_lines.borrow(), |lines| &**lines)
    }

    /// Telemetry settings of the route.
    #[inline]
    pub fn route(&self) -> RouteTelemetry {
        self.route.get()
    }

    /// Sets the context of the script that runs.
    #[inline]
    pub fn set_script(&self, script: Rc<ScriptContext>) {
        // Internal redirects to other scripts keep the context.
        let _ = self.script.set(script);
    }

    /// Returns the context of the script, if one runs.
    #[inline]
    pub fn script(&self) -> Option<&ScriptContext> {
        self.script.get().map(|script| &**script)
    }

    /// Returns when the first byte of the request was read.
    #[inline]
    pub fn first_byte(&self) -> Instant {
        self.read_times.get().first_byte()
    }

    /// Returns the value of `traceparent` for handlers, if the request is traced.
    pub fn traceparent(&self) -> Option<Box<str>> {
        self.span().map(|span| span.traceparent().into())
    }

    /// Sets the time of the first byte of the response.
    #[inline]
    pub fn begin_response(&self) {
        self.response_at.set(Some(clock::now()));
    }

    /// Starts the response: appends the fields of the checks and `Server-Timing`.
    #[inline]
    pub fn append_fields(&self, fields: &mut FieldLines, facts: &ResponseFacts<'_>) {
        self.begin_response();
        self.computed.apply(self, facts, fields);
        let replacing = self.replacing.borrow();
        if !replacing.is_empty() {
            fields.retain(|name, _| !has(&replacing, name));
            for (name, value) in replacing.iter().filter(|(_, value)| !value.is_empty()) {
                fields.push_parsed(name, value);
            }
        }
        if self.varies_by_origin.get() && !varies_by(fields, b"origin") {
            fields.push("Vary", "Origin");
        }
        fields.extend(&self.fields.borrow());
        if self.route().server_timing {
            fields.push("Server-Timing", self.server_timing());
        }
    }

    /// Returns the phases so far as a value of `Server-Timing`, in milliseconds.
    fn server_timing(&self) -> String {
        // The duration of sending is unknown when the head is written.
        let timings = Timings { send: None, ..self.timings(clock::now()) };
        let phases = timings
            .iter()
            .map(|(name, micros)| format!("{name};dur={:.3}", micros as f64 / 1000.0));
        phases.collect::<Vec<_>>().join(", ")
    }

    /// Returns the durations of all phases. The last one ends at `end`.
    #[inline]
    pub fn timings(&self, end: Instant) -> Timings {
        let (read_times, start) = (self.read_times.get(), self.connection_start.get());
        let (first_byte, head) = (read_times.first_byte(), read_times.last_read());
        let routed = self.measures_routing.then_some(self.routed_at);
        let admitted = self.admitted_at();
        let response_at = self.response_at.get().unwrap_or(end);
        Timings {
            tls: start.and_then(|start| Some(nanos(start.accepted, start.secured?))),
            idle: start.map(|start| nanos(start.secured.unwrap_or(start.accepted), first_byte)),
            head: nanos(first_byte, head),
            route: routed.map(|routed| nanos(head, routed)),
            checks: admitted.map(|admitted| nanos(routed.unwrap_or(head), admitted)),
            handler: Some(nanos(admitted.or(routed).unwrap_or(head), response_at)),
            send: Some(nanos(response_at, end)),
        }
    }

    /// Returns the authenticated user.
    #[inline]
    pub fn user(&self) -> Option<&str> {
        self.user.get().map(|(user, _)| &**user)
    }

    /// Returns how the user was authenticated.
    #[inline]
    pub fn scheme(&self) -> Option<Scheme> {
        self.user.get().map(|(_, scheme)| *scheme)
    }

    /// Sets the authenticated user. The first call wins.
    pub fn set_user(&self, user: impl Into<Arc<str>>, scheme: Scheme) {
        // A second authentication check does not replace the user.
        let _ = self.user.set((user.into(), scheme));
    }

    /// Returns when the request was admitted, if it had to wait.
    #[inline]
    pub fn admitted_at(&self) -> Option<Instant> {
        self.admitted_at.get()
    }

    /// Sets when the request was admitted, after it had to wait.
    #[inline]
    pub fn set_admitted_at(&self, now: Instant) {
        self.admitted_at.set(Some(now));
    }

    /// Returns the remote and local address of the connection; `None` when they are unknown.
    #[inline]
    pub fn ends(&self) -> Option<SocketAddresses> {
        self.ends.get().copied().flatten()
    }

    /// Sets the remote and local address of the connection.
    #[inline]
    pub fn set_ends(&self, ends: Option<SocketAddresses>) {
        // The addresses do not change during a request.
        let _ = self.ends.set(ends);
    }

    /// Adds a response field.
    pub fn add_field(&self, name: &str, value: impl AsRef<[u8]>) {
        self.fields.borrow_mut().push(name, value);
    }

    /// Adds a response field, unless the same one was added: a check may run for several paths of a request.
    pub fn add_field_once(&self, name: &str, value: &[u8]) {
        let mut fields = self.fields.borrow_mut();
        let is_it = |(other, known): (&[u8], &[u8])| {
            other.eq_ignore_ascii_case(name.as_bytes()) && known == value
        };
        if !fields.iter().any(is_it) {
            fields.push(name, value);
        }
    }

    /// Sets a response field, in place of one that the handler has set; an empty value removes that one. The first call of a name
    /// wins.
    pub fn replace_field(&self, name: &str, value: impl AsRef<[u8]>) {
        let mut replacing = self.replacing.borrow_mut();
        if !has(&replacing, name.as_bytes()) {
            replacing.push(name, value);
        }
    }

    /// Sets the response fields of the route whose values depend on the request or the response, in place of those of the handler.
    pub fn set_computed_fields(&self, fields: Vec<PendingField>) {
        self.computed.replace(fields);
    }

    /// Returns `true` if a response field names the body of the request.
    #[inline]
    pub fn names_body(&self) -> bool {
        self.computed.name_body()
    }

    /// Keeps a part of the body of the request for fields that name it.
    pub(crate) fn add_body(&self, data: &[u8]) {
        self.computed.add_body(data);
    }

    /// Returns `true` if a response field names an address of the connection.
    #[inline]
    pub fn names_addresses(&self) -> bool {
        self.computed.name_addresses()
    }

    /// Has the response state that it depends on the field `Origin` of requests.
    pub fn vary_by_origin(&self) {
        self.varies_by_origin.set(true);
    }

    /// Sets a field of the request that handlers get. The first call of a name wins, as for the user.
    pub fn set_request_field(&self, name: &str, value: impl AsRef<[u8]>) {
        let mut fields = self.request_fields.borrow_mut();
        if !has(&fields, name.as_bytes()) {
            fields.push(name, value);
        }
    }

    /// Returns the fields of the request that authentication has set.
    pub fn request_fields(&self) -> Ref<'_, FieldLines> {
        self.request_fields.borrow()
    }

    /// Returns `true` if handlers learn who the client is.
    pub fn names_client(&self) -> bool {
        self.user().is_some() || !self.request_fields.borrow().is_empty()
    }

    /// Returns `true` if checks have added or replaced response fields.
    #[inline]
    pub fn has_fields(&self) -> bool {
        !self.fields.borrow().is_empty()
            || !self.computed.is_empty()
            || !self.replacing.borrow().is_empty()
            || self.varies_by_origin.get()
    }

    /// Returns `true` if the response has fields that depend on this request.
    #[inline]
    pub fn changes_response(&self) -> bool {
        self.route().server_timing || self.has_fields()
    }

    /// Sets the bandwidth share that paces the response; `None` when it is sent without pacing.
    #[inline]
    pub fn throttle(&self, sender: Option<Sender>) {
        // A route has one throttle.
        let _ = self.sender.set(sender);
    }

    /// Returns `true` if the bandwidth limit has decided about this request.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.sender.get().is_some()
    }

    /// Returns the pacer of the response body. `None` if the route has no bandwidth limit, or if the limit allows to
    /// send all `short` bytes of a body that is in memory now.
    #[inline]
    pub fn pacer(
        &self,
        connection: &mut Option<ConnectionPace>,
        short: Option<usize>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Pacer> {
        let sender = self.sender.get()?.as_ref()?;
        sender.pacer(connection.get_or_insert_default(), short.map(|bytes| (bytes, now())))
    }

    /// Holds the permit until the exchange ends.
    #[inline]
    pub fn hold_permit(&self, permit: Permit) {
        // A route has one throttle.
        let _ = self.permit.set(permit);
    }
}

/// Returns `true` if there is a field of that name.
fn has(fields: &FieldLines, name: &[u8]) -> bool {
    fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
}

/// Returns `true` if `Vary` lists the name.
fn varies_by(fields: &FieldLines, name: &[u8]) -> bool {
    let lines = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(b"vary"));
    let mut members = lines.flat_map(|(_, value)| value.split(|&byte| byte == b','));
    members.any(|member| {
        let member = member.trim_ascii();
        member == b"*" || member.eq_ignore_ascii_case(name)
    })
}
