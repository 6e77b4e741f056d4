//! Which processes are started on the loop itself.
//!
//! To start a process takes some 50 µs when what it is loaded from is in memory. To have another thread
//! do it takes several changes of threads besides, which is a notable part of what a short script takes.
//! But whoever starts a process waits until that has been given a processor and has begun with its
//! program: milliseconds, when all processors have enough to do, or as long as a disk takes. So it is
//! done on the loop only when nobody but such scripts' clients waits for the loop, and for a program that
//! was started a moment ago without delay.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::worker::WorkerContext;

/// A start that took longer had to wait for more than a processor.
const PROMPT: Duration = Duration::from_millis(20);
/// For so long a program is expected to be in memory still.
const FRESH: Duration = Duration::from_secs(1);
/// Programs that are known.
const MOST: usize = 64;

thread_local! {
    /// When programs were last started without delay.
    static STARTED: RefCell<HashMap<PathBuf, Instant>> = RefCell::default();
}

/// Whether to start `program` on this loop.
pub(super) fn is_here(ctx: &WorkerContext, program: &Path) -> bool {
    ctx.has_programs_alone() && is_prompt(program)
}

fn is_prompt(program: &Path) -> bool {
    STARTED.with_borrow(|all| all.get(program).is_some_and(|at| at.elapsed() < FRESH))
}

/// Notes that it took so long to start `program`.
pub(super) fn note(program: &Path, took: Duration) {
    STARTED.with_borrow_mut(|all| {
        if took > PROMPT {
            all.remove(program);
        } else if let Some(at) = all.get_mut(program) {
            *at = Instant::now();
        } else {
            if all.len() >= MOST {
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
    fn what_is_known_of_programs_is_bounded() {
        for number in 0..10 * MOST {
            note(Path::new(&format!("/srv/{number}")), Duration::ZERO);
        }
        assert!(STARTED.with_borrow(HashMap::len) <= MOST);
    }
}
