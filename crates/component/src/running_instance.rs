//! A request that an instance handles: polled by the worker that has the request, within the limits of time.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_config::Component;
use dunlin_net::deadlines::Deadlines;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::in_process::{SourceEnd, StderrLines};
use dunlin_telemetry::ScriptContext;
use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::I32Exit;

use crate::counts::{Counts, StopKind};
use crate::engine::Runtime;
use crate::host::Host;
use crate::loaded::one_line;
use crate::request_body::BodyPump;
use crate::slot::Slot;
use crate::stdio::LogOutput;
use crate::time_slice;

/// A request that an instance handles. Dropping it stops the instance.
pub(crate) struct RunningInstance<T> {
    /// It owns the instance; `None` once that has finished or was stopped.
    future: Option<Run<T>>,
    runtime: &'static Runtime,
    counts: Arc<Counts>,
    pump: Option<BodyPump>,
    log: Option<(LogOutput, StderrLines)>,
    script_context: Rc<ScriptContext>,
    /// Time for which it has run on the worker.
    cpu: Duration,
    cpu_limit: Duration,
    time_limit: Duration,
    deadlines: Rc<Deadlines>,
    began: Instant,
    /// Time in which it was not polled because the client did not read.
    paused: Duration,
    deadline: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// The run of an instance.
pub(crate) type Run<T> = Pin<Box<dyn Future<Output = Result<T, Termination>>>>;

/// Why an instance was stopped.
#[derive(Debug)]
pub(crate) enum Termination {
    /// A trap.
    Trap(StopKind, String),
    /// A limit of time.
    Late(StopKind, &'static str),
    /// The program has ended itself with this status.
    Exit(i32),
    /// The process has no room for another instance.
    NoRoom,
}

impl Termination {
    /// Returns the reason why an instance could not be created.
    pub(crate) fn instantiation(error: &wasmtime::Error, host: &Host) -> Self {
        // The engine has no type for the error of an initial memory or table that is denied.
        if host.limits.denied { Self::memory() } else { Self::new(error, host) }
    }

    /// Creates the reason why a call of an instance has failed.
    pub(crate) fn new(error: &wasmtime::Error, host: &Host) -> Self {
        if let Some(I32Exit(status)) = error.downcast_ref() {
            return Self::Exit(*status);
        }
        if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
            return Self::NoRoom;
        }
        let (kind, what) = match error.downcast_ref::<Trap>() {
            // How programs end that get no memory: they abort, or use the null pointer that they got.
            Some(Trap::UnreachableCodeReached | Trap::MemoryOutOfBounds) if host.limits.denied => {
                return Self::memory();
            }
            Some(Trap::UnreachableCodeReached) => (StopKind::Unreachable, None),
            Some(Trap::StackOverflow) => (StopKind::Stack, None),
            Some(_) => (StopKind::Other, None),
            None => (StopKind::Other, Some(format!("{error:#}"))),
        };
        let text = what.unwrap_or_else(|| error.root_cause().to_string());
        Self::Trap(kind, one_line(&text))
    }

    fn memory() -> Self {
        Self::Trap(StopKind::Memory, "it needs more than `memory`".into())
    }

    fn kind(&self) -> Option<StopKind> {
        match self {
            Self::Trap(kind, _) | Self::Late(kind, _) => Some(*kind),
            Self::Exit(_) | Self::NoRoom => None,
        }
    }

    /// Returns the failure of a request whose response had not begun.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Trap(_, why) => Failure::Stopped(why),
            Self::Late(_, why) => Failure::Late(why),
            Self::Exit(status) => Failure::Stopped(format!("it ended itself with status {status}")),
            Self::NoRoom => Failure::Busy,
        }
    }

    /// Returns the end of a CGI program.
    pub(crate) fn end(self) -> SourceEnd {
        match self {
            Self::Trap(_, why) => SourceEnd::Stopped(why),
            Self::Late(_, why) => SourceEnd::TimedOut(why),
            Self::Exit(0) => SourceEnd::Complete,
            Self::Exit(status) => SourceEnd::Status(status),
            Self::NoRoom => {
                SourceEnd::Stopped("the process has no room for another instance".into())
            }
        }
    }
}

impl<T> RunningInstance<T> {
    /// Creates a request of `call` that `future` handles. `pump` has the rest of its body.
    pub(crate) fn new(
        call: &Call<'_>,
        slot: &Slot,
        settings: &Component,
        script_context: &Rc<ScriptContext>,
        (runtime, future): (&'static Runtime, Run<T>),
        pump: Option<BodyPump>,
        log: Option<LogOutput>,
    ) -> Self {
        let lines = |log| (log, StderrLines::new(&slot.label, script_context));
        Self {
            future: Some(future),
            runtime,
            counts: Arc::clone(&slot.counts),
            pump,
            log: log.map(lines),
            script_context: Rc::clone(script_context),
            cpu: Duration::ZERO,
            cpu_limit: settings.cpu,
            time_limit: settings.time,
            deadlines: call.deadlines(),
            began: Instant::now(),
            paused: Duration::ZERO,
            deadline: None,
        }
    }

    /// Runs the instance until it waits, or its turn is over. Returns `Pending` for one that has finished before.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Termination>> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        if let Some(pump) = &mut self.pump {
            pump.poll(cx);
        }
        self.runtime.ticker.note();
        let began = Instant::now();
        time_slice::note_resumed(began);
        let polled = future.as_mut().poll(cx);
        let now = Instant::now();
        self.cpu += now - began;
        self.script_context.guest.set(Some(self.cpu));
        if let Some((output, lines)) = &mut self.log {
            let bytes = output.take();
            if !bytes.is_empty() {
                lines.take(&bytes);
            }
        }
        let result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => match self.poll_limits(now, cx) {
                Poll::Pending => {
                    // The instance may have made room.
                    if let Some(pump) = &mut self.pump {
                        pump.poll(cx);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(stop) => Err(stop),
            },
        };
        // An instance that was stopped is not used again.
        self.future = None;
        self.pump = None;
        match result.as_ref().map_err(Termination::kind) {
            Err(Some(kind)) => self.counts.count_stop(kind),
            Err(None) if matches!(result, Err(Termination::NoRoom)) => {
                Counts::add(&self.counts.rejected);
            }
            _ => {}
        }
        Poll::Ready(result)
    }

    fn poll_limits(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<Termination> {
        if self.cpu > self.cpu_limit {
            return Poll::Ready(Termination::Late(StopKind::Cpu, "it ran longer than `cpu`"));
        }
        loop {
            let end = self.began + self.time_limit + self.paused;
            if end <= now {
                return Poll::Ready(Termination::Late(
                    StopKind::Time,
                    "it took longer than `time`",
                ));
            }
            let deadline = self.deadline.get_or_insert_with(|| {
                let deadlines = Rc::clone(&self.deadlines);
                Box::pin(async move { deadlines.until(end, now).await })
            });
            if deadline.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.deadline = None;
            if self.began + self.time_limit + self.paused <= Instant::now() {
                return Poll::Ready(Termination::Late(
                    StopKind::Time,
                    "it took longer than `time`",
                ));
            }
        }
    }

    /// Records time in which the client did not read, which does not count.
    pub(crate) fn add_pause(&mut self, pause: Duration) {
        self.paused += pause;
    }
}
