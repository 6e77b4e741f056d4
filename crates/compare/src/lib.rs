//! Comparison of web servers under the same load.
//!
//! A [`scenario`] describes files, loads and metrics. [`run`] starts each server through its [`adapter`], runs the
//! scenario's rows in interleaved rounds with `dunlin load`, and stores everything that it measures in
//! [`results::Results`]. Reports ([`report`]), rankings ([`statistics`]) and differences between two comparisons
//! ([`diff`]) are computed from the results alone, so that a `results.json` can be reported again later.
//!
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
