//! The status of the server: a page, the report as JSON, metrics for Prometheus, and the live view of requests.

mod collect;
mod sample;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_http::semantics::Method;
use dunlin_http::{FieldName, Request};
use percent_encoding::percent_decode;

use dunlin_config::field_edits::apply_to_message;
use dunlin_config::{Status, StatusFleet};
use dunlin_exchange::{Body, Response, Stream, StreamKind, stream};
use dunlin_net::connections::Waiting;
use dunlin_status::page::{CONTENT_SECURITY_POLICY, View, html};
use dunlin_status::{Form, Latest, Requests};
use dunlin_telemetry::live::{Filter, Level, Subscription};

pub(crate) use self::sample::sample;
use crate::handler::rejection::error_response;
use crate::route::reply::Reply;
use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// Responds with the resource whose name the pattern's `*` matches.
pub(crate) fn respond(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    status: &Status,
) -> Reply {
    if status.is_stub && matches!(request.method(), Method::Get | Method::Head) {
        let mut response = stub(ctx);
        apply_to_message(matched.settings, response.status, &mut response.fields);
        return finish(response, request.method() == Method::Head);
    }
    let name = status.rest(matched.path);
    let fleet = status.fleet.as_ref();
    let mut reply = page(ctx, request, name, matched.query, fleet);
    if let Reply::Response(response) = &mut reply {
        apply_to_message(matched.settings, response.status, &mut response.fields);
    }
    reply
}

/// Returns the resource `name`: the page, `status.json`, `metrics`, `history`, `events` or `watch`, or with `fleet/` before it, one of the
/// sum of several servers.
pub(crate) fn page(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    name: &[u8],
    query: Option<&[u8]>,
    fleet: Option<&StatusFleet>,
) -> Reply {
    if !matches!(request.method(), Method::Get | Method::Head) {
        let mut response = error_response(405, true);
        response.fields.push("Allow", "GET, HEAD");
        return response.into();
    }
    let is_head = request.method() == Method::Head;
    let name = name.strip_prefix(b"/").unwrap_or(name);
    if let (Some(fleet), Some(name)) = (fleet, name.strip_prefix(b"fleet")) {
        return fleet_page(ctx, name, fleet, is_head);
    }
    match name {
        b"" => finish(overview(fleet.map(|_| View::Server)), is_head),
        b"status.json" => finish(text("application/json", json(ctx)), is_head),
        b"metrics" => finish(metrics(ctx, request), is_head),
        b"history" => finish(text("application/json", ctx.shared.history.json()), is_head),
        b"events" => streamed(ctx, "text/event-stream", events),
        b"watch" => subscribe(ctx, query),
        _ => finish(error_response(404, true), is_head),
    }
}

