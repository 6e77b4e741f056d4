//! Components that are CGI programs (RFC 3875): they get variables and standard input, and write to standard output.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_exchange::{Incoming, stream};
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::in_process::{ResolvedScript, Source, SourceEnd};
use dunlin_script::outcome::Outcome;
use wasmtime_wasi::p2::bindings::CommandPre as CommandPre2;
use wasmtime_wasi::p3::bindings::CommandPre as CommandPre3;

use crate::host::Host;
use crate::instance::{InstanceRequest, log_output};
use crate::loaded::Loaded;
use crate::request_body::RequestBodySource;
use crate::running_instance::{Run, RunningInstance, Termination};
use crate::slot::Slot;
use crate::stdio::{Stdin, Stdout};
use crate::worker::Route;

/// The version of the interface of a program.
pub(crate) enum Command<'a> {
    Sync(&'a CommandPre2<Host>),
    Async(&'a CommandPre3<Host>),
}

/// Bytes of output that the client has not taken.
const OUTPUT: usize = 64 * 1024;

/// Responds by the program.
///
/// # Errors
/// Why there is no response.
pub(crate) async fn respond(
    call: &Call<'_>,
    mut incoming: Box<Incoming>,
    route: &Rc<Route>,
    (slot, located): (&Slot, &ResolvedScript),
    loaded: &Arc<Loaded>,
    command: Command<'_>,
) -> Result<Outcome, Failure> {
    let length = call.receive(&mut incoming).await?;
    let settings = route.settings()?;
    let log = log_output(settings);
    let variables = call.variables(&incoming, located, length);
    let (feed, pump) = RequestBodySource::new(call.take_body(&mut incoming));
    let (sender, output) = stream::channel_of_connection(OUTPUT);
    let start = InstanceRequest::new(route, slot, loaded, &incoming.script_context, |wasi| {
        wasi.envs(&variables)
            .arg(&*slot.label)
            .args(&call.words(located))
            .stdin(Stdin::new(feed))
            .stdout(Stdout { sender: Arc::new(sender) });
        if let Some(log) = &log {
            wasi.stderr(log.clone());
        }
    })?;
    let runtime = start.runtime;
    let run = match command {
        Command::Sync(pre) => run(start, pre.clone()),
        Command::Async(pre) => run_async(start, pre.clone()),
    };
    let context = &incoming.script_context;
    let instance = RunningInstance::new(call, slot, settings, context, (runtime, run), pump, log);
    let state = State { instance, output, end: None };
    call.respond_within(incoming, &slot.label, Running(RefCell::new(state))).await
}

fn run(mut start: InstanceRequest, pre: CommandPre2<Host>) -> Run<()> {
    Box::pin(async move {
        let (mut store, command) =
            start.fresh(async |store| pre.instantiate_async(store).await).await?;
        let result = command.wasi_cli_run().call_run(&mut store).await;
        result
            .map_err(|error| Termination::new(&error, store.data()))?
            .map_err(|()| Termination::Exit(1))
    })
}

fn run_async(mut start: InstanceRequest, pre: CommandPre3<Host>) -> Run<()> {
    Box::pin(async move {
        let (mut store, command) =
            start.fresh(async |store| pre.instantiate_async(store).await).await?;
        let result = store.run_concurrent(async |accessor| {
            let result = command.wasi_cli_run().call_run(accessor).await?;
            // Its tasks may still write.
            poll_fn(|cx| accessor.poll_no_interesting_tasks(cx)).await;
            wasmtime::error::Ok(result)
        });
        let result = result.await.flatten();
        result
            .map_err(|error| Termination::new(&error, store.data()))?
            .map_err(|()| Termination::Exit(1))
    })
}

/// A program that runs, as the source of its output.
struct Running(RefCell<State>);

struct State {
    instance: RunningInstance<()>,
    output: stream::Receiver,
    /// The end of the program's output.
    end: Option<SourceEnd>,
}

impl State {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // First what is there, so that the program does not get ahead of the client.
        if let Poll::Ready(Ok(Some(bytes))) = self.output.poll_next(cx) {
            return Poll::Ready(Some(bytes));
        }
        if self.end.is_none()
            && let Poll::Ready(result) = self.instance.poll(cx)
        {
            self.end = Some(result.map_or_else(Termination::end, |()| SourceEnd::Complete));
        }
        match self.output.poll_next(cx) {
            Poll::Ready(Ok(Some(bytes))) => Poll::Ready(Some(bytes)),
            // The sender was dropped with the instance.
            _ if self.end.is_some() => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }
}

impl Source for Running {
    async fn read(&self) -> Option<Bytes> {
        poll_fn(|cx| self.0.borrow_mut().poll_read(cx)).await
    }

    async fn end(&self) -> SourceEnd {
        self.0.borrow().end.clone().unwrap_or(SourceEnd::Complete)
    }
}
