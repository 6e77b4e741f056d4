//! The host of an instance: what it is granted, and the limits of what it uses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::HeaderName;
use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
    WasiHttpView,
};

use crate::counts::Counts;
use crate::engine::{Runtime, TABLE_ELEMENTS};
use crate::outbound::{OutboundHttp, Sending, WasiRequest};
use crate::time_slice;

/// The state of an instance on the side of the server.
pub(crate) struct Host {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
    hooks: Hooks,
    pub(crate) limits: Limits,
}

/// Maximum number of handles of an instance, such as streams and fields. A handle can have 128 KB of fields in the server's memory.
const HANDLES: usize = 1024;
/// Bytes that an instance passes to the body of its response by one call.
const CHUNK: usize = 64 * 1024;

impl Host {
    /// Creates a store for one instance with at most `memory` bytes in all of its memories. It yields to the worker at each tick.
    pub(crate) fn store(
        runtime: &Runtime,
        wasi: WasiCtx,
        outbound_http: OutboundHttp,
        memory: u64,
        counts: &Arc<Counts>,
    ) -> Store<Self> {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        let max = usize::try_from(memory).unwrap_or(usize::MAX);
        let limits = Limits { memory: max, used: 0, denied: false, counts: Arc::clone(counts) };
        let host =
            Self { wasi, http: WasiHttpCtx::new(), table, hooks: Hooks { outbound_http }, limits };
        let mut store = Store::new(&runtime.engine, host);
        store.limiter(|host| &mut host.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|_| {
            Ok(match time_slice::interrupt(Instant::now()) {
                Some(turn) => UpdateDeadline::YieldCustom(1, Box::pin(turn)),
                None => UpdateDeadline::Continue(1),
            })
        });
        store
    }
}

/// Prepares a kept instance for its next request.
pub(crate) fn prepare_kept(store: &mut Store<Host>) {
    store.set_epoch_deadline(1);
    store.data_mut().limits.denied = false;
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }
}

/// The services of the server that `wasi:http` needs.
struct Hooks {
    outbound_http: OutboundHttp,
}

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        DEFAULT_FORBIDDEN_HEADERS.contains(name)
    }

    fn send_request(
        &mut self,
        request: WasiRequest,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Sending {
        self.outbound_http.send(request, options)
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }
}

/// The limits of an instance.
pub(crate) struct Limits {
    /// Maximum size of all memories in bytes.
    memory: usize,
    /// Size of all memories in bytes.
    used: usize,
    /// The last growth of a memory or table during this request was denied. A program that has grown after a denial
    /// continues without what it did not get.
    pub(crate) denied: bool,
    counts: Arc<Counts>,
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let used = self.used.saturating_add(desired.saturating_sub(current));
        let fits = used <= self.memory && maximum.is_none_or(|maximum| desired <= maximum);
        if fits {
            self.used = used;
            self.counts.memory_peak.fetch_max(used as u64, Ordering::Relaxed);
        }
        self.denied = !fits;
        Ok(fits)
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = desired <= TABLE_ELEMENTS && maximum.is_none_or(|maximum| desired <= maximum);
        self.denied = !fits;
        Ok(fits)
    }
}