/// Returns a resource of the sum of several servers.
fn fleet_page(ctx: &Rc<WorkerContext>, name: &[u8], fleet: &StatusFleet, is_head: bool) -> Reply {
    match name {
        b"" => {
            let mut response = error_response(301, true);
            response.fields.push("Location", "fleet/");
            finish(response, is_head)
        }
        b"/" => finish(overview(Some(View::Fleet)), is_head),
        // A sum has no past: its servers have one each.
        b"/history" => finish(text("application/json", r#"{"keys":[],"samples":[]}"#), is_head),
        b"/status.json" => sum(subscribe_to_sum(ctx, fleet), is_head),
        b"/events" => match subscribe_to_sum(ctx, fleet) {
            Ok(latest) => {
                streamed(ctx, "text/event-stream", |ctx, sender| events_of_sum(ctx, latest, sender))
            }
            Err(error) => cannot_start(&error).into(),
        },
        _ => finish(error_response(404, true), is_head),
    }
}

fn subscribe_to_sum(ctx: &WorkerContext, fleet: &StatusFleet) -> io::Result<Latest> {
    dunlin_status::subscribe(&ctx.shared.collectors, fleet, &ctx.shared.config.server.resolver)
}

fn cannot_start(error: &io::Error) -> Response {
    tracing::error!("status: the thread that adds up replicas cannot start: {error}");
    error_response(503, true)
}

/// Responds with the sum when there is one.
fn sum(latest: io::Result<Latest>, is_head: bool) -> Reply {
    let mut latest = match latest {
        Ok(latest) => latest,
        Err(error) => return cannot_start(&error).into(),
    };
    Reply::later(async move {
        let found = tokio::time::timeout(PATIENCE, latest.wait_for(Option::is_some)).await;
        let json = match found {
            Ok(Ok(sum)) => sum.as_deref().map(|sum| Bytes::copy_from_slice(sum.as_bytes())),
            _ => None,
        };
        let response = match json {
            Some(json) => text("application/json", json),
            None => error_response(503, true),
        };
        if is_head { response.without_body() } else { response }
    })
}

/// Sends each sum as a server-sent event.
async fn events_of_sum(ctx: Rc<WorkerContext>, mut latest: Latest, sender: stream::Sender) {
    loop {
        let sum = latest.borrow_and_update().clone();
        // A client that has not read the previous sum gets no further one.
        if let Some(sum) = sum.filter(|_| sender.unread() == 0) {
            sender.push(format!("data: {sum}\n\n").into());
        }
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { break },
            () = sender.abandoned() => return,
            () = ctx.closing() => break,
        }
    }
    sender.end();
}

fn finish(response: Response, is_head: bool) -> Reply {
    let response = if is_head { response.without_body() } else { response };
    response.into()
}

fn text(media_type: &str, text: impl Into<Bytes>) -> Response {
    let mut response = Response::with_text(200, media_type, text);
    response.fields.push("Cache-Control", "no-store");
    response.fields.push("X-Content-Type-Options", "nosniff");
    response
}

fn overview(view: Option<View>) -> Response {
    let mut response = text("text/html; charset=utf-8", html(view));
    response.fields.push("Content-Security-Policy", &**CONTENT_SECURITY_POLICY);
    response
}

fn json(ctx: &Rc<WorkerContext>) -> String {
    // A stream may have started with an earlier configuration.
    let ctx = ctx.superseded_by().unwrap_or_else(|| Rc::clone(ctx));
    let report = collect::report(&ctx, &ctx.shared.metrics.sum());
    // The serialization of numbers and texts cannot fail.
    serde_json::to_string(&report).unwrap_or_default()
}

/// Returns the counts in the text of nginx's `stub_status`.
fn stub(ctx: &WorkerContext) -> Response {
    // Other workers publish theirs once a tick.
    ctx.metrics.publish(&ctx.shared.metrics, ctx.connections.counts());
    let counts = ctx.shared.metrics.sum();
    let open = |state: &str| -> u64 {
        let states = Waiting::NAMES.iter().zip(counts.connections);
        states.filter(|(name, _)| **name == state).map(|(_, count)| count).sum()
    };
    let (accepted, rejected) = (counts.accepted, ctx.shared.limiter.per_address().rejected());
    let active: u64 = counts.connections.iter().sum();
    let (waiting, reading) = (open("idle"), open("head"));
    let mut response = Response::with_text(
        200,
        "text/plain",
        format!(
            "Active connections: {active} \nserver accepts handled requests\n {accepted} {} {} \nReading: {reading} Writing: {} Waiting: {waiting} \n",
            accepted.saturating_sub(rejected),
            // With the one at hand.
            Requests::new(&counts).total + 1,
            active.saturating_sub(reading + waiting),
        ),
    );
    response.fields.push("Cache-Control", "no-store");
    response.fields.push("X-Content-Type-Options", "nosniff");
    response
}

fn metrics(ctx: &WorkerContext, request: &Request<'_>) -> Response {
    let counts = ctx.shared.metrics.sum();
    let report = collect::report(ctx, &counts);
    let form = Form::of(request.field(FieldName::Accept));
    text(form.media_type(), dunlin_status::metrics(&report, &counts, form))
}

/// Maximum wait for the first sum of several servers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum of queued bytes per stream.
const WAITING: usize = 64 * 1024;
/// Interval of updates of the page.
const EVERY: Duration = Duration::from_secs(1);
/// Interval of empty lines to a subscriber, so that a closed connection is detected.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Returns a response whose body a separate task generates until the client disconnects.
fn streamed<F: Future<Output = ()> + 'static>(
    ctx: &Rc<WorkerContext>,
    media_type: &'static str,
    make: impl FnOnce(Rc<WorkerContext>, stream::Sender) -> F + 'static,
) -> Reply {
    let ctx = Rc::clone(ctx);
    Reply::reading(async move |_| {
        let (sender, source) = stream::channel(WAITING);
        tokio::task::spawn_local(make(ctx, sender));
        let mut response = text(media_type, Bytes::new());
        response.body = Body::streamed(Stream { source, length: None, kind: StreamKind::Endless });
        response
    })
}

