//! One loop: a thread with its own listeners, connections, buffers and cache front.
//!
//! What belongs to the thread is in [`Thread`]; what follows from the configuration is in [`Loop`], of
//! which there is a new one after each reload. Requests under way keep the `Loop` that they began
//! with, and connections take the current one before their next request.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};

use dunlin_http::http1::Limits;
use dunlin_http::{FieldName, Head, Request};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

use crate::cache::front::Front;
use crate::cache::{Resource, Store, Watch};
use crate::clock::{Clock, TICK};
use crate::config::{Config, Persistence, Server};
use crate::connections::{Connections, STATES};
use crate::control::Commands;
use crate::handler::file::Roots;
use crate::handler::script::{Known, Links, Pools};
use crate::listen::Gauge;
use crate::record::metrics::{Finished, Key, Label, LoopMetrics, Metrics, named};
use crate::record::redact::Redactor;
use crate::record::traces::Tracer;
use crate::record::watch::{Hub, Seen};
use crate::record::{AccessLog, Arrival, Exchange, LoopLog, Opening, ReverseDns, TimeCache, Track};
use crate::route::Quick;
use crate::tls::Certificates;
use crate::transport::{Peer, Transport};

/// What all loops share. Nothing here is locked on the way of a cached file.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
    /// Absent when notification is switched off or the kernel has none.
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) reverse_dns: Option<Arc<ReverseDns>>,
    /// Of the connection that was accepted last.
    pub(crate) serial: Arc<AtomicU64>,
    /// Where commands to the server go.
    pub(crate) commands: Commands,
    /// When the configuration was read.
    pub(crate) loaded: SystemTime,
    /// When the server was started.
    pub(crate) started: SystemTime,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether requests are counted.
    pub(crate) is_counting: bool,
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Who watches requests.
    pub(crate) hub: Arc<Hub>,
    pub(crate) redactor: Redactor,
}

/// What a loop's thread keeps whatever the configuration becomes.
pub(crate) struct Thread {
    number: usize,
    clock: Rc<Clock>,
    connections: Rc<Connections>,
    links: Rc<Links>,
    /// What it has counted, whatever the configuration was.
    metrics: OnceCell<Rc<LoopMetrics>>,
    buffers: Cell<Option<Box<Buffers>>>,
    current: RefCell<Option<Rc<Loop>>>,
    draining: Cell<bool>,
    /// Connections that wait for a request are closed.
    closes_idle: Cell<bool>,
    drain: Notify,
    ticker: Notify,
}

/// One loop's state by one configuration. Its connections and handlers reach everything through it.
pub(crate) struct Loop {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Rc<Clock>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) http1: Http1Settings,
    pub(crate) quick: Quick,
    pub(crate) front: RefCell<Front>,
    /// Connections to the hosts of applications.
    pub(crate) links: Rc<Links>,
    /// Scripts that were found lately.
    pub(crate) scripts: RefCell<Known>,
    pub(crate) metrics: Rc<LoopMetrics>,
    log: RefCell<Option<LoopLog>>,
    is_logging: bool,
    time: RefCell<TimeCache>,
    thread: Rc<Thread>,
    /// There is a newer one.
    superseded: Cell<bool>,
    /// Answers from the cache and others, since they were last added to the store's counters.
    hits: Cell<u64>,
    misses: Cell<u64>,
    /// Whether something else than a program or a file was asked for since the last tick, and whether
    /// anything but a program was in the tick before.
    others: Cell<bool>,
    had_others: Cell<bool>,
}

/// The settings of HTTP/1, in the units that the driver uses.
pub(crate) struct Http1Settings {
    pub(crate) personality: Persistence,
    pub(crate) limits: Limits,
    /// Milliseconds, as the other times.
    pub(crate) idle_timeout: u64,
    pub(crate) head_timeout: u64,
    pub(crate) body_timeout: u64,
    pub(crate) send_timeout: u64,
    /// Bytes a second.
    pub(crate) body_rate: u64,
    /// The most requests of one connection; 0 for no limit.
    pub(crate) requests: u64,
    pub(crate) server_field: bool,
}

/// Buffers that are lent to one connection at a time.
pub(crate) struct Buffers {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Vec<u8>,
    pub(crate) head: Head,
    pub(crate) path: Vec<u8>,
    /// The text that `head` is read beside, when that is not the input itself.
    pub(crate) text: Vec<u8>,
}

