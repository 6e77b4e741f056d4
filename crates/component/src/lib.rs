//! WebAssembly components as handlers within the server.
//!
//! # What it does
//! A component is instantiated for each request, in the worker that has the request, in some 10 µs. What its file exports
//! decides what it is: an HTTP handler (`wasi:http` of WASI 0.2 and 0.3), an unmodified CGI program (`wasi:cli/run`), or
//! functions that are called with JSON.
//!
//! - [`Components`] are those of the server. They are loaded from a cache of compiled code, and replaced when their files
//!   change. Compilation runs in another process, which calls [`compile()`].
//! - [`WorkerComponents`] are those of one worker, with the instances that it keeps.
//! - [`respond()`] runs a request, within limits of memory, time and CPU.
//!
//! # Contract
//! An instance has access to nothing that the configuration does not list. It is polled by the request whose response it
//! generates, without a task: dropping the response stops it. Once a tick of 1 ms it yields to the worker. An instance that
//! trapped, or was stopped, is never used again.
//!
//! The only `unsafe` code of the workspace is in `cache`: it maps compiled code into memory.

mod cache;
mod cgi;
mod changes;
mod compile;
mod counts;
mod engine;
mod exchange;
mod feed;
mod guest;
mod host;
mod instance;
mod loaded;
mod outbound;
mod proxy;
mod registry;
mod respond;
mod service;
mod slot;
mod stdio;
mod ticker;
mod turn;
mod typed;
mod worker;

pub use self::compile::{check, compile};
pub use self::registry::{ComponentReport, Components, Launcher, StartProcess};
pub use self::respond::respond;
pub use self::worker::WorkerComponents;