/// Sends the report every second as a server-sent event.
async fn events(ctx: Rc<WorkerContext>, sender: stream::Sender) {
    let mut next = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = next.tick() => {}
            () = sender.abandoned() => return,
            () = ctx.closing() => break,
        }
        // A client that has not read the previous update gets no further one.
        if sender.unread() == 0 {
            sender.push(format!("data: {}\n\n", json(&ctx)).into());
        }
    }
    sender.end();
}

/// Starts the live view of requests. The query contains `filter`, `level` and `begins`.
fn subscribe(ctx: &Rc<WorkerContext>, query: Option<&[u8]>) -> Reply {
    let filter = parameter(query, b"filter");
    let level = parameter(query, b"level");
    let wants_starts = parameter(query, b"begins") == "true";
    let reject = |status, what: String| {
        Response::with_text(status, "text/plain; charset=utf-8", what + "\n").into()
    };
    let filter = match Filter::parse(&filter) {
        Ok(filter) => filter,
        Err(error) => return reject(400, error.to_string()),
    };
    let level = if level.is_empty() { Some(Level::Line) } else { Level::parse(level.as_bytes()) };
    let Some(level) = level else {
        return reject(400, "level is not one of line, phases, heads, errors".into());
    };
    let Some(subscription) = ctx.shared.live.subscribe(filter, level, wants_starts) else {
        return reject(503, "the maximum of subscribers is reached".into());
    };
    streamed(ctx, "application/x-ndjson", |ctx, sender| forward(ctx, subscription, sender))
}

/// Forwards the events of a subscription until the client disconnects or the server stops.
async fn forward(ctx: Rc<WorkerContext>, subscription: Subscription, sender: stream::Sender) {
    let subscriber = subscription.subscriber();
    // The response head is sent with the first bytes. Once the client has it, it misses no request.
    sender.push(Bytes::from_static(b"\n"));
    loop {
        let lines = tokio::select! {
            () = subscriber.ready.notified() => subscriber.take(),
            () = tokio::time::sleep(HEARTBEAT) => b"\n".into(),
            () = sender.abandoned() => return,
            () = ctx.closing() => break,
        };
        if sender.room().await.is_err() {
            return;
        }
        sender.push(lines.into());
    }
    sender.end();
}

/// Returns the value of a query parameter as it stands in the query; empty if the query lacks it.
pub(super) fn verbatim_parameter(query: Option<&[u8]>, name: &[u8]) -> String {
    String::from_utf8_lossy(raw_parameter(query, name)).into_owned()
}

fn raw_parameter<'q>(query: Option<&'q [u8]>, name: &[u8]) -> &'q [u8] {
    let mut pairs = query.unwrap_or_default().split(|&byte| byte == b'&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"=")).unwrap_or_default()
}

/// Returns the decoded value of a query parameter; empty if the query lacks it.
pub(super) fn parameter(query: Option<&[u8]>, name: &[u8]) -> String {
    let value = raw_parameter(query, name).iter();
    let value: Vec<u8> = value.map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&value).decode_utf8_lossy().into_owned()
}
