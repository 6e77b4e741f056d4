//! Application servers: programs of Dunlin's that load an application once and serve it (WSGI, PEP 3333; ASGI; PSGI).
//! They are workers that take many requests at once on one connection, so that requests and responses cross in
//! batches.

pub(super) mod connection;
pub(super) mod files;
mod frame;
pub(super) mod report;
mod response;
pub(super) mod websocket;
mod websocket_state;

use std::rc::Rc;
use std::sync::Arc;

use self::connection::AppConnection;
use self::response::AppServerResponse;
use self::websocket_state::WebSocketState;
use super::backend::{Backend, Connection, Outgoing};
use super::failure::Failure;
use super::variables::Variables;
use super::workers::{Capacity, Checkout, Worker};
use super::{environment, retry_on_emfile};
use dunlin_config::{Local, ScriptKind, Workers};
use dunlin_net::temp_files::lacks_descriptors;

/// Requests that an asynchronous application works on at once.
const TASKS: usize = 1024;
/// Requests that an application is given ahead while it responds quickly.
const AHEAD: usize = 64;
/// Bytes of the length in front of the encoded variables.
const LENGTH: usize = 4;

/// An application server, for one request.
#[derive(Default)]
pub(super) struct Application {
    /// The WebSocket that the request is for.
    websocket: Option<Rc<WebSocketState>>,
}

/// An application server with room for a request, and this worker thread's connection to it.
pub(super) struct AppServerConnection {
    checkout: Checkout,
    connection: Rc<AppConnection>,
}

impl Connection for AppServerConnection {
    fn worker(&self) -> Option<&Arc<Worker>> {
        Some(&self.checkout.worker)
    }
}

impl Backend for Application {
    type Connection = AppServerConnection;
    type InFlight = AppServerResponse;

    async fn connect(&mut self, request: &Outgoing<'_>) -> Result<AppServerConnection, Failure> {
        let call = request.call;
        let Workers::Local(local) = &call.rules.workers else {
            return Err(Failure::Broken("it has no workers".into()));
        };
        let (pools, shared) = (&call.scripts.pools, &call.scripts.ctx.shared);
        let capacity = capacity(call.rules.kind, local);
        let pool = pools.workers.pool(shared, call.rules, local, capacity)?;
        let checkout = pool.checkout(&call.scripts.ctx, request.name).await?;
        let connections = &call.scripts.app_connections;
        if let Some(connection) = connections.existing(&checkout.worker) {
            return Ok(AppServerConnection { checkout, connection });
        }
        let connect = async || connections.to(&checkout.worker).await;
        match Box::pin(retry_on_emfile::retry(&call.scripts.ctx, connect)).await {
            Ok(connection) => Ok(AppServerConnection { checkout, connection }),
            Err(error) if lacks_descriptors(&error) => Err(Failure::NoDescriptor),
            Err(error) => {
                let is_ready = checkout.worker.is_ready();
                checkout.lose();
                let what = format!("the application server cannot be reached: {error}");
                // If it was never ready, it could not load its application, and another one cannot either.
                Err(if is_ready { Failure::NotSent(what) } else { Failure::Unreachable(what) })
            }
        }
    }

    async fn send(
        &mut self,
        request: &mut Outgoing<'_>,
        connection: AppServerConnection,
    ) -> Result<AppServerResponse, Failure> {
        let AppServerConnection { mut checkout, connection } = connection;
        checkout.is_used = true;
        let worker = Arc::clone(&checkout.worker);
        let pending = connection.enter(checkout, self.websocket.clone());
        let Outgoing { call, incoming, located, length, body, .. } = request;
        let kind = match body {
            _ if self.websocket.is_some() => frame::WEBSOCKET,
            Some(_) => frame::REQUEST_WITH_BODY,
            None => frame::REQUEST,
        };
        let variables = environment::variables(call, incoming, located, *length);
        connection.send_with(pending.id(), kind, |output| write(&variables, output));
        if self.websocket.is_some()
            && (worker.is_leaving() || call.scripts.app_connections.are_closing())
        {
            connection.close_websocket(&pending);
        }
        Ok(AppServerResponse::new(worker, connection, pending))
    }

    fn may_switch(&self) -> bool {
        self.websocket.is_some()
    }
}

/// Requests that a process of the application is given at once.
fn capacity(kind: ScriptKind, local: &Local) -> Capacity {
    match kind {
        ScriptKind::Asgi => Capacity { concurrent: TASKS, pipelined: TASKS },
        _ => Capacity { concurrent: local.threads, pipelined: local.threads.max(AHEAD) },
    }
}

/// Encodes the variables. Those whose values are likely to be the same in the next request are separate, so that the
/// application server can reuse them if they are. The encoding: the length of the first part (four bytes,
/// little-endian); the names of the varying variables, an empty name, the names and values of the others; then the
/// values of the varying ones. NUL separates them.
fn write(variables: &Variables, output: &mut Vec<u8>) {
    let start = output.len();
    output.extend_from_slice(&[0; LENGTH]);
    for (name, _) in variables.which(true) {
        output.extend_from_slice(name);
        output.push(0);
    }
    for (name, value) in variables.which(false) {
        for part in [name, value] {
            output.push(0);
            output.extend_from_slice(part);
        }
    }
    // The size of a head is limited.
    let length = u32::try_from(output.len() - start - LENGTH).unwrap_or(u32::MAX);
    output[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    for (at, (_, value)) in variables.which(true).enumerate() {
        if at > 0 {
            output.push(0);
        }
        output.extend_from_slice(value);
    }
}
