//! Dunlin's load generator.
//!
//! A [`plan::Plan`] describes a run, an [`outcome::Outcome`] its result; both are schemas of the JSON output.
//! [`preflight`] checks that the plan can run, [`engine`] runs it, and [`verdict`], [`detect`] and [`fail_if`] judge
//! what was counted.

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
pub mod verdict;
pub mod verify;
