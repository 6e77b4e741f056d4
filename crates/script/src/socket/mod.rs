//! Kinds whose workers are reached by a socket that carries one request at a time: FastCGI, SCGI
//! and uWSGI's protocol.

pub(super) mod connection;
mod encode;
mod fastcgi;
mod response;
mod scgi_uwsgi;

use std::rc::Rc;
use std::sync::Arc;

use tokio::net::UnixStream;

use self::connection::WorkerSocket;
use self::encode::Encoded;
use self::response::{Framing, SocketResponse};
use super::backend::{Backend, Connection, Outgoing};
use super::failure::Failure;
use super::remote::{RemoteCheckout, Tried};
use super::retry_on_emfile;
use super::stderr::Lines;
use super::workers::{Capacity, Checkout, PooledConnection, Worker};
use dunlin_config::{ScriptKind, Workers};
use dunlin_net::temp_files::lacks_descriptors;

/// FastCGI, SCGI or uWSGI's protocol, for one request.
#[derive(Default)]
pub(super) struct Socket {
    /// The encoded request, the same for each attempt.
    encoded: Option<Encoded>,
    /// The address of the external worker to which the request was last sent.
    tried: Option<Tried>,
    /// The request was sent before: an open connection may be stale, so that a new one is used.
    is_retry: bool,
}

/// A worker and a connection to it.
pub(super) struct SocketConnection {
    worker: HeldWorker,
    socket: WorkerSocket,
}

/// The worker that a request has.
enum HeldWorker {
    Local(Checkout),
    Remote(RemoteCheckout),
}

impl HeldWorker {
    fn keep_alive(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote(checkout) => checkout.keep_alive(),
        }
    }

    /// The worker has finished the request. `socket` is the connection, if it can be used for another request.
    fn release(self, socket: Option<WorkerSocket>) {
        match self {
            Self::Local(checkout) => checkout.release(socket.map(PooledConnection::socket)),
            Self::Remote(checkout) => {
                let socket = socket.filter(|_| checkout.keep_alive());
                checkout.release(socket);
            }
        }
    }

    /// The worker hangs. The server can end only those that it has started.
    fn end(self) {
        if let Self::Local(checkout) = self {
            checkout.end();
        }
    }
}

impl Connection for SocketConnection {
    fn worker(&self) -> Option<&Arc<Worker>> {
        match &self.worker {
            HeldWorker::Local(checkout) => Some(&checkout.worker),
            HeldWorker::Remote(_) => None,
        }
    }
}

impl Backend for Socket {
    type Connection = SocketConnection;
    type InFlight = SocketResponse;

    async fn connect(&mut self, request: &Outgoing<'_>) -> Result<SocketConnection, Failure> {
        let call = request.call;
        let (pools, shared) = (&call.scripts.pools, &call.scripts.ctx.shared);
        match &call.rules.workers {
            Workers::Local(local) => {
                let pool = pools.workers.pool(shared, call.rules, local, Capacity::ONE)?;
                let mut checkout = pool.checkout(&call.scripts.ctx, request.name).await?;
                if let Some(connection) = checkout.take_connection()
                    && let Ok(socket) = connection.into_socket()
                    && socket.is_reusable()
                {
                    return Ok(SocketConnection { worker: HeldWorker::Local(checkout), socket });
                }
                let socket = &checkout.worker.socket;
                let connect = async || UnixStream::connect(socket).await;
                match Box::pin(retry_on_emfile::retry(&call.scripts.ctx, connect)).await {
                    Ok(stream) => Ok(SocketConnection {
                        worker: HeldWorker::Local(checkout),
                        socket: WorkerSocket::Unix(stream),
                    }),
                    Err(error) if lacks_descriptors(&error) => Err(Failure::NoDescriptor),
                    Err(error) => {
                        checkout.lose();
                        Err(Failure::NotSent(format!("its worker cannot be reached: {error}")))
                    }
                }
            }
            Workers::Remote(remote) => {
                let place = pools.of(call.rules).acquire(call.rules).await?;
                let group = pools.remotes.of(call.rules, remote);
                let (checkout, socket) = group
                    .connect(&call.scripts.ctx, place, self.tried.as_ref(), self.is_retry)
                    .await?;
                Ok(SocketConnection { worker: HeldWorker::Remote(checkout), socket })
            }
            Workers::Each | Workers::Component(_) => {
                Err(Failure::Broken("it has no workers".into()))
            }
        }
    }

    async fn send(
        &mut self,
        request: &mut Outgoing<'_>,
        connection: SocketConnection,
    ) -> Result<SocketResponse, Failure> {
        let SocketConnection { mut worker, socket } = connection;
        let framing = framing(request.call.rules.kind);
        let encoded = match &mut self.encoded {
            Some(encoded) => encoded,
            none => none.insert(encode::encode(request, framing, worker.keep_alive()).await?),
        };
        match &mut worker {
            HeldWorker::Local(checkout) => checkout.is_used = true,
            HeldWorker::Remote(checkout) => self.tried = Some(checkout.target()),
        }
        self.is_retry = true;
        let written = match socket.try_write(encoded) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(Failure::NotSent(format!("its worker is gone: {error}"))),
        };
        let unwritten = encoded.slice(written..);
        let pid = match &worker {
            HeldWorker::Local(checkout) => checkout.worker.pid,
            HeldWorker::Remote(_) => 0,
        };
        let (call, script_context) = (request.call, Rc::clone(&request.incoming.script_context));
        let stderr = Lines::new(Arc::clone(request.name), pid, script_context);
        let has_body = request.body.is_some();
        let ctx = Rc::clone(&call.scripts.ctx);
        Ok(SocketResponse::new(ctx, worker, socket, framing, stderr, unwritten, has_body))
    }
}

fn framing(kind: ScriptKind) -> Framing {
    match kind {
        ScriptKind::FastCgi => Framing::Records,
        _ => Framing::Plain,
    }
}
