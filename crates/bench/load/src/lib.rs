//! Dunlin's load generator: sends requests by a plan, measures the responses, and judges whether the figures can be used.
//!
//! # What it does
//! - A [`plan::Plan`] describes a run, an [`outcome::Outcome`] its result; both are schemas of the JSON output.
//! - An [`engine::Job`] is a plan that is prepared to run. [`preflight`] provides the descriptors and ports that it needs,
//!   [`engine::run`] runs it, and [`conclude`](conclude::conclude) makes the outcome of what was measured.
//! - [`verdict`] decides whether the figures can be used, [`detect`] finds anomalies and their likely causes, and
//!   [`fail_if`] checks conditions of the user. [`search`] finds the largest load that a server sustains.
//! - `dunlin_http` writes the requests and reads the responses of all protocols. The tests run the generator against other servers,
//!   and the server under other clients, so that the same fault in both is not hidden.
//! - [`generators`] run one plan on several machines, and [`merge`] makes one outcome of theirs.
//!
//! # Contract
//! The caller is a program of its own, not a server: a run takes the processors that it gets, and measures the processor
//! time of the whole process. [`engine::run`] blocks until the end of the run, and needs no runtime. It starts a thread for
//! each worker of the plan, and all of them have ended when it returns. [`progress::Progress`] has as many slots as the plan
//! has threads; any thread reads it meanwhile, and stops the run by [`progress::Progress::stop`], which keeps what was
//! counted.
//!
//! [`preflight::prepare`] raises the limit of descriptors of the process and may add source addresses to the plan. If
//! the target is another machine, the caller first makes sure that the user permits the load
//! ([`engine::Job::not_permitted`]).
//!
//! An error of a function means that there is no measurement. A response that is wrong or missing is not an error: the outcome
//! counts it, and its verdict is [`outcome::Verdict::WrongResponses`].
//!
//! # Example
//! ```
//! use dunlin_load::outcome::Verdict;
//! use dunlin_load::verdict::{Evidence, judge};
//!
//! let evidence = Evidence { requests: 100_000, closed: true, client_busy: 0.4, ..Evidence::default() };
//! assert_eq!(judge(&evidence).0, Verdict::Valid);
//!
//! let busy = Evidence { client_busy: 0.99, server_busy: Some(0.5), ..evidence.clone() };
//! assert_eq!(judge(&busy).0, Verdict::ClientBound, "the generator is the limit");
//!
//! let (verdict, reasons) = judge(&Evidence { errors: 1, ..evidence });
//! assert_eq!(verdict, Verdict::WrongResponses);
//! assert_eq!(reasons, ["1 failures and 100000 valid responses"]);
//! ```

#[macro_use]
pub mod stderr;

pub mod arrivals;
pub mod choose;
pub mod conclude;
pub mod detect;
pub mod engine;
pub mod fail_if;
pub mod faulty;
pub mod generators;
pub mod latency;
pub mod merge;
pub mod outcome;
pub mod plan;
pub mod preflight;
pub mod processes;
pub mod progress;
pub mod replay;
pub mod rng;
pub mod search;
pub mod segment;
pub mod self_test;
pub mod show;
pub mod silence;
#[cfg(test)]
mod testing;
pub mod time;
pub mod units;
pub mod urls;
pub mod verdict;
pub mod verify;
