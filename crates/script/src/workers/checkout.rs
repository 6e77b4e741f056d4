//! The right to give a worker one request.

use std::sync::Arc;

use super::connection::PooledConnection;
use super::pool::Pool;
use super::worker::Worker;

/// The right to give a worker one request. Dropping it returns the worker. If the request was sent, the pool first probes until the
/// worker has finished it.
#[derive(Debug)]
pub(in super::super) struct Checkout {
    pool: Arc<Pool>,
    pub(in super::super) worker: Arc<Worker>,
    /// The request's number in the pool.
    request: u64,
    connection: Option<PooledConnection>,
    /// The worker was sent a part of the request.
    pub(in super::super) is_used: bool,
    is_over: bool,
}

impl Checkout {
    pub(super) fn new(
        pool: Arc<Pool>,
        worker: Arc<Worker>,
        request: u64,
        connection: Option<PooledConnection>,
    ) -> Self {
        Self { pool, worker, request, connection, is_used: false, is_over: false }
    }

    /// Returns the connection that an earlier request left open.
    pub(in super::super) fn take_connection(&mut self) -> Option<PooledConnection> {
        self.connection.take()
    }

    /// Puts back a connection that was taken and not used.
    pub(in super::super) fn put_back(&mut self, connection: PooledConnection) {
        self.connection = Some(connection);
    }

    /// Returns a worker whose connection is gone. If it does not end soon by itself, it is ended.
    pub(in super::super) fn lose(mut self) {
        self.is_over = true;
        self.pool.lose(&self.worker);
    }

    /// Returns a worker that has finished the request; `connection` is one for the next request.
    pub(in super::super) fn release(mut self, connection: Option<PooledConnection>) {
        self.is_over = true;
        self.pool.give_back(&self.worker, self.request, connection);
    }

    /// Returns a worker that hangs: it is ended.
    pub(in super::super) fn end(mut self) {
        self.is_over = true;
        self.pool.end(&self.worker);
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.is_used {
            self.pool.probe(&self.worker, self.request);
        } else {
            self.pool.give_back(&self.worker, self.request, self.connection.take());
        }
    }
}