/// Where a request came from, for the log.
pub(crate) struct From<'a> {
    pub(crate) peer: Peer,
    /// The serial number of the connection.
    pub(crate) connection: u64,
    pub(crate) stream: &'a Transport,
}

/// How an exchange ended, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    pub(crate) cache: &'static str,
    pub(crate) coding: &'static str,
}

/// When a request is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// To those who watch, when it begins.
    Begin,
    End {
        is_logged: bool,
        is_watched: bool,
    },
}

const BUFFER: usize = 64 * 1024;

impl Default for Buffers {
    fn default() -> Self {
        Self {
            input: vec![0; BUFFER].into(),
            output: Vec::with_capacity(2 * BUFFER),
            head: Head::default(),
            path: Vec::with_capacity(1024),
            text: Vec::with_capacity(1024),
        }
    }
}

impl Shared {
    pub(crate) fn server_field(&self) -> bool {
        self.config.server.server_field
    }
}

impl Http1Settings {
    fn new(server: &Server) -> Self {
        let http1 = &server.http1;
        let millis = |time: Duration| time.as_millis() as u64;
        Self {
            personality: http1.connection,
            limits: Limits {
                head_size: http1.head_size,
                target_size: http1.target_size,
                fields: http1.fields,
            },
            idle_timeout: millis(http1.idle_timeout),
            head_timeout: millis(http1.head_timeout),
            body_timeout: millis(http1.body_timeout),
            send_timeout: millis(http1.send_timeout),
            body_rate: http1.body_rate,
            requests: http1.requests,
            server_field: server.server_field,
        }
    }
}

impl Thread {
    pub(crate) fn new(number: usize) -> Rc<Self> {
        Rc::new(Self {
            number,
            clock: Rc::new(Clock::new()),
            connections: Rc::default(),
            links: Rc::default(),
            metrics: OnceCell::new(),
            buffers: Cell::new(Some(Box::default())),
            current: RefCell::new(None),
            draining: Cell::new(false),
            closes_idle: Cell::new(false),
            drain: Notify::new(),
            ticker: Notify::new(),
        })
    }

    /// Goes by `shared` from now on.
    pub(crate) fn adopt(self: &Rc<Self>, shared: Arc<Shared>, log: Option<&Arc<AccessLog>>) {
        let ctx = Rc::new(Loop::new(self, shared, log));
        let Some(before) = self.current.replace(Some(Rc::clone(&ctx))) else { return };
        before.superseded.set(true);
        before.flush_log();
        before.sweep();
        ctx.front.borrow_mut().take_over(&before.front, |site| ctx.shared.config.sites.has(site));
        // Those that wait for a request let go of what was.
        self.connections.wake_idle();
    }

    /// What new connections go by; `None` before the first.
    pub(crate) fn current(&self) -> Option<Rc<Loop>> {
        self.current.borrow().clone()
    }

