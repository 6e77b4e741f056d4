//! The threads of the workers, and the commands that the server's control sends to them.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};

use super::listeners::WorkerListener;
use super::prepare::Generation;
use crate::listen::quic::QuicSocket;
use crate::listen::{self, ListenerHandle};
use crate::route::dispatch;
use crate::worker::{Timer, Worker, busy_poll};

/// The control's side of a worker.
pub(super) struct WorkerHandle {
    commands: mpsc::UnboundedSender<WorkerCommand>,
    thread: JoinHandle<()>,
}

/// A command to a worker. The worker sends its result by `done`; if it has panicked, `done` is dropped.
pub(super) enum WorkerCommand {
    /// Switch to this configuration and these listeners.
    Apply { generation: Generation, listeners: Vec<WorkerListener>, done: oneshot::Sender<()> },
    /// Stop accepting, and end when all connections are closed; see [`Worker::drain`].
    Drain {
        grace: Duration,
        /// Another process accepts from the listening sockets.
        is_replaced: bool,
    },
    /// Show that the worker is alive.
    Ping { done: oneshot::Sender<()> },
}

impl WorkerHandle {
    /// Starts the thread of worker `number`. The thread drops `alive` when it ends.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub(super) fn start(number: usize, alive: watch::Receiver<()>) -> std::io::Result<Self> {
        let (commands, received) = mpsc::unbounded_channel();
        let body = move || {
            let _alive = alive;
            run(number, received);
        };
        let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(body)?;
        Ok(Self { commands, thread })
    }

    pub(super) fn send(&self, command: WorkerCommand) {
        // It fails when the worker has panicked, which `join` reports.
        let _ = self.commands.send(command);
    }

    /// Logs a panic of a worker that has ended. Does not wait for one that has not.
    pub(super) fn join(self) {
        if self.thread.is_finished() && self.thread.join().is_err() {
            tracing::error!("a worker panicked; this is a bug");
        }
    }
}

/// Runs a worker until it is drained or the server is dropped.
fn run(number: usize, mut commands: mpsc::UnboundedReceiver<WorkerCommand>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(16)
        // Serve everything that one poll of the sockets has found before the next poll.
        .event_interval(1024)
        .global_queue_interval(1024)
        .on_thread_park(busy_poll::before_sleep)
        .on_thread_unpark(busy_poll::after_poll)
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("worker {number} cannot start: {error}");
            return;
        }
    };
    runtime.block_on(async move {
        let timer = match Timer::new() {
            Ok(timer) => timer,
            Err(error) => {
                tracing::error!("worker {number} cannot start: timerfd: {error}");
                return;
            }
        };
        let worker = Worker::new(number, &dispatch::ROUTER);
        tokio::task::spawn_local(Rc::clone(&worker).tick(timer));
        tokio::task::spawn_local(busy_poll::stay_awake());
        let mut handles: HashMap<u64, Rc<ListenerHandle>> = HashMap::new();
        // The channel closes when the server is dropped.
        while let Some(command) = commands.recv().await {
            match command {
                WorkerCommand::Apply { generation, listeners, done } => {
                    apply(&worker, generation);
                    update_listeners(&worker, &mut handles, listeners);
                    // The control may have stopped waiting.
                    let _ = done.send(());
                }
                WorkerCommand::Ping { done } => {
                    // The control may have stopped waiting.
                    let _ = done.send(());
                }
                WorkerCommand::Drain { grace, is_replaced } => {
                    if !is_replaced {
                        handles.values().for_each(|handle| handle.close());
                    }
                    worker.drain(grace).await;
                    return;
                }
            }
        }
    });
}

/// Switches `worker` to `generation`. The first one also starts the worker's permanent tasks.
fn apply(worker: &Rc<Worker>, generation: Generation) {
    let Generation { shared, logs, .. } = generation;
    if worker.current().is_none() {
        let limiter = Arc::clone(&shared.limiter);
        tokio::task::spawn_local(Rc::clone(worker).evict(Arc::clone(&limiter)));
        tokio::task::spawn_local(Rc::clone(worker).release_descriptors(limiter));
        if let Some(watch) = shared.files.watch.clone() {
            tokio::task::spawn_local(Rc::clone(worker).follow_changes(Arc::clone(&watch)));
            tokio::task::spawn_local(Rc::clone(worker).follow_mounts(watch));
        }
    }
    worker.apply(shared, &logs);
}

/// Starts accepting from new listeners, and closes removed ones.
fn update_listeners(
    worker: &Rc<Worker>,
    handles: &mut HashMap<u64, Rc<ListenerHandle>>,
    listeners: Vec<WorkerListener>,
) {
    handles.retain(|id, handle| {
        let stays = listeners.iter().any(|listener| listener.id == *id);
        if !stays {
            handle.close();
        }
        stays
    });
    for WorkerListener { id, rules, sockets, quic } in listeners {
        if let Some(handle) = handles.get(&id) {
            handle.change(rules);
            begin_quic(worker, handle, quic);
            continue;
        }
        let handle = ListenerHandle::new(rules);
        begin_quic(worker, &handle, quic);
        for socket in sockets {
            let accepting = listen::accept(Rc::clone(worker), Rc::clone(&handle), socket);
            tokio::task::spawn_local(async move {
                if let Err(error) = accepting.await {
                    tracing::error!("a listener stopped accepting: {error}");
                }
            });
        }
        handles.insert(id, handle);
    }
}

/// Starts HTTP/3 on a listener, if it gets a socket for that.
fn begin_quic(worker: &Rc<Worker>, handle: &Rc<ListenerHandle>, socket: Option<QuicSocket>) {
    let Some(socket) = socket else { return };
    match listen::quic::serve(worker, handle, socket) {
        Ok(endpoint) => handle.set_endpoint(&endpoint),
        Err(error) => tracing::error!("a listener has no HTTP/3: {error}"),
    }
}
