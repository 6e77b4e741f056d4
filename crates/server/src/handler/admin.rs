//! Commands at the admin socket.

use std::rc::Rc;
use std::time::UNIX_EPOCH;

use dunlin_exchange::Response;
use dunlin_http::Request;
use dunlin_http::semantics::Method;
use serde_json::json;

use crate::control::Action;
use crate::exchange::coding::RouteCodings;
#[cfg(debug_assertions)]
use crate::handler::break_out;
use dunlin_telemetry::{LogChoice, RouteTelemetry};

use super::{config_diff, object_events};
use crate::handler::maintenance;
use crate::handler::rejection::error_response;
use crate::handler::response_cache::purge::purge;
use crate::handler::status;
use crate::route::reply::{Direction, Reply, Routed};
use crate::worker::{SharedState, WorkerContext};

/// Maximum length of the body of a request that uses none, in bytes.
const BODY: u64 = 64 * 1024;

/// Responds to a request at the admin socket.
pub(crate) fn respond(ctx: &Rc<WorkerContext>, request: &Request<'_>) -> Routed {
    let mut parts = request.target().splitn(2, |&byte| byte == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next());
    let reply = match (path, request.method()) {
        (b"/reload", Method::Post) => {
            command(ctx, Action::Reload { workers: query == Some(b"workers") })
        }
        (b"/upgrade", Method::Post) => command(ctx, Action::Upgrade),
        (b"/reopen", Method::Post) => command(ctx, Action::Reopen),
        (b"/purge", Method::Post) => purge(&ctx.shared, query),
        (b"/maintenance", Method::Post) => maintenance::command(ctx, query),
        (b"/maintenance", Method::Get | Method::Head) => maintenance::report(&ctx.shared).into(),
        (b"/object-events", Method::Post) => object_events::receive(ctx),
        (b"/config", Method::Get | Method::Head) => configuration(&ctx.shared).into(),
        (b"/config/diff", Method::Post) => config_diff::respond(ctx),
        #[cfg(debug_assertions)]
        (b"/debug/break", Method::Post) if break_out::is_enabled() => {
            break_out::respond(query.unwrap_or_default())
        }
        (
            b"/reload" | b"/upgrade" | b"/reopen" | b"/purge" | b"/object-events" | b"/config/diff",
            _,
        ) => not_allowed("POST").into(),
        (b"/maintenance", _) => not_allowed("GET, HEAD, POST").into(),
        (b"/config", _) => not_allowed("GET, HEAD").into(),
        _ => status::page(ctx, request, path, query, None),
    };
    Routed {
        site: 0,
        body_limit: if reply.is_reading() { object_events::MAX } else { BODY },
        reply,
        reads_body: false,
        codings: RouteCodings::default(),
        route_telemetry: RouteTelemetry { log: LogChoice::Off, ..RouteTelemetry::default() },
        has_body_pages: false,
        context: None,
        direction: Direction::Right,
    }
}

fn command(ctx: &Rc<WorkerContext>, action: Action) -> Reply {
    let commands = ctx.shared.commands.clone();
    Reply::later(async move {
        let (status, text) = match commands.give(action).await {
            Ok(text) => (200, text),
            Err(text) => (409, text),
        };
        Response::with_text(status, "text/plain; charset=utf-8", format!("{text}\n"))
    })
}

fn not_allowed(methods: &'static str) -> Response {
    let mut response = error_response(405, false);
    response.fields.push("Allow", methods);
    response
}

/// Returns the configuration in use.
fn configuration(shared: &SharedState) -> Response {
    let config = &shared.config;
    let listeners: Vec<_> = config
        .listen
        .iter()
        .map(|listen| {
            json!({
                "address": listen.address.to_string(),
                "tls": listen.tls,
                "http2": listen.http2,
                "http3": listen.http3.is_wanted(),
                "admin": listen.admin,
            })
        })
        .collect();
    let loaded = shared.loaded.duration_since(UNIX_EPOCH).unwrap_or_default();
    // The client may be in another working directory.
    let file = config.whole_path();
    let startup = &shared.startup;
    let mut confinement = startup.confinement.lines();
    confinement.extend(config.script_users());
    let text = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "file": file.map(|path| path.display().to_string()),
        "overrides": config.overrides(),
        "loaded": loaded.as_secs(),
        "threads": config.server.threads,
        "listeners": listeners,
        "sites": config.sites.iter().map(|site| &site.name).collect::<Vec<_>>(),
        "confinement": confinement,
        "in_force": startup.confinement,
        "started_with": startup.text,
        "text": config.text_without_secrets(),
    });
    Response::with_text(200, "application/json", format!("{text:#}\n"))
}
