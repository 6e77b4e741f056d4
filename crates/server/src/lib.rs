//! Dunlin's server. A request flows one way: listener, transport, adapter, router, checks, handler, telemetry.
//!
//! # What it does
//! - A [`Server`] opens everything that a configuration names and serves until a signal stops it. It reloads the
//!   configuration and upgrades to a new process while it serves.
//! - [`verify`] checks the files, programs and users that a configuration names, [`certificates`] and
//!   [`unresolved_names`] its certificates and host names. [`explain()`] describes what holds for a URL.
//! - [`password`] has the hashes of user files, [`error_log`] the file of the error log.
//!
//! # Contract
//! A process has one server. Its main thread makes the calls, outside of a tokio runtime and before the process has other
//! threads, as Landlock and seccomp apply to a thread and the threads that it starts. The order is
//! [`Takeover::receive`], [`confine`], [`verify`], [`Server::start`], [`Server::run_until_signal`].
//!
//! [`confine`] and [`Server::start`] change the process for good: limits, chroot, user, signal handlers. A [`StartError`] is
//! one line for the user. The process can only end after it; the new process of an upgrade first reports it by
//! [`Takeover::failed`]. [`Server::start`] returns when all workers serve. Each worker is a thread with a runtime of its own.
//! [`Server::run_until_signal`] blocks until the server has stopped; meanwhile it reads the configuration from the
//! [`Origin`] for each reload. A configuration with problems changes nothing, and the problems are logged.
//!
//! The crate logs by `tracing`; the caller installs the subscriber. The server executes its own program again: with the
//! same arguments for an upgrade, with [`dunlin_script::LAUNCH`] to start scripts, and with `compile` for
//! [`compile_component`].
//!
//! # Example
//! ```no_run
//! use std::path::PathBuf;
//!
//! use dunlin_config::{Config, Overrides, Problem};
//! use dunlin_server::{Origin, Server, StartError, confine, load_directory};
//!
//! struct Directory(PathBuf);
//!
//! impl Origin for Directory {
//!     fn read(&self) -> Result<Config, Vec<Problem>> {
//!         load_directory(&self.0, &Overrides::default())
//!     }
//!
//!     fn applied(&self, _: &Config) {}
//! }
//!
//! let directory = Directory("/srv/www".into());
//! let config = directory.read().expect("a directory that can be served");
//! let confined = confine(&config)?;
//! let server = Server::start(config, confined, Box::new(directory), None)?;
//! println!("{}", server.urls().join("\n"));
//! server.run_until_signal(None);
//! # Ok::<(), StartError>(())
//! ```

mod checks;
mod component;
mod control;
mod disk_cache;
mod drive;
pub mod error_log;
mod exchange;
mod explain;
mod fleet;
mod handler;
mod listen;
mod maintenance;
pub mod password;
mod route;
mod server;
#[cfg(test)]
mod testing;
mod worker;

pub use component::compile_component;
pub use explain::explain;
pub use server::{
    Confined, Findings, Origin, REMOVE_SOCKETS, Server, StartError, Takeover, certificates,
    confine, hindrances, http3_notes, load_directory, reload, remove_sockets, unresolved_names,
    verify,
};
