//! Commands to the server, and where they are waited for. What is done about them is in [`crate::server`].

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// What the server can be told to do while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Read the configuration anew, and replace workers whose code has changed, or all of them.
    Reload { workers: bool },
    /// Hand over to a new process of the program.
    Upgrade,
    /// Open the access log anew.
    Reopen,
}

/// Who gets the result of a command: a sentence either way.
pub(crate) type Answer = Option<oneshot::Sender<Result<String, String>>>;

/// A command, and who hears what came of it.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) action: Action,
    /// `None` when it came by a signal.
    pub(crate) answer: Answer,
}

/// Where commands go.
#[derive(Debug, Clone)]
pub(crate) struct Commands(mpsc::UnboundedSender<Command>);

impl Commands {
    /// For a server without a control: every command fails.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self(mpsc::unbounded_channel().0)
    }

    /// Gives a command and waits for what comes of it: a sentence either way.
    pub(crate) async fn give(&self, action: Action) -> Result<String, String> {
        let (answer, answered) = oneshot::channel();
        let command = Command { action, answer: Some(answer) };
        let gone = || "the server is stopping".to_owned();
        self.0.send(command).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// What the server is to do next.
#[derive(Debug)]
pub(crate) enum Event {
    /// Finish what is under way and stop.
    Stop,
    Command(Command),
}

/// Where signals and commands are waited for.
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
    /// From here on signals are kept for later rather than ending the process.
    ///
    /// # Errors
    /// When the system lacks what it takes.
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

    /// Where others may give commands.
    pub(crate) fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// What is to be done next.
    pub(crate) async fn next(&mut self) -> Event {
        let by_signal = |action| Event::Command(Command { action, answer: None });
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            _ = self.hangup.recv() => by_signal(Action::Reload { workers: false }),
            _ = self.upgrade.recv() => by_signal(Action::Upgrade),
            _ = self.reopen.recv() => by_signal(Action::Reopen),
            // This end of the channel keeps a sender of its own: it does not end.
            Some(command) = self.given.recv() => Event::Command(command),
        }
    }
}
