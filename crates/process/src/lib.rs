//! The server's own process, without knowledge of HTTP.
//!
//! # What it does
//! - [`sandbox`] makes the process that of another user, in a root directory, with limits; [`seccomp`] and Landlock bound what
//!   it may do, and [`access`] finds what that user may not use. [`preconditions`] checks the system.
//! - [`handover`] and [`new_process`] pass listening sockets to a new process, which takes over while both serve.
//!   [`start_program`] starts programs on a thread that may do so.
//! - [`notify`] reports to systemd, [`pid_file`] and [`socket_remover`] remove what a process leaves.
//!
//! # Contract
//! A process has one server. [`sandbox::confine`] and what follows change the process for good, on its main thread and before
//! it has others, as Landlock and seccomp apply to a thread and the threads that it starts.

pub mod access;
mod error;
pub mod handover;
pub mod inheritance;
pub mod new_process;
pub mod notify;
pub mod pid_file;
pub mod preconditions;
pub mod sandbox;
pub mod seccomp;
pub mod socket_remover;
pub mod start_program;

pub use self::error::{StartError, fail};
