//! The engine: how components are compiled, and the memory of their instances.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use wasmtime::PoolingAllocationConfig;
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel};

use crate::host::Host;
use crate::ticker::Ticker;

/// What all components of the process share.
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<Host>,
    pub(crate) ticker: Ticker,
}

/// Maximum number of instances in the process. Each has addresses for the largest memory, of which only what it uses is
/// backed by memory.
pub(crate) const INSTANCES: u32 = 2048;
/// Core instances, tables and memories: those of an instance of a component, on average.
const CORE_INSTANCES: u32 = 4 * INSTANCES;
const TABLES: u32 = 2 * INSTANCES;
const MEMORIES: u32 = INSTANCES + INSTANCES / 2;
/// Maximum of each kind in one instance of a component.
const PER_COMPONENT: u32 = 64;
/// Maximum number of elements in a table.
const TABLE_ELEMENTS: usize = 100_000;
/// Maximum size of the structures of an instance in bytes.
const STRUCTURES: usize = 4 << 20;
/// Bytes at the start of a memory and of a table that are cleared instead of returned to the system, since most instances
/// use no more.
const KEPT_MEMORY: usize = 128 << 10;
const KEPT_TABLE: usize = 8 << 10;
/// Maximum size of a memory in bytes; `memory` is a lower limit.
const MAX_MEMORY: usize = 4 << 30;

static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();

impl Runtime {
    /// Returns the runtime of the process, which the first call creates.
    ///
    /// # Errors
    /// Why the system does not permit it.
    pub(crate) fn get() -> Result<&'static Self, String> {
        RUNTIME.get_or_init(Self::new).as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Self, String> {
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        let engine = Engine::new(&config).map_err(|error| {
            format!(
                "the engine of components cannot reserve addresses ({error:#}); `limits.memory` and `ulimit -v` must not \
                 limit the addresses of the server"
            )
        })?;
        let linker = linker(&engine).map_err(|error| format!("{error:#}"))?;
        let ticker = Ticker::start(&engine).map_err(|error| format!("a thread: {error}"))?;
        Ok(Self { engine, linker, ticker })
    }
}

/// Returns an engine that compiles.
///
/// # Errors
/// Why there is none.
pub(crate) fn compiler() -> wasmtime::Result<Engine> {
    Engine::new(&config())
}

/// Identifies the code that this build of the engine generates on this machine.
pub(crate) fn compatibility(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

/// The settings that determine the code. They are those of the compiler and of the server.
fn config() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model_async(true)
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

/// All interfaces of WASI 0.2 and 0.3. What is not granted to an instance is empty or fails when it is used, so that
/// programs of any language start.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi::p3::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    Ok(linker)
}
