//! Servers side by side: scenarios, the servers' adapters, the runs, and the report of them.

pub mod results;
