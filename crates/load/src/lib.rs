//! Dunlin's load generator and its comparison of servers.
//!
//! A [`plan::Plan`] says what is to be run, an [`outcome::Outcome`] what came of it. A comparison runs many
//! of them and keeps them in [`compare::results::Results`], from which its reports are made.

#[macro_use]
mod report;

pub mod arrivals;
pub mod choose;
pub mod compare;
pub mod conclude;
pub mod detect;
pub mod engine;
pub mod fail_if;
pub mod faulty;
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
pub mod self_test;
pub mod show;
pub mod silence;
pub mod time;
pub mod verdict;
pub mod verify;
