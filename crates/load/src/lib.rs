//! Dunlin's load generator and its comparison of servers.
//!
//! A [`plan::Plan`] says what is to be run, an [`outcome::Outcome`] what came of it. A comparison runs many
//! of them and keeps them in [`compare::results::Results`], from which its reports are made.

pub mod compare;
pub mod outcome;
pub mod plan;
