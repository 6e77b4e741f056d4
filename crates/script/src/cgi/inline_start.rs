//! Decides which processes are started on the worker thread itself.
//!
//! Starting a process takes some 50 µs if its files are in memory. On another thread it takes several context
//! switches more, a notable part of a short script's time. But the thread that starts a process blocks until the child
//! is scheduled and has called exec: milliseconds on a busy machine, or as long as a disk takes. So a
//! process is started on the worker thread only if there are no other requests and its program was started without
//! delay a moment ago.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::context::Context;

/// A start that takes longer was delayed.
const MAX_START: Duration = Duration::from_millis(20);
/// Time for which a program is expected to stay in memory.
const MEMORY_TIME: Duration = Duration::from_secs(1);
/// Programs that are remembered.
const MAX_PROGRAMS: usize = 64;

thread_local! {
    /// When each program was last started without delay.
    static STARTED: RefCell<HashMap<PathBuf, Instant>> = RefCell::default();
}

/// Returns `true` if `program` is to be started on this worker thread.
pub(super) fn is_inline(ctx: &Context, program: &Path) -> bool {
    ctx.has_programs_alone() && is_prompt(program)
}

fn is_prompt(program: &Path) -> bool {
    STARTED.with_borrow(|all| all.get(program).is_some_and(|at| at.elapsed() < MEMORY_TIME))
}

/// Notes how long it took to start `program`.
pub(super) fn note(program: &Path, took: Duration) {
    STARTED.with_borrow_mut(|all| {
        if took > MAX_START {
            all.remove(program);
        } else if let Some(at) = all.get_mut(program) {
            *at = Instant::now();
        } else {
            if all.len() >= MAX_PROGRAMS {
                all.clear();
            }
            all.insert(program.to_owned(), Instant::now());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_prompt_after_a_prompt_start_and_no_longer_after_a_slow_one() {
        let program = Path::new("/srv/a");
        assert!(!is_prompt(program), "nothing is known of it");
        note(program, Duration::from_micros(50));
        assert!(is_prompt(program));
        note(program, Duration::from_millis(50));
        assert!(!is_prompt(program));
    }

    #[test]
    fn the_list_of_programs_is_bounded() {
        for number in 0..10 * MAX_PROGRAMS {
            note(Path::new(&format!("/srv/{number}")), Duration::ZERO);
        }
        assert!(STARTED.with_borrow(HashMap::len) <= MAX_PROGRAMS);
    }
}
