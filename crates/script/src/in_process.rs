//! Scripts that run within the server's process, as far as they are scripts like the others: CGI variables, request fields,
//! request bodies, output and standard error. What runs them is another crate.

use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use dunlin_exchange::{Incoming, stream};
use dunlin_http::semantics::Method;
use dunlin_net::deadlines::Deadlines;
use dunlin_telemetry::ScriptContext;

pub use super::resolved_script::ResolvedScript;
pub use super::source::{Source, SourceEnd};

use super::call::Call;
use super::failure::Failure;
use super::outcome::Outcome;
use super::output::Output;
use super::reply::{self, DOWNLOAD};
use super::request_fields::ForwardedFields;
use super::script_response::{ResponseSender, response_channel};
use super::stderr::Lines;
use super::variables::Treatment;
use super::{arguments, environment, request_id, spool};

impl Call<'_> {
    /// Begins a request for a script within the server's process: sets its id, sends Early Hints.
    pub fn begin_within(&self, incoming: &Incoming) {
        self.begin(incoming);
    }

    /// Returns the deadlines of the worker.
    pub fn deadlines(&self) -> Rc<Deadlines> {
        Rc::clone(&self.scripts.ctx.deadlines)
    }

    /// Receives the request body, unless the route streams it. Returns its length; `None` if there is no body, or if the
    /// length of a streamed body is unknown.
    ///
    /// # Errors
    /// Why the body could not be received.
    pub async fn receive(&self, incoming: &mut Incoming) -> Result<Option<u64>, Failure> {
        spool::with_known_length(self, incoming).await
    }

    /// Takes the request body, wherever it is.
    pub fn take_body(&self, incoming: &mut Incoming) -> stream::Receiver {
        spool::take_stream(&self.scripts.ctx, incoming)
    }

    /// Returns the variables of a CGI program (RFC 3875 §4). `length` is that of the body. Names and values that are not
    /// UTF-8 have replacement characters.
    pub fn variables(
        &self,
        incoming: &Incoming,
        located: &ResolvedScript,
        length: Option<u64>,
    ) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let variables = environment::variables(self, incoming, located, length);
        variables.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    /// Returns the words of the command line of a CGI program (RFC 3875 §4.4).
    pub fn words(&self, located: &ResolvedScript) -> Vec<String> {
        let words = arguments::arguments(&self.request, environment::query(self, located));
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Calls `add` with each field of the request that a script may have, and with those that the server adds: those of
    /// authentication, the request id and the trace. Fields of the connection are left out, and so are those that only a trusted proxy may set.
    pub fn each_field(&self, incoming: &Incoming, mut add: impl FnMut(&[u8], &[u8])) {
        let client = self.client(incoming);
        let forwarded = ForwardedFields::of(self, client);
        let mut lower = Vec::new();
        for (name, value) in self.request.joined_fields() {
            lower.clear();
            lower.extend(name.iter().map(u8::to_ascii_lowercase));
            // They have a variable of their own in CGI.
            let is_content = matches!(&*lower, b"content-type" | b"content-length");
            if is_content || forwarded.treatment(&lower) != Treatment::Omit {
                add(&lower, &value);
            }
        }
        if let Some(checked) = self.checked {
            for (name, value) in checked.request_fields().iter() {
                add(&name.to_ascii_lowercase(), value);
            }
        }
        let script_context = &incoming.script_context;
        add(b"x-request-id", script_context.id().as_bytes());
        add(b"traceparent", request_id::traceparent(&self.request, script_context).as_bytes());
    }

    /// Responds with the output of a CGI program (RFC 3875 §6) that runs within the server's process. `source` is polled
    /// until its output ends, within the time limits of the script.
    ///
    /// # Errors
    /// Why the script gives no response.
    pub async fn respond_within<S: Source + 'static>(
        &self,
        incoming: Box<Incoming>,
        name: &Arc<str>,
        source: S,
    ) -> Result<Outcome, Failure> {
        let (sender, receiver) = stream::channel_of_connection(DOWNLOAD);
        let (report, receive_response) = response_channel(&incoming);
        let run = forward(Forwarding {
            deadlines: self.deadlines(),
            name: Arc::clone(name),
            is_bodiless: self.request.method() == Method::Head,
            script_context: Rc::clone(&incoming.script_context),
            source,
            sender,
            report,
        });
        let written = reply::receive(run, receive_response).await?;
        Ok(reply::outcome(self, incoming, written, receiver))
    }
}

/// The output of a script on its way to the client.
struct Forwarding<S> {
    deadlines: Rc<Deadlines>,
    name: Arc<str>,
    is_bodiless: bool,
    script_context: Rc<ScriptContext>,
    source: S,
    sender: stream::Sender,
    report: ResponseSender,
}

async fn forward<S: Source>(forwarding: Forwarding<S>) {
    let Forwarding { deadlines, name, is_bodiless, script_context, source, sender, report } =
        forwarding;
    let output =
        Output::new(&deadlines, &name, source, &sender, &script_context, is_bodiless, report);
    let result = {
        let mut responding = pin!(output.respond(false));
        tokio::select! {
            biased;
            result = &mut responding => result,
            () = sender.abandoned() => Err(Failure::Abandoned),
        }
    };
    if let Err(failure) = result {
        output.fail(failure);
    }
}

/// The standard error of a script within the server's process. Its lines are logged, up to a limit.
pub struct StderrLines(Lines<Arc<str>, Rc<ScriptContext>>);

impl StderrLines {
    /// Lines that the script `name` writes for a request.
    pub fn new(name: &Arc<str>, script_context: &Rc<ScriptContext>) -> Self {
        // The process of a server never forks without executing a program.
        static PID: LazyLock<i32> =
            LazyLock::new(|| i32::try_from(std::process::id()).unwrap_or_default());
        Self(Lines::new(Arc::clone(name), *PID, Rc::clone(script_context)))
    }

    /// Logs the lines that `bytes` complete.
    pub fn take(&mut self, bytes: &[u8]) {
        self.0.take(bytes);
    }
}
