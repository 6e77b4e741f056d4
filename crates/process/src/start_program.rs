//! Starts programs on a thread that may do so: with seccomp, the workers may not.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc;

use tokio::sync::oneshot;

/// The one thread that may start programs. It was started before the filter that denies it to the others.
#[derive(Debug, Clone)]
pub struct Starter {
    requests: mpsc::Sender<Start>,
}

/// A command, and the channel for the resulting process.
type Start = (Command, oneshot::Sender<io::Result<Child>>);

impl Starter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system cannot create it.
    pub fn begin() -> io::Result<Self> {
        let (requests, received) = mpsc::channel::<Start>();
        let serve = move || received.into_iter().for_each(perform);
        std::thread::Builder::new().name("upgrade".into()).spawn(serve)?;
        Ok(Self { requests })
    }
}

/// Starts a program on the thread of `starter`, or on a new thread. A file system that does not respond blocks only that
/// thread.
///
/// # Errors
/// When no thread is available.
pub fn start_program(
    command: Command,
    starter: Option<&Starter>,
) -> io::Result<oneshot::Receiver<io::Result<Child>>> {
    let (result, started) = oneshot::channel();
    match starter {
        Some(Starter { requests }) => requests.send((command, result)).map_err(|_| {
            io::Error::other("the thread that starts programs has ended; restart the server")
        })?,
        None => {
            let start = move || perform((command, result));
            std::thread::Builder::new().name("upgrade".into()).spawn(start)?;
        }
    }
    Ok(started)
}

fn perform((mut command, result): Start) {
    if let Err(Ok(mut late)) = result.send(command.spawn()) {
        // The upgrade was abandoned.
        let _ = late.kill();
        let _ = late.wait();
    }
}