    /// Resolves when the loop is asked to stop.
    pub(crate) async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.draining.get() {
            notified.await;
        }
    }

    /// Stops accepting and lets answers under way finish. Connections that wait for a request are
    /// closed after `grace`, in which they are told of the end with the answer to one more.
    pub(crate) async fn drain(&self, grace: Duration) {
        self.draining.set(true);
        self.drain.notify_waiters();
        // Those who have connected by now are accepted first.
        tokio::time::sleep(Duration::from_millis(5)).await;
        if !grace.is_zero() {
            let began = Instant::now();
            while began.elapsed() < grace && self.connections.len() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        self.closes_idle.set(true);
        self.drain.notify_waiters();
        self.connections.wake_idle();
        while self.connections.len() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if let Some(ctx) = self.current.take() {
            ctx.flush_log();
            ctx.sweep();
        }
    }

    /// Keeps the time, ends what has waited too long and hands over log lines, for as long as
    /// there are connections; sleeps otherwise.
    pub(crate) async fn tick(self: Rc<Self>) {
        let mut ticks: u64 = 0;
        let mut expired = Vec::new();
        loop {
            if self.connections.len() == 0 {
                if let Some(ctx) = self.current() {
                    ctx.flush_log();
                    ctx.sweep();
                    ctx.metrics.show(&ctx.shared.metrics, [0; STATES]);
                }
                self.ticker.notified().await;
            }
            wake_until_tick(std::mem::take(&mut expired)).await;
            ticks += 1;
            self.clock.update();
            let look = self.connections.look(self.clock.now());
            expired = look.expired;
            let Some(ctx) = self.current() else { continue };
            ctx.metrics.show(&ctx.shared.metrics, look.counts);
            ctx.look_back();
            ctx.show_counts();
            ctx.shared.gauge.eviction.tell(self.number, look.idlest);
            if ticks.is_multiple_of(5) {
                ctx.flush_log();
            }
            if ticks.is_multiple_of(10) {
                if ctx.shared.roots.check() {
                    ctx.shared.store.clear();
                }
                ctx.sweep();
            }
        }
    }

    /// Closes idle connections when newcomers need room.
    pub(crate) async fn evict(self: Rc<Self>, gauge: Arc<Gauge>) {
        let eviction = &gauge.eviction;
        loop {
            for _ in 0..eviction.asked(self.number).await {
                // Who asked may not have known yet that this loop's idlest is gone.
                if eviction.has_idler_than(self.number) {
                    eviction.evict_one();
                    continue;
                }
                let (evicted, next) = self.connections.evict(1, self.clock.now());
                eviction.count(evicted);
                eviction.tell(self.number, next);
            }
        }
    }

    /// Follows changes on disk.
    pub(crate) async fn follow_changes(self: Rc<Self>, watch: Arc<Watch>) {
        // Each loop polls a duplicate. The runtime has no type for such descriptors of its own;
        // a pipe's receiving end is polled in the same way.
        let events = watch.duplicate().and_then(Receiver::from_file_unchecked);
        let events = match events {
            Ok(events) => events,
            Err(error) => {
                tracing::error!("changes on disk are not seen at once: {error}");
                return;
            }
        };
        while events.readable().await.is_ok() {
            let result = events.try_io(|| {
                if let Some(ctx) = self.current() {
                    ctx.look_for_changes();
                }
                // All has been read: the next change makes it ready again.
                Err::<(), _>(std::io::ErrorKind::WouldBlock.into())
            });
            debug_assert!(result.is_err());
        }
    }
}

/// How many connections are ended in a row, and how long others have their turn before the next.
const PORTION: usize = 32;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns at the next tick. Until then, wakes connections that have waited too long: a few at a time, so that
/// requests that arrive need not wait until thousands of them have ended. Who has no turn is found again.
async fn wake_until_tick(expired: Vec<Waker>) {
    let tick = tokio::time::Instant::now() + TICK;
    for portion in expired.chunks(PORTION) {
        portion.iter().for_each(Waker::wake_by_ref);
        tokio::time::sleep(PAUSE).await;
        if tokio::time::Instant::now() >= tick {
            return;
        }
    }
    tokio::time::sleep_until(tick).await;
}

impl Loop {
    fn new(thread: &Rc<Thread>, shared: Arc<Shared>, log: Option<&Arc<AccessLog>>) -> Self {
        let server = &shared.config.server;
        Self {
            clock: Rc::clone(&thread.clock),
            connections: Rc::clone(&thread.connections),
            http1: Http1Settings::new(server),
            quick: Quick::new(&shared),
            front: RefCell::new(Front::new(server.cache.entries)),
            links: Rc::clone(&thread.links),
            scripts: RefCell::default(),
            metrics: Rc::clone(thread.metrics.get_or_init(|| Rc::new(shared.metrics.of_loop()))),
            time: RefCell::new(TimeCache::new()),
            is_logging: log.is_some(),
            log: RefCell::new(log.map(AccessLog::loop_log)),
            thread: Rc::clone(thread),
            superseded: Cell::new(false),
            hits: Cell::new(0),
            misses: Cell::new(0),
            others: Cell::new(false),
            had_others: Cell::new(false),
            shared,
        }
    }

    /// What goes by a newer configuration, when there is one.
    #[inline]
    pub(crate) fn successor(&self) -> Option<Rc<Self>> {
        if !self.superseded.get() {
            return None;
        }
        self.thread.current()
    }

    /// The loop's buffers; to be given back within the same poll.
    pub(crate) fn take_buffers(&self) -> Box<Buffers> {
        self.thread.buffers.take().unwrap_or_default()
    }

