//! One request that a worker has: its body to the worker, its response to the client, its limits, its end.

use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use dunlin_exchange::stream;
use dunlin_telemetry::ScriptContext;

use super::super::failure::Failure;
use super::super::output::Output;
use super::super::script_response::ResponseSender;
use super::InFlight;
use crate::context::Context;
use dunlin_config::Script;

/// A request that a worker has. It owns all that it needs, because it outlives the handler's future when the response is sent
/// while it is produced.
pub(super) struct BackendRun<F> {
    pub(super) ctx: Rc<Context>,
    pub(super) rules: Arc<Script>,
    /// The script's name in the log.
    pub(super) name: Arc<str>,
    pub(super) pid: i32,
    /// The script writes a whole HTTP message, which is sent as it is.
    pub(super) writes_message: bool,
    /// The response may switch to another protocol.
    pub(super) may_switch: bool,
    /// The method is HEAD: a stated length is not that of the body.
    pub(super) is_bodiless: bool,
    pub(super) script_context: Rc<ScriptContext>,
    pub(super) in_flight: F,
    /// Parts of the response that were read before.
    pub(super) early: Vec<Bytes>,
    /// The part of the request's body that is not written yet.
    pub(super) body: Option<stream::Receiver>,
    /// Takes the response's body.
    pub(super) sender: stream::Sender,
    /// Takes the response's head.
    pub(super) report: ResponseSender,
}

impl<F: InFlight> BackendRun<F> {
    /// Moves bodies until the response ends, fails or is wanted no longer.
    pub(super) async fn supervise(self) {
        let Self { ctx, rules, name, pid, script_context, in_flight, body, sender, report, .. } =
            self;
        let mut is_fed = body.is_none() && in_flight.is_written();
        let deadlines = &ctx.deadlines;
        let output = Output::new(
            deadlines,
            &name,
            in_flight,
            &sender,
            &script_context,
            self.is_bodiless,
            report,
        );
        output.begin_with(self.early);
        if self.may_switch {
            output.allow_switch();
        }
        if rules.kind.leaves_coding_to_server() {
            output.ignore_codings();
        }
        let abandoned = Abandon::when_dropped(&output.source);
        let result = {
            let feeding = pin!(feed(&output, body));
            output.transfer(feeding, &mut is_fed, self.writes_message, &rules).await
        };
        abandoned.disarm();
        script_context.log_timestamps(&name, pid);
        match result {
            Ok(()) => output.source.complete(),
            Err(failure) => {
                let is_late = matches!(failure, Failure::Late(_));
                output.fail(failure);
                output.source.fail(is_late);
            }
        }
    }
}

/// Writes the rest of the request as fast as the worker reads it.
async fn feed<F: InFlight>(output: &Output<'_, F>, body: Option<stream::Receiver>) {
    let (worker, progress) = (&output.source, || output.touch());
    let mut result = worker.write_rest(&progress).await;
    if let Some(mut body) = body {
        while result.is_ok() {
            match body.next().await {
                Ok(Some(bytes)) => result = worker.write_body(bytes, &progress).await,
                Ok(None) => {
                    result = worker.end_body().await;
                    break;
                }
                // The client has left, which the response's stream reports.
                Err(_) => return pending().await,
            }
        }
    }
    output.script_context.request_sent.set(Some(Instant::now()));
    // A worker need not read the whole request; the response shows whether it failed.
    if result.is_err() {
        pending::<()>().await;
    }
}

/// Abandons a request whose future is dropped because the client has left.
pub(super) struct Abandon<'a, F: InFlight>(Option<&'a F>);

impl<'a, F: InFlight> Abandon<'a, F> {
    pub(super) fn when_dropped(in_flight: &'a F) -> Self {
        Self(Some(in_flight))
    }

    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: InFlight> Drop for Abandon<'_, F> {
    fn drop(&mut self) {
        if let Some(in_flight) = self.0 {
            in_flight.abandon();
        }
    }
}
