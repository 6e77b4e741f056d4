//! The engine: how components are compiled, and the memory of their instances.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use wasmtime::PoolingAllocationConfig;
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel};

use crate::host::Host;
use crate::ticker::Ticker;

/// The concurrency of calls of one instance: the interfaces of WASI 0.3 need several at a time. The engine accounts for each call
/// then, which takes a good part of the time of a short one, so components without such interfaces have another engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concurrency {
    Off,
    On,
}

/// The state that all components of a kind share in the process.
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<Host>,
    pub(crate) ticker: Ticker,
}

/// Maximum number of instances in a runtime. Each has addresses for the largest memory, of which only what it uses is
/// backed by memory.
pub(crate) const INSTANCES: u32 = 2048;
/// Core instances, tables and memories: those of an instance of a component, on average.
const CORE_INSTANCES: u32 = 4 * INSTANCES;
const TABLES: u32 = 2 * INSTANCES;
const MEMORIES: u32 = INSTANCES + INSTANCES / 2;
/// Maximum of each kind in one instance of a component.
const PER_COMPONENT: u32 = 64;
/// Maximum number of elements in a table.
pub(crate) const TABLE_ELEMENTS: usize = 100_000;
/// Maximum size of the structures of an instance in bytes.
const STRUCTURES: usize = 4 << 20;
/// Bytes at the start of a memory and of a table that are cleared instead of returned to the system, since most instances
/// use no more.
const KEPT_MEMORY: usize = 128 << 10;
const KEPT_TABLE: usize = 8 << 10;
/// Maximum size of a memory in bytes; `memory` is a lower limit.
const MAX_MEMORY: usize = 4 << 30;

/// By [`Concurrency`].
static RUNTIMES: [OnceLock<Result<Runtime, String>>; 2] = [OnceLock::new(), OnceLock::new()];
/// By [`Concurrency`].
static COMPILERS: [OnceLock<Result<Engine, String>>; 2] = [OnceLock::new(), OnceLock::new()];

impl Concurrency {
    pub(crate) const ALL: [Self; 2] = [Self::Off, Self::On];
}

impl Runtime {
    /// Returns a runtime of the process, which the first call creates.
    ///
    /// # Errors
    /// Why the system does not permit it.
    pub(crate) fn get(concurrency: Concurrency) -> Result<&'static Self, String> {
        let runtime = RUNTIMES[concurrency as usize].get_or_init(|| Self::new(concurrency));
        runtime.as_ref().map_err(Clone::clone)
    }

    fn new(concurrency: Concurrency) -> Result<Self, String> {
        let mut config = config(concurrency);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        let engine = Engine::new(&config).map_err(|error| {
            format!(
                "the engine of components cannot reserve addresses ({error:#}); `limits.memory` and `ulimit -v` must not \
                 limit the addresses of the server"
            )
        })?;
        let linker = linker(&engine, concurrency).map_err(|error| format!("{error:#}"))?;
        let ticker = Ticker::start(&engine).map_err(|error| format!("a thread: {error}"))?;
        Ok(Self { engine, linker, ticker })
    }
}

/// Returns an engine of the process that compiles, which the first call creates. It reserves no addresses for instances.
///
/// # Errors
/// Why there is none.
pub(crate) fn compiler(concurrency: Concurrency) -> Result<&'static Engine, String> {
    let new = || Engine::new(&config(concurrency)).map_err(|error| format!("{error:#}"));
    COMPILERS[concurrency as usize].get_or_init(new).as_ref().map_err(Clone::clone)
}

/// Identifies the code that this build of the engine generates on this machine.
pub(crate) fn compatibility(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

/// Returns the settings that determine the code. They are those of the compiler and of the server.
fn config(concurrency: Concurrency) -> Config {
    let is_concurrent = concurrency == Concurrency::On;
    let mut config = Config::new();
    config
        .concurrency_support(is_concurrent)
        .wasm_component_model_async(is_concurrent)
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        // An error names the trap; the names of functions would not help an operator.
        .wasm_backtrace_max_frames(None)
        .memory_init_cow(true);
    config
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(INSTANCES)
        .total_core_instances(CORE_INSTANCES)
        .total_memories(MEMORIES)
        .total_tables(TABLES)
        .total_stacks(INSTANCES)
        .max_core_instances_per_component(PER_COMPONENT)
        .max_memories_per_component(PER_COMPONENT)
        .max_tables_per_component(PER_COMPONENT)
        .max_component_instance_size(STRUCTURES)
        .max_core_instance_size(STRUCTURES)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(MAX_MEMORY)
        .linear_memory_keep_resident(KEPT_MEMORY)
        .table_keep_resident(KEPT_TABLE)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Returns all interfaces of WASI 0.2, and of 0.3 where they can be used. What is not granted to an instance is empty or
/// fails when it is used, so that programs of any language start.
fn linker(engine: &Engine, concurrency: Concurrency) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    if concurrency == Concurrency::On {
        wasmtime_wasi::p3::add_to_linker(&mut linker)?;
        wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    }
    Ok(linker)
}