    pub(crate) fn give_buffers(&self, mut buffers: Box<Buffers>) {
        buffers.output.clear();
        self.thread.buffers.set(Some(buffers));
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.shared.serial.fetch_add(1, Ordering::Relaxed) + 1
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.thread.draining.get()
    }

    /// Resolves when connections that wait for a request are to be closed.
    pub(crate) async fn closing(&self) {
        loop {
            let notified = self.thread.drain.notified();
            if self.closes_idle() {
                return;
            }
            notified.await;
        }
    }

    /// Whether connections that wait for a request are to be closed.
    pub(crate) fn closes_idle(&self) -> bool {
        self.thread.closes_idle.get()
    }

    /// Whether a copy of the resource should be kept that cannot change.
    pub(crate) fn is_worth_a_copy(&self, resource: &Resource) -> bool {
        resource.is_worth_a_copy(self.shared.store.largest_copy())
    }

    #[inline]
    pub(crate) fn count_hit(&self) {
        self.hits.set(self.hits.get() + 1);
    }

    pub(crate) fn count_miss(&self) {
        self.misses.set(self.misses.get() + 1);
    }

    /// Lets go of everything that is kept only to be fast and is not to be used any more.
    pub(crate) fn sweep(&self) {
        self.show_counts();
        self.front.borrow_mut().sweep();
    }

    /// Notes that something was asked for which is neither a file nor a program to be started.
    pub(crate) fn count_other(&self) {
        self.others.set(true);
    }

    /// Whether nothing was asked for lately, for one to two ticks, but programs to be started.
    pub(crate) fn has_programs_alone(&self) -> bool {
        !self.had_others.get() && !self.has_others()
    }

    fn has_others(&self) -> bool {
        self.others.get() || self.hits.get() > 0 || self.misses.get() > 0
    }

    /// A tick has gone by.
    fn look_back(&self) {
        self.had_others.set(self.has_others());
        self.others.set(false);
    }

    /// Adds what the cache did to the store's counters.
    fn show_counts(&self) {
        let counters = &self.shared.store.counters;
        counters.hits.fetch_add(self.hits.take(), Ordering::Relaxed);
        counters.misses.fetch_add(self.misses.take(), Ordering::Relaxed);
    }

