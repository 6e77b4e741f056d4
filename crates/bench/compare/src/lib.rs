//! Comparison of web servers under the same load.
//!
//! # What it does
//! A [`scenario`] describes files, loads and metrics. [`run`] starts each server through its [`adapter`], runs the
//! scenario's rows in interleaved rounds with `dunlin load`, and stores everything that it measures in
//! [`results::Results`]. Reports ([`report`]), rankings ([`statistics`]) and differences between two comparisons
//! ([`diff`]) are computed from the results alone, so that a `results.json` can be reported again later.
//!
//! # Contract
//! [`run::run`] blocks until all rounds have ended, in minutes to hours. The caller is the program `dunlin`, outside of a
//! runtime: the comparison executes its own program for each load, and for Dunlin as a server. It binds servers and load
//! to the processors of [`run::Options`], so nothing else should use the machine meanwhile. Another thread or a signal handler
//! ends it by [`run::Options::stop`]; the results so far are kept.
//!
//! The reports in the directory [`run::Options::out`] are written after each round, so a comparison that is killed keeps its
//! rounds. The files and sockets of servers are in a temporary directory. [`run::run`] stops the servers and removes the
//! directory before it returns.
//!
//! An error is a sentence for the user, and means that there is no comparison. A server that is not installed, fails to start
//! or sends wrong responses is not an error: it is a cell of the results. All other modules are pure functions or read and write
//! the file that they name.
//!
//! # Example
//! ```
//! use dunlin_compare::scenario;
//!
//! let scenario = scenario::load("wasd-files")?;
//! assert!(scenario.rows.iter().all(|row| !row.paths.is_empty()));
//! # Ok::<(), String>(())
//! ```

#[macro_use(eprint, eprintln)]
extern crate dunlin_load;

pub mod adapter;
mod certificate;
pub mod diff;
mod fixture;
mod machine;
pub mod report;
mod resolver;
pub mod results;
pub mod run;
pub mod scenario;
mod server;
pub mod statistics;
