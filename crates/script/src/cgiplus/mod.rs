//! CGIplus: programs that run on and take one request after the other on pipes of their own. The run-time
//! environment: interpreters that do so for many scripts.

pub(super) mod library;
mod request;
mod response;
mod scan;
pub(super) mod streams;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::response::CgiplusResponse;
use self::streams::Streams;
use super::backend::{Backend, Connection, Outgoing};
use super::failure::Failure;
use super::workers::{Capacity, Checkout, Pool, PooledConnection, Worker};
use super::{cgi, environment};
use dunlin_config::{ScriptKind, Workers};

/// CGIplus or the run-time environment, for one request.
pub(super) struct Cgiplus;

/// A worker that waits for a request, and its streams.
pub(super) struct CgiplusConnection {
    checkout: Checkout,
    streams: Streams,
}

impl Connection for CgiplusConnection {
    fn worker(&self) -> Option<&Arc<Worker>> {
        Some(&self.checkout.worker)
    }
}

impl Backend for Cgiplus {
    type Connection = CgiplusConnection;
    type InFlight = CgiplusResponse;

    async fn connect(&mut self, request: &Outgoing<'_>) -> Result<CgiplusConnection, Failure> {
        let pool = pool(request)?;
        loop {
            let mut checkout = pool.checkout(&request.call.scripts.ctx, request.name).await?;
            match checkout.take_connection().map(PooledConnection::into_streams) {
                Some(Ok(streams)) if streams.is_silent() => {
                    return Ok(CgiplusConnection { checkout, streams });
                }
                Some(Ok(_)) => {
                    tracing::warn!(
                        script = &**request.name,
                        pid = checkout.worker.pid,
                        "a worker wrote after the end of a response or has ended; it is replaced"
                    );
                    checkout.lose();
                }
                _ => checkout.end(),
            }
        }
    }

    async fn send(
        &mut self,
        request: &mut Outgoing<'_>,
        connection: CgiplusConnection,
    ) -> Result<CgiplusResponse, Failure> {
        let CgiplusConnection { mut checkout, streams } = connection;
        let Outgoing { call, incoming, located, length, .. } = request;
        let variables = environment::variables(call, incoming, located, *length);
        let head = match streams.struct_mode.get() {
            true => request::structs(&variables),
            false => Ok(request::records(&variables)),
        };
        let head = match head {
            Ok(head) => head,
            Err(failure) => {
                checkout.put_back(PooledConnection::streams(streams));
                return Err(failure);
            }
        };
        let written = streams.variables.try_write(&head).unwrap_or(0);
        checkout.is_used = true;
        let body = request.body.is_some().then(|| request.length.unwrap_or(0));
        Ok(CgiplusResponse::new(&call.scripts.ctx, checkout, streams, head, written, body))
    }

    fn writes_message(&self, request: &Outgoing<'_>) -> bool {
        cgi::is_nph(&request.located.program)
    }
}

/// Returns the pool of the script's program, or of the interpreter for all scripts.
fn pool(request: &Outgoing<'_>) -> Result<Arc<Pool>, Failure> {
    let Outgoing { call, located, .. } = request;
    let Workers::Local(local) = &call.rules.workers else {
        return Err(Failure::Broken("it has no workers".into()));
    };
    let (pools, shared) = (&call.scripts.pools, &call.scripts.ctx.shared);
    let program = match call.rules.kind {
        ScriptKind::Cgiplus => &*located.program,
        _ => Path::new(""),
    };
    let pool = pools.workers.program_pool(shared, call.rules, local, Capacity::ONE, program)?;
    // After a change of the file, the script is looked up again.
    if !located.is_refreshed.load(Ordering::Relaxed) {
        pool.refresh();
        located.is_refreshed.store(true, Ordering::Relaxed);
    }
    Ok(pool)
}
