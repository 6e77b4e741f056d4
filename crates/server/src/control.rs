//! Commands and signals to the server. [`crate::server`] executes them.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Actions of a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reload the configuration, and replace script workers whose code has changed, or all of them.
    Reload { workers: bool },
    /// Upgrade to a new process.
    Upgrade,
    /// Reopen the log files.
    Reopen,
}

/// Sends the result of a command, a sentence either way; `None` for a signal.
pub(crate) type ResultSender = Option<oneshot::Sender<Result<String, String>>>;

/// A command, and where its result goes.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) action: Action,
    pub(crate) result: ResultSender,
}

/// Sends commands.
#[derive(Debug, Clone)]
pub(crate) struct Commands(mpsc::UnboundedSender<Command>);

impl Commands {
    /// For a server without a control: every command fails.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self(mpsc::unbounded_channel().0)
    }

    /// Sends a command and waits for its result.
    pub(crate) async fn give(&self, action: Action) -> Result<String, String> {
        let (sender, result) = oneshot::channel();
        let command = Command { action, result: Some(sender) };
        let gone = || "the server is stopping".to_owned();
        self.0.send(command).map_err(|_| gone())?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The next event for the server.
#[derive(Debug)]
pub(crate) enum Event {
    /// Finish responses in progress and stop.
    Stop,
    Command(Command),
}

/// Receives signals and commands.
pub(crate) struct Control {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    upgrade: Signal,
    reopen: Signal,
    commands: Commands,
    given: mpsc::UnboundedReceiver<Command>,
}

impl Control {
    /// Installs the signal handlers: from now on, signals are queued.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub(crate) fn new() -> io::Result<(Runtime, Self)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let (commands, given) = mpsc::unbounded_channel();
        let control = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            reopen: signal(SignalKind::user_defined1())?,
            commands: Commands(commands),
            given,
        };
        drop(entered);
        Ok((runtime, control))
    }

    /// Returns a sender of commands.
    pub(crate) fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Event {
        let by_signal = |action| Event::Command(Command { action, result: None });
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            _ = self.hangup.recv() => by_signal(Action::Reload { workers: false }),
            _ = self.upgrade.recv() => by_signal(Action::Upgrade),
            _ = self.reopen.recv() => by_signal(Action::Reopen),
            // The channel never closes, as `self` keeps a sender.
            Some(command) = self.given.recv() => Event::Command(command),
        }
    }
}
