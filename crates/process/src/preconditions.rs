//! Conditions of the process that a start requires: open files, a directory for temporary files, signals.

use std::os::fd::AsRawFd;

use dunlin_config::Config;
use dunlin_net::temp_files;
use nix::sys::signal::{SigSet, Signal};

use crate::error::{StartError, fail};

/// Checks that a directory for temporary files is usable: sockets of script workers need one, and long request bodies.
///
/// # Errors
/// When there is none and scripts need one.
pub fn check_temporary_files(config: &Config) -> Result<(), StartError> {
    match temp_files::check_and_report() {
        Err(error) if config.needs_sockets() => {
            Err(fail(format!("{error}; the sockets of scripts need one")))
        }
        // The cache keeps its copies in memory instead, and long request bodies are rejected.
        Err(error) => {
            tracing::warn!("{error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Descriptors of one worker: its poller, timer and wakers, and a duplicate of the notification descriptor.
const PER_WORKER: usize = 6;
/// Descriptors for connections and files, and for two scripts at once with their pipes and sockets.
const FOR_REQUESTS: usize = 8;
const FOR_SCRIPTS: usize = 16;

/// Checks that the limit of open files leaves descriptors for requests, once sockets and logs are open.
///
/// # Errors
/// When it leaves too few.
pub fn check_descriptors(config: &Config) -> Result<(), StartError> {
    let limit = dunlin_config::descriptor_limit();
    let lacking = |open: usize, needed: usize| {
        fail(format!(
            "limits: {limit} open descriptors are too few: the server itself needs {open}, requests at least {needed} \
             more; raise `limits.open_files`, or ulimit -n"
        ))
    };
    let needed = FOR_REQUESTS + if config.has_scripts() { FOR_SCRIPTS } else { 0 };
    let for_workers = config.server.threads * PER_WORKER;
    // The kernel allocates the lowest free number.
    let Ok((_, free)) = std::io::pipe() else { return Err(lacking(limit + for_workers, needed)) };
    let open = usize::try_from(free.as_raw_fd()).unwrap_or(0) + for_workers;
    match open + needed <= limit {
        true => Ok(()),
        false => Err(lacking(open, needed)),
    }
}

/// Raises the soft limit of open files to the hard limit.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // This needs no permission.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Blocks SIGCHLD in this thread and in the threads that it starts. The server learns the end of a child process by a
/// pidfd. The kernel drops an ignored signal, but not while the receiving thread blocks all signals, as it does while it
/// starts a process: another thread would then be woken only to drop the signal. [`dunlin_net::spawn`] starts programs with
/// an empty mask.
pub fn block_child_signals() {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    // This is an optimization only.
    let _ = child.thread_block();
}
