//! Components that handle requests by `wasi:http/handler` of WASI 0.3.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::Incoming;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::Outcome;
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p3::Request;
use wasmtime_wasi_http::p3::bindings::ServicePre;

use crate::error_code;
use crate::exchange::{self, HeadSlot};
use crate::host::Host;
use crate::instance::InstanceRequest;
use crate::loaded::Loaded;
use crate::request_body::RequestBodySource;
use crate::running_instance::{Run, RunningInstance, Termination};
use crate::slot::Slot;
use crate::worker::Route;

/// Responds by the component.
///
/// # Errors
/// Why there is no response.
pub(crate) async fn respond(
    call: &Call<'_>,
    mut incoming: Box<Incoming>,
    route: &Rc<Route>,
    slot: &Slot,
    loaded: &Arc<Loaded>,
    pre: &ServicePre<Host>,
) -> Result<Outcome, Failure> {
    call.receive(&mut incoming).await?;
    let settings = route.settings()?;
    let (start, log) = InstanceRequest::with_log(route, slot, loaded, &incoming.script_context)?;
    let (feed, pump) = RequestBodySource::new(call.take_body(&mut incoming));
    let request = exchange::request(call, &incoming, feed)?;
    let head = HeadSlot::default();
    let runtime = start.runtime;
    let run = run(start, Rc::clone(route), pre.clone(), request, head.clone());
    let context = &incoming.script_context;
    let guest = RunningInstance::new(call, slot, settings, context, (runtime, run), pump, log);
    exchange::respond(call, incoming, &slot.label, guest, head).await
}

fn run(
    mut start: InstanceRequest,
    route: Rc<Route>,
    pre: ServicePre<Host>,
    request: http::Request<RequestBodySource>,
    head: HeadSlot,
) -> Run<()> {
    Box::pin(async move {
        let (mut store, service) =
            start.instance(async |store| pre.instantiate_async(store).await).await?;
        let (request, sent) = Request::from_http(store.data_mut().http().hooks, request);
        let called = store.run_concurrent(async |accessor| {
            match service.handle(accessor, request).await? {
                Ok(response) => {
                    let response =
                        accessor.with(|mut store| response.into_http(&mut store, sent))?;
                    head.set(Ok(response));
                }
                Err(code) => head.set(Err(error_code::describe(&code))),
            }
            // Its tasks write the body, and may go on after that.
            poll_fn(|cx| accessor.poll_no_interesting_tasks(cx)).await;
            wasmtime::error::Ok(())
        });
        let called = called.await.flatten();
        called.map_err(|error| Termination::new(&error, store.data()))?;
        start.keep(&route, store, service);
        Ok(())
    })
}
