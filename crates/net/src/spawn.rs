//! Starting programs.

use std::io;
use std::process::{Child, Command};

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

/// Starts the program of `command` with an empty signal mask.
///
/// A child process inherits the signal mask of the thread that starts it, and the threads of the server block SIGCHLD.
/// The standard library resets only the disposition of SIGPIPE.
///
/// # Errors
/// Those of [`Command::spawn`], and when the signal mask cannot be changed.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _mask = EmptyMask::set()?;
    command.spawn()
}

/// An empty signal mask of this thread. Dropping it restores the previous mask.
struct EmptyMask {
    previous: SigSet,
}

impl EmptyMask {
    fn set() -> io::Result<Self> {
        let mut previous = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), Some(&mut previous))?;
        Ok(Self { previous })
    }
}

impl Drop for EmptyMask {
    fn drop(&mut self) {
        // It was accepted as a mask before.
        let _ = self.previous.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn a_program_starts_with_an_empty_mask_and_the_thread_keeps_its_own() {
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGCHLD);
        blocked.add(Signal::SIGUSR1);
        blocked.thread_block().unwrap();
        let mut command = Command::new("/bin/grep");
        command.args(["SigBlk", "/proc/self/status"]).stdout(std::process::Stdio::piped());
        let output = spawn(&mut command).unwrap().wait_with_output().unwrap();
        assert_eq!(output.stdout, b"SigBlk:\t0000000000000000\n");
        let mask = SigSet::thread_get_mask().unwrap();
        assert!(mask.contains(Signal::SIGCHLD) && mask.contains(Signal::SIGUSR1));
    }
}
