//! Load from several machines: a coordinator, its generators, and the links between them.
//!
//! Each generator sends a [`Segment`](crate::segment::Segment) of one plan, from an instant on which all agree.
//! [`coordinator`] decides as a state machine without I/O; [`session`] runs it over [`link`]s, which [`ssh`] or NATS
//! provide; [`generator`] is the other end. [`crate::merge`] makes one outcome of theirs.

pub mod coordinator;
pub mod generator;
pub mod link;
#[cfg(feature = "nats")]
pub mod nats;
mod offset;
pub mod protocol;
pub mod session;
pub mod ssh;
