//! Components that handle requests by `wasi:http/incoming-handler` of WASI 0.2.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::Incoming;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::Outcome;
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;

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
    pre: &ProxyPre<Host>,
) -> Result<Outcome, Failure> {
    call.receive(&mut incoming).await?;
    let settings = route.settings()?;
    let (start, log) = InstanceRequest::with_log(route, slot, loaded, &incoming.script_context)?;
    let (feed, pump) = RequestBodySource::new(call.take_body(&mut incoming));
    let request = exchange::request(call, &incoming, feed)?;
    let is_encrypted = call.client(&incoming).encrypted;
    let head = HeadSlot::default();
    let runtime = start.runtime;
    let run = run(start, Rc::clone(route), pre.clone(), request, is_encrypted, head.clone());
    let context = &incoming.script_context;
    let guest = RunningInstance::new(call, slot, settings, context, (runtime, run), pump, log);
    exchange::respond(call, incoming, &slot.label, guest, head).await
}

fn run(
    mut start: InstanceRequest,
    route: Rc<Route>,
    pre: ProxyPre<Host>,
    request: http::Request<RequestBodySource>,
    is_encrypted: bool,
    head: HeadSlot,
) -> Run<()> {
    Box::pin(async move {
        let (mut store, proxy) =
            start.instance(async |store| pre.instantiate_async(store).await).await?;
        let called = async {
            let scheme = if is_encrypted { Scheme::Https } else { Scheme::Http };
            let request = store.data_mut().http().new_incoming_request(scheme, request)?;
            let out =
                store.data_mut().http().new_response_outparam_from_callback(move |result| {
                    head.set(result.map_err(|code| error_code::describe(&code)));
                })?;
            proxy.wasi_http_incoming_handler().call_handle(&mut store, request, out).await
        };
        let called = called.await;
        called.map_err(|error| Termination::new(&error, store.data()))?;
        start.keep(&route, store, proxy);
        Ok(())
    })
}
