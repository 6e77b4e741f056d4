//! Components whose functions are called with JSON: `POST route/interface/function`, or `route/function` for those outside of an
//! interface.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_component_types::{Encoded, Interfaces, Status};
use dunlin_exchange::{Incoming, Response};
use dunlin_http::semantics::Method;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::in_process::ResolvedScript;
use dunlin_script::outcome::Outcome;
use wasmtime::component::{ComponentExportIndex, InstancePre, Val};

use crate::host::Host;
use crate::instance::InstanceRequest;
use crate::loaded::Loaded;
use crate::running_instance::{Run, RunningInstance, Termination};
use crate::slot::Slot;
use crate::worker::Route;

/// Maximum length of the parameters of a call in bytes.
const MAX_PARAMETERS: usize = 16 << 20;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// Calls the function that the path names, or describes all functions.
///
/// # Errors
/// Why there is no response.
pub(crate) async fn respond(
    call: &Call<'_>,
    mut incoming: Box<Incoming>,
    route: &Rc<Route>,
    (slot, located): (&Slot, &ResolvedScript),
    loaded: &Arc<Loaded>,
    (pre, interfaces): (&InstancePre<Host>, &Interfaces),
) -> Result<Outcome, Failure> {
    let path = located.info().strip_prefix(b"/").unwrap_or(located.info());
    let method = call.request.method();
    if path.is_empty() {
        return Ok(Outcome::Response(describe(slot, located, interfaces, method)));
    }
    let path = std::str::from_utf8(path).map_err(|_| Failure::Missing)?;
    // A function that the component exports by itself has no interface.
    let (interface, function) = path.rsplit_once('/').unwrap_or(("", path));
    let function = interfaces.find(interface, function).ok_or(Failure::Missing)?;
    if method != Method::Post {
        return Ok(Outcome::Response(not_allowed("POST")));
    }
    let parameters = parameters(call, &mut incoming).await?;
    let parameters = match function.decode(&parameters) {
        Ok(parameters) => parameters,
        Err(invalid) => {
            return Ok(Outcome::Response(Response::with_text(400, PROBLEM, invalid.problem())));
        }
    };
    let settings = route.settings()?;
    let context = Rc::clone(&incoming.script_context);
    let (start, log) = InstanceRequest::with_log(route, slot, loaded, &context)?;
    let runtime = start.runtime;
    let (index, count) = (*function.export_index(), function.result_count());
    let run = run(start, Rc::clone(route), pre.clone(), (index, parameters, count));
    let mut run = RunningInstance::new(call, slot, settings, &context, (runtime, run), None, log);
    let results = poll_fn(|cx| run.poll(cx)).await.map_err(Termination::failure)?;
    context.mark(&context.first_byte);
    let Encoded { status, json } = function.encode(&results);
    context.mark(&context.ended);
    Ok(Outcome::Response(match status {
        Status::Ok => Response::with_text(200, JSON, json),
        Status::Err => Response::with_text(422, JSON, json),
        Status::Empty => Response::new(204),
    }))
}

/// Returns the description of all functions (OpenAPI 3.1).
fn describe(
    slot: &Slot,
    located: &ResolvedScript,
    interfaces: &Interfaces,
    method: Method,
) -> Response {
    if !matches!(method, Method::Get | Method::Head) {
        return not_allowed("GET, HEAD");
    }
    let title = slot.path.file_stem().unwrap_or_default().to_string_lossy();
    let base = String::from_utf8_lossy(located.name());
    let response = Response::with_text(200, JSON, interfaces.openapi(&title, &base));
    if method == Method::Head { response.without_body() } else { response }
}

fn not_allowed(methods: &str) -> Response {
    let mut response = Response::with_text(
        405,
        "text/plain; charset=utf-8",
        format!("the methods here are: {methods}\n"),
    );
    response.fields.push("Allow", methods);
    response
}

/// Receives the parameters of a call. Without a body they are an empty object.
async fn parameters(call: &Call<'_>, incoming: &mut Incoming) -> Result<Vec<u8>, Failure> {
    call.receive(incoming).await?;
    let mut body = call.take_body(incoming);
    let mut bytes = Vec::new();
    while let Some(more) = body.next().await.map_err(|_| Failure::Abandoned)? {
        if bytes.len() + more.len() > MAX_PARAMETERS {
            return Err(Failure::Status(413));
        }
        bytes.extend_from_slice(&more);
    }
    Ok(if bytes.is_empty() { b"{}".into() } else { bytes })
}

fn run(
    mut start: InstanceRequest,
    route: Rc<Route>,
    pre: InstancePre<Host>,
    (index, parameters, count): (ComponentExportIndex, Vec<Val>, usize),
) -> Run<Vec<Val>> {
    Box::pin(async move {
        let (mut store, instance) =
            start.instance(async |store| pre.instantiate_async(store).await).await?;
        let function = instance.get_func(&mut store, index).ok_or(Termination::NoRoom)?;
        let mut results = vec![Val::Bool(false); count];
        let called = function.call_async(&mut store, &parameters, &mut results).await;
        called.map_err(|error| Termination::new(&error, store.data()))?;
        start.keep(&route, store, instance);
        Ok(results)
    })
}
