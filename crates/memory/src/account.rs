//! The sum of all reservations, and the limit.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use super::thread::{self, OWN};

/// Growth of a thread's reservations after which it compares the sum with the limit.
pub const STEP: i64 = 1 << 20;

/// A counter with a cache line of its own.
#[repr(align(128))]
struct Cell(AtomicI64);

/// Number of cells. Further threads share them.
const CELLS: usize = 64;

static HELD: [Cell; CELLS] = [const { Cell(AtomicI64::new(0)) }; CELLS];
static THREADS: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static IS_EXHAUSTED: AtomicBool = AtomicBool::new(false);
static WAS_REPORTED: AtomicBool = AtomicBool::new(false);
static REJECTED: AtomicU64 = AtomicU64::new(0);

/// A change to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The memory is exhausted.
    Exhausted,
    /// There is memory again.
    Available,
}

/// Returns the cell of a new thread.
pub(crate) fn next_cell() -> usize {
    THREADS.fetch_add(1, Ordering::Relaxed) % CELLS
}

/// Counts a change of a reservation.
pub(crate) fn change(bytes: i64) {
    // A reservation may be dropped while its thread ends.
    let counted = OWN.try_with(|own| (own.cell, own.count(bytes)));
    let (cell, is_due) = counted.unwrap_or((0, false));
    if let Some(Cell(held)) = HELD.get(cell) {
        held.fetch_add(bytes, Ordering::Relaxed);
    }
    if is_due {
        update();
    }
}

/// Returns the bytes of all reservations.
pub fn held() -> u64 {
    let used = THREADS.load(Ordering::Relaxed).clamp(1, CELLS);
    let sum: i64 = HELD.iter().take(used).map(|Cell(held)| held.load(Ordering::Relaxed)).sum();
    // The cells are not read at one time.
    u64::try_from(sum).unwrap_or(0)
}

/// Sets the limit of the process in bytes. Without it there is none.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Ordering::Relaxed);
    update();
}

/// Returns the limit of the process in bytes.
pub fn limit() -> u64 {
    LIMIT.load(Ordering::Relaxed)
}

/// Returns `true` if the reservations exceed the limit, so that new work is to be rejected.
#[inline]
pub fn is_exhausted() -> bool {
    thread::is_exhausted().unwrap_or_else(|| IS_EXHAUSTED.load(Ordering::Relaxed))
}

/// Compares the sum with the limit.
pub fn update() {
    let was_exhausted = IS_EXHAUSTED.load(Ordering::Relaxed);
    let is_exhausted = exceeds(held(), limit(), was_exhausted);
    if is_exhausted != was_exhausted {
        IS_EXHAUSTED.store(is_exhausted, Ordering::Relaxed);
    }
}

/// Returns `true` if `held` bytes exceed the limit. The memory is available again an eighth below it, so that the state does
/// not change with each chunk.
pub(crate) fn exceeds(held: u64, limit: u64, was_exhausted: bool) -> bool {
    if was_exhausted { held > limit - limit / 8 } else { held > limit }
}

/// Counts work that was rejected because the memory is exhausted.
pub fn reject() {
    REJECTED.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of rejections since the start.
pub fn rejected() -> u64 {
    REJECTED.load(Ordering::Relaxed)
}

/// Returns a change since the last call of any thread, once.
pub fn take_change() -> Option<Change> {
    let is_exhausted = IS_EXHAUSTED.load(Ordering::Relaxed);
    if WAS_REPORTED.load(Ordering::Relaxed) == is_exhausted
        || WAS_REPORTED.swap(is_exhausted, Ordering::Relaxed) == is_exhausted
    {
        return None;
    }
    Some(if is_exhausted { Change::Exhausted } else { Change::Available })
}