    /// Lines of the access log that were lost since it was opened.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.log.borrow().as_ref().map_or(0, LoopLog::lost)
    }

    /// Whether anybody wants to know of requests.
    #[inline]
    pub(crate) fn is_tracking(&self) -> bool {
        self.shared.is_counting || self.is_telling()
    }

    /// Whether somebody wants to be told of each request, and not only how many there were.
    #[inline]
    pub(crate) fn is_telling(&self) -> bool {
        self.is_logging || self.shared.tracer.is_some() || self.shared.hub.is_watched()
    }

    /// Follows a request whose head has arrived, when anybody wants to know.
    #[inline]
    pub(crate) fn track(
        &self,
        request: &Request<'_>,
        arrival: Option<Arrival>,
        opening: &mut Option<Opening>,
    ) -> Option<Track> {
        if !self.is_tracking() {
            return None;
        }
        let mut track = Track::new(arrival, opening.take());
        if let Some(tracer) = &self.shared.tracer {
            track.span = tracer.begin(request);
        }
        Some(track)
    }

    /// Starts the clock again after it stood still for want of connections.
    pub(crate) fn wake_ticker(&self) {
        if self.connections.len() == 0 {
            self.clock.update();
            self.thread.ticker.notify_one();
        }
    }

    /// Reads notifications now rather than in their turn. The kernel reports descriptors in the
    /// order in which they became ready, so that a change is seen before a request that came
    /// after it; but a socket that became ready for another reason (it was accepted, it has room
    /// again) keeps its place when a request arrives later, and would overtake the change.
    pub(crate) fn look_for_changes(&self) {
        if let Some(watch) = &self.shared.watch
            && watch.read()
        {
            self.shared.store.clear();
        }
    }

    pub(crate) fn flush_log(&self) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.flush();
        }
    }

    /// A request was routed and is going to be answered: tells whoever wants to hear of that.
    #[inline]
    pub(crate) fn begin(&self, request: &Request<'_>, from: &From<'_>, track: &Track) {
        if self.shared.hub.is_told_of_beginnings() {
            let nothing = Served { status: 0, bytes: 0, cache: "-", coding: "-" };
            self.tell(request, from, track, &nothing, Instant::now(), Moment::Begin);
        }
    }

    /// Counts a request that was answered at once, for those who want to know no more of it.
    #[inline]
    pub(crate) fn count(
        &self,
        request: &Request<'_>,
        peer: Peer,
        kind: (Label, u16),
        arrival: Option<Arrival>,
        sent: u64,
    ) {
        if self.shared.is_counting {
            let duration = arrival.map_or(Duration::ZERO, |arrival| arrival.first_byte().elapsed());
            self.metrics.count(&finished(request, peer, kind, duration, sent));
        }
    }

    /// Takes the finished exchange: counts it, writes its log line, and tells whoever watches.
    #[inline]
    pub(crate) fn record(
        &self,
        request: &Request<'_>,
        from: &From<'_>,
        track: &Track,
        served: &Served,
    ) {
        let end = Instant::now();
        if self.shared.is_counting {
            let duration = end.saturating_duration_since(track.phases.first_byte);
            let kind = (track.follow.label, served.status);
            self.metrics.count(&finished(
                request,
                track.peer(from.peer),
                kind,
                duration,
                served.bytes,
            ));
        }
        let is_logged = track.is_logged && self.is_logging;
        let is_watched = self.shared.hub.is_watched();
        if is_logged || is_watched || track.span.is_some() {
            let moment = Moment::End { is_logged, is_watched };
            self.tell(request, from, track, served, end, moment);
        }
    }

    /// Writes its log line, and tells those who watch and who collect traces.
    fn tell(
        &self,
        request: &Request<'_>,
        from: &From<'_>,
        track: &Track,
        served: &Served,
        end: Instant,
        moment: Moment,
    ) {
        let Shared { reverse_dns, redactor, config, .. } = &*self.shared;
        let peer = track.peer(from.peer);
        let name = reverse_dns.as_ref().and_then(|dns| dns.name(peer.ip()?));
        let duration = end.saturating_duration_since(track.phases.first_byte);
        let began = self.clock.since_1970(track.phases.first_byte);
        let referer = request.field(FieldName::Referer).map(|referer| redactor.target(referer));
        let exchange = Exchange {
            peer,
            peer_name: name.as_deref(),
            user: track.pass.as_deref().and_then(|pass| pass.user()).map(str::as_bytes),
            started_secs: began.as_secs(),
            started_nanos: began.subsec_nanos(),
            duration_ns: duration.as_nanos() as u64,
            method: request.method_text(),
            target: &redactor.target(request.target()),
            version: request.version().as_str(),
            status: served.status,
            body_bytes: served.bytes,
            referer: referer.as_deref(),
            user_agent: request.field(FieldName::UserAgent),
            host: request.field(FieldName::Host),
            site: config.sites.name(track.site),
            cache: served.cache,
            coding: served.coding,
            connection: from.connection,
            times: track.times(end),
            tls: from.stream.tls(),
            course: track.course.as_deref(),
        };
        let begins = moment == Moment::Begin;
        let is_logged = matches!(moment, Moment::End { is_logged: true, .. });
        let is_watched = begins || matches!(moment, Moment::End { is_watched: true, .. });
        if is_logged && let Some(log) = &mut *self.log.borrow_mut() {
            log.record(&exchange);
        }
        if !is_watched && track.span.is_none() {
            return;
        }
        let (_, route) = named(track.follow.label);
        if is_watched {
            let seen = Seen { begins, exchange: &exchange, route: &route, request: Some(request) };
            self.shared.hub.tell(&seen, &mut self.time.borrow_mut());
        }
        if begins {
            return;
        }
        if let (Some(tracer), Some(span)) = (&self.shared.tracer, &track.span) {
            tracer.end(span, &exchange, &exchange.times, &route);
        }
    }
}

/// A request by its route and status, as it is counted.
#[inline]
fn finished(
    request: &Request<'_>,
    peer: Peer,
    (label, status): (Label, u16),
    duration: Duration,
    sent: u64,
) -> Finished {
    let (method, version) = (request.method(), request.version());
    Finished { key: Key { label, method, version, status }, peer, duration, sent }
}
