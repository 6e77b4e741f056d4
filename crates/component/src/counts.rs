//! The counts of a component, over all workers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a component.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Instances that handle a request or are kept.
    pub(crate) live: AtomicU64,
    /// Requests that a new instance handled.
    pub(crate) fresh: AtomicU64,
    /// Requests that a kept instance handled.
    pub(crate) reused: AtomicU64,
    /// Requests that were rejected because all instances were in use.
    pub(crate) rejected: AtomicU64,
    /// Requests whose instance was stopped, by reason.
    pub(crate) stops: [AtomicU64; StopKind::ALL.len()],
    /// Largest memory of an instance in bytes.
    pub(crate) memory_peak: AtomicU64,
}

/// Why an instance was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopKind {
    /// A memory or table reached its limit.
    Memory,
    /// It ran longer than `cpu`.
    Cpu,
    /// It took longer than `time`.
    Time,
    /// The code has an instruction that must not be reached: most languages end so after a panic.
    Unreachable,
    /// The calls were nested too deeply.
    Stack,
    /// Any other trap.
    Other,
}

impl StopKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Memory, Self::Cpu, Self::Time, Self::Unreachable, Self::Stack, Self::Other];

    /// Returns the name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Time => "time",
            Self::Unreachable => "unreachable",
            Self::Stack => "stack",
            Self::Other => "other",
        }
    }
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(counter: &AtomicU64) {
        counter.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stop(&self, kind: StopKind) {
        Self::add(&self.stops[kind as usize]);
    }
}
