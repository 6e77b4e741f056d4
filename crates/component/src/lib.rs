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
//! `registry` has the slot of each file: the version that handles requests. `changes` waits for changes of the files,
//! `compile` has a changed file compiled by another process, and `cache` loads the result. `engine` has the two engines of
//! the process: components with interfaces of WASI 0.3 need one that accounts for concurrent calls. A `RunningInstance` is a
//! request that an instance handles; it is polled by the request, or by the body of its response (`exchange`). `ticker`
//! interrupts instances every millisecond, and `time_slice` makes them wait while the worker has other work. `request_body` connects
//! bodies of the worker, which stay on its thread, to the data of an instance.
//!
//! # Contract
//! [`Components`] are shared by threads. [`Components::prepare`] blocks until the components of a configuration are compiled
//! and loaded, so it runs on a thread that no request waits for; from then on a thread follows the files.
//! [`WorkerComponents`] belong to one worker and one configuration. [`respond()`] is called within the worker's runtime, in
//! which `spawn_local` is possible.
//!
//! An instance has access to nothing that the configuration does not list. It is polled by the request whose response it
//! generates, without a task: dropping the response stops it. Once a tick of 1 ms it yields to the worker. An instance that
//! trapped, or was stopped, is never used again.
//!
//! An error of [`Components::prepare`] is a sentence for the user, and the configuration cannot be used. A
//! [`Failure`](dunlin_script::failure::Failure) of [`respond()`] has the status of the error page, which the caller makes.
//!
//! The only `unsafe` code of the workspace is in `cache`: it maps compiled code into memory.
//!
//! # Example
//! ```
//! use std::path::Path;
//! use std::process::Command;
//!
//! use dunlin_component::{Components, Launcher, check};
//! use dunlin_config::{Config, Overrides};
//!
//! // A module is not a component.
//! assert!(check(b"\0asm\x0d\0\x01\0").is_ok());
//! assert!(check(b"\0asm\x01\0\0\0").is_err());
//!
//! let start = |mut command: Command| command.spawn();
//! let program = std::env::current_exe().ok();
//! let components = Components::new(Launcher { program, start: Box::new(start) });
//! let text = "[[listen]]\naddress = '127.0.0.1:8080'\n[[site]]\nroot = '/srv/www'\n";
//! let config = Config::parse(text, Path::new("/etc/dunlin.toml"), &Overrides::default());
//! components.prepare(&config.expect("a valid configuration"))?;
//! assert!(components.report().is_empty(), "the configuration has no components");
//! # Ok::<(), String>(())
//! ```

mod cache;
mod cgi;
mod changes;
mod compile;
mod counts;
mod engine;
mod error_code;
mod exchange;
mod host;
mod instance;
mod loaded;
mod outbound;
mod proxy;
mod registry;
mod request_body;
mod respond;
mod running_instance;
mod service;
mod shelf;
mod slot;
mod stdio;
mod ticker;
mod time_slice;
mod typed;
mod worker;

pub use self::compile::{check, compile};
pub use self::registry::{ComponentReport, Components, Launcher, StartProcess};
pub use self::respond::respond;
pub use self::worker::WorkerComponents;
