//! One run of a process: its input, its output, its time limits and its end.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::config::Script;
use crate::exchange::stream;
use crate::handler::script::Failure;
use crate::handler::script::output::{End, Output, ResponseSender, Source};
use crate::handler::script::process::{Child, Exit, GROUP_GRACE, Process};
use crate::handler::script::readiness::Readiness;
use crate::handler::script::spool::Share;
use crate::handler::script::stderr::Stderr;
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// A process that runs a script. It owns all that it needs, because it outlives the request.
pub(super) struct Run {
    pub(super) ctx: Rc<WorkerContext>,
    pub(super) rules: Arc<Script>,
    /// The script's name in the log.
    pub(super) name: Arc<str>,
    /// The script writes a whole HTTP message, which is sent as it is.
    pub(super) is_whole_message: bool,
    /// The method is HEAD: a Content-Length does not describe the output.
    pub(super) is_bodiless: bool,
    pub(super) script_context: Rc<ScriptContext>,
    pub(super) process: Process,
    /// The request's body.
    pub(super) body: stream::Receiver,
    /// The body's share of the spool, until the process has ended.
    pub(super) stored: Option<Share>,
    /// Takes the response's body.
    pub(super) sender: stream::Sender,
    pub(super) report: ResponseSender,
}

/// How long a script may take to exit after the end of its output before it counts as running in the background.
const EXIT: Duration = Duration::from_millis(100);
impl Run {
    /// Runs the script to its end, whether or not the client waits for it.
    pub(super) async fn supervise(self) {
        let Self {
            ctx, rules, name, script_context, process, body, stored, sender, report, ..
        } = self;
        let Process { stdin, stdout, stderr, child, .. } = process;
        let mut stderr = Stderr::new(stderr, &name, child.id(), &script_context);
        let source = Stdout { ctx: &ctx, pipe: stdout, child: &child };
        let output = Output::new(
            &ctx.deadlines,
            &name,
            source,
            &sender,
            &script_context,
            self.is_bodiless,
            report,
        );
        let is_whole_message = self.is_whole_message;
        let result = {
            let mut feeding = pin!(feed(&output, stdin, body));
            let mut listening = pin!(stderr.listen());
            let mut answering = pin!(output.answer(is_whole_message));
            let mut watching = pin!(output.watch(&rules));
            let (mut fed, mut heard, mut answered) = (false, false, false);
            let mut exited = pin!(child.exited());
            loop {
                tokio::select! {
                    biased;
                    result = &mut answering, if !answered => match result {
                        Ok(()) => {
                            answered = true;
                            output.complete();
                            watching.set(output.watch(&rules));
                        }
                        Err(failure) => break Err(failure),
                    },
                    () = &mut feeding, if !fed => {
                        fed = true;
                        watching.set(output.watch(&rules));
                    }
                    () = &mut listening, if !heard => heard = true,
                    () = sender.abandoned(), if !answered => break Err(Failure::Abandoned),
                    late = &mut watching => break Err(Failure::Late(late)),
                    _ = &mut exited, if answered => break Ok(()),
                }
            }
        };
        if let Err(failure) = result {
            if rules.show_errors {
                // The error page shows them.
                let _ = timeout(GROUP_GRACE, stderr.listen()).await;
            }
            output.fail(failure);
            child.end().await;
        }
        // Reads what was written before the end; another process may hold the pipe open for longer.
        let _ = timeout(GROUP_GRACE, stderr.listen()).await;
        script_context.log_timestamps(&name, child.id());
        drop(output);
        child.reap();
        drop(stored);
    }
}

/// Writes the request's body to the script as fast as it reads.
async fn feed(
    output: &Output<'_, Stdout<'_>>,
    stdin: Option<pipe::Sender>,
    mut body: stream::Receiver,
) {
    let Some(stdin) = stdin else {
        // There is no body.
        output.script_context.handed_over.set(Some(output.script_context.started()));
        return;
    };
    while let Ok(Some(bytes)) = body.next().await {
        // A script need not read its input; the rest of the body is dropped.
        if write(output, &stdin, &bytes).await.is_err() {
            break;
        }
    }
    output.script_context.handed_over.set(Some(Instant::now()));
}

async fn write(
    output: &Output<'_, Stdout<'_>>,
    stdin: &pipe::Sender,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stdin.try_write(bytes) {
            Ok(count) => {
                bytes = &bytes[count..];
                output.touch();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => stdin.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The standard output of a process.
struct Stdout<'a> {
    ctx: &'a WorkerContext,
    pipe: pipe::Receiver,
    child: &'a Child,
}

impl Source for Stdout<'_> {
    async fn read(&self) -> Option<Bytes> {
        loop {
            match self.try_read() {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
            if self.pipe.readable().await.is_err() {
                return None;
            }
        }
    }

    async fn end(&self) -> End {
        match timeout(EXIT, self.child.exited()).await {
            Ok(Exit::Signal(signal)) => End::Cut(format!("it was ended by signal {signal}")),
            Ok(Exit::Code(0)) | Err(_) => End::Well,
            Ok(Exit::Code(code)) => End::Status(code),
        }
    }
}

impl Stdout<'_> {
    /// Reads what is there; `None` at the end.
    fn try_read(&self) -> io::Result<Option<Bytes>> {
        let mut buffers = self.ctx.take_buffers();
        let result = self.pipe.try_read(&mut buffers.input);
        if result.as_ref().is_ok_and(|&count| count > 0 && count < buffers.input.len()) {
            self.pipe.clear();
        }
        let result = result
            .map(|count| (count > 0).then(|| Bytes::copy_from_slice(&buffers.input[..count])));
        self.ctx.give_buffers(buffers);
        result
    }
}
