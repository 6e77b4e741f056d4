//! One run of a process: its input, its output, its time limits and its end.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_exchange::{Share, stream};
use dunlin_memory::Reservation;
use dunlin_telemetry::ScriptContext;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::process::{Child, Exit, GROUP_GRACE, Process};
use crate::readiness::Readiness;
use crate::script_response::ResponseSender;
use crate::source::{Source, SourceEnd};
use crate::stderr::Stderr;
use dunlin_config::Script;

/// A process that runs a script. It owns all that it needs, because it outlives the request.
pub(super) struct CgiRun {
    pub(super) ctx: Rc<Context>,
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

/// The time that a script may take to exit after the end of its output before it counts as running in the background.
const EXIT: Duration = Duration::from_millis(100);
impl CgiRun {
    /// Runs the script to its end, whether or not the client waits for it.
    pub(super) async fn supervise(self) {
        let Self {
            ctx, rules, name, script_context, process, body, stored, sender, report, ..
        } = self;
        let Process { stdin, stdout, stderr, child, .. } = process;
        let mut stderr = Stderr::new(stderr, &name, child.id(), &script_context);
        let memory = sender.reservation();
        let source = Stdout { ctx: &ctx, pipe: stdout, child: &child, memory };
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
            let mut reading_stderr = pin!(stderr.log());
            let mut responding = pin!(output.respond(is_whole_message));
            let mut watching = pin!(output.watch(&rules));
            let (mut fed, mut is_silent, mut responded) = (false, false, false);
            let mut exited = pin!(child.exited());
            loop {
                tokio::select! {
                    biased;
                    result = &mut responding, if !responded => match result {
                        Ok(()) => {
                            responded = true;
                            output.complete();
                            watching.set(output.watch(&rules));
                        }
                        Err(failure) => break Err(failure),
                    },
                    () = &mut feeding, if !fed => {
                        fed = true;
                        watching.set(output.watch(&rules));
                    }
                    () = &mut reading_stderr, if !is_silent => is_silent = true,
                    () = sender.abandoned(), if !responded => break Err(Failure::Abandoned),
                    late = &mut watching => break Err(Failure::Late(late)),
                    _ = &mut exited, if responded => break Ok(()),
                }
            }
        };
        if let Err(failure) = result {
            if rules.show_errors {
                // The error page shows them.
                let _ = timeout(GROUP_GRACE, stderr.log()).await;
            }
            output.fail(failure);
            child.end().await;
        }
        // Reads what was written before the end; another process may hold the pipe open for longer.
        let _ = timeout(GROUP_GRACE, stderr.log()).await;
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
        output.script_context.request_sent.set(Some(output.script_context.started()));
        return;
    };
    while let Ok(Some(bytes)) = body.next().await {
        // A script need not read its input; the rest of the body is dropped.
        if write(output, &stdin, &bytes).await.is_err() {
            break;
        }
    }
    output.script_context.request_sent.set(Some(Instant::now()));
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
    ctx: &'a Context,
    pipe: pipe::Receiver,
    child: &'a Child,
    /// Limits what is read at once to the share in the budget of the client's connection.
    memory: Reservation,
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

    async fn end(&self) -> SourceEnd {
        match timeout(EXIT, self.child.exited()).await {
            Ok(Exit::Signal(signal)) => {
                SourceEnd::Truncated(format!("it was ended by signal {signal}"))
            }
            Ok(Exit::Code(0)) | Err(_) => SourceEnd::Complete,
            Ok(Exit::Code(code)) => SourceEnd::Status(code),
        }
    }
}

impl Stdout<'_> {
    /// Reads the available output; `None` at its end.
    fn try_read(&self) -> io::Result<Option<Bytes>> {
        self.ctx.with_buffer(self.memory.share(), |buffer| {
            let count = self.pipe.try_read(buffer)?;
            if count > 0 && count < buffer.len() {
                self.pipe.clear();
            }
            Ok((count > 0).then(|| Bytes::copy_from_slice(&buffer[..count])))
        })
    }
}
