//! Operations that may wait for a disk, and operations that may not.

/// The permission of an operation to wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It may not: [`Failure::WouldBlock`](super::failure::Failure::WouldBlock) reports that it would have to wait.
    Inline,
    /// It may wait.
    Blocking,
}
