//! Scripts: programs that make the answer. `pool` and `process` hold what every kind of running
//! them shares; each kind has a folder.

mod at_once;
mod cgi;
mod cgiplus;
mod environment;
mod head;
mod host;
mod instead;
mod known;
mod launch;
mod locate;
mod output;
mod pipes;
mod pool;
mod process;
mod readiness;
mod redirect;
mod remote;
mod reply;
mod socket;
mod spool;
mod stderr;
mod trace;
mod warm;
mod workers;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, OwnedRequest, Request};

use self::at_once::Awaited;
pub(crate) use self::host::Links;
pub(crate) use self::known::Known;
pub use self::launch::{LAUNCH, launch};
use self::locate::Found;
pub(crate) use self::pool::Pools;
pub use self::stderr::SCRIPTS;
pub use self::warm::cold_programs;
use self::workers::Worker;
use crate::config::Script;
use crate::event_loop::Loop;
use crate::gate::{Client, Pass};
use crate::handler::error_page;
use crate::handler::file;
use crate::handler::file::OwnedSubject;
use crate::handler::redirect::to_slash;
use crate::record::Course;
use crate::response::Response;
use crate::route::{Incoming, Reply, Subject};

/// Answers with what a script of the route says.
pub(crate) fn answer(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    rules: &Arc<Script>,
) -> Reply {
    let call = Call {
        ctx: Rc::clone(ctx),
        request: request.to_owned(),
        subject: subject.to_owned(),
        pass: subject.pass.cloned(),
        rules: Arc::clone(rules),
        witness: RefCell::default(),
    };
    Reply::Exchange(Box::new(move |incoming| Box::pin(respond(call, incoming))))
}

/// A request for a script.
struct Call {
    ctx: Rc<Loop>,
    request: OwnedRequest,
    subject: OwnedSubject,
    pass: Option<Rc<Pass>>,
    rules: Arc<Script>,
    /// The worker that was last asked, and when, where what it writes to its standard error is to be shown.
    witness: RefCell<Option<(Arc<Worker>, Instant)>>,
}

impl Call {
    /// The worker is asked.
    fn asks(&self, worker: &Arc<Worker>) {
        if self.rules.show_errors {
            self.witness.replace(Some((Arc::clone(worker), Instant::now())));
        }
    }

    /// Has the request know what the worker that was last asked has written since.
    async fn hear_witness(&self, course: &Course) {
        let witness = self.witness.take();
        if let Some((worker, since)) = witness
            && let Some(errors) = &worker.errors
        {
            errors.tell(since, course).await;
        }
    }

    /// What is known of the request once a script has all of it.
    fn awaited<'a>(&'a self, course: &'a Course, is_bodiless: bool) -> Awaited<'a> {
        Awaited { deadlines: &self.ctx.deadlines, rules: &self.rules, course, is_bodiless }
    }

    /// Who asks.
    fn client(&self, incoming: &Incoming) -> Client {
        let pass = self.pass.as_ref();
        pass.map_or_else(|| incoming.client(), |pass| pass.client)
    }
}

/// Runs the script that the request is for.
async fn respond(call: Call, incoming: Incoming) -> Response {
    // For the log: the script's, once it is known.
    let mut name = Arc::clone(&call.rules.label);
    let course = Rc::clone(&incoming.course);
    course.set_id(|| trace::request_id(&call.request.as_request(), &call.rules));
    if call.rules.show_errors {
        course.keep_errors();
    }
    hint(&call, &incoming);
    let answer = match call.rules.kind {
        kind if kind.is_cgi() => Box::pin(cgi::attempt(&call, incoming, &mut name)).await,
        _ => {
            call.ctx.count_other();
            by_workers(&call, incoming, &mut name).await
        }
    };
    let failure = match answer {
        Ok(response) => return response,
        Err(failure) => failure,
    };
    failure.tell(&name, course.id());
    Box::pin(call.hear_witness(&course)).await;
    let request = call.request.as_request();
    let mut response = match failure.status() {
        500.. if call.rules.show_errors => failure.shown(&request, &name, &course),
        _ => Box::pin(failure.into_response(&call.ctx, &request, &call.subject.borrow())).await,
    };
    if call.rules.tell_request_id {
        response.fields.set("X-Request-Id", course.id());
    }
    response
}

/// Sends the Early Hints that the route has.
fn hint(call: &Call, incoming: &Incoming) {
    let links = &call.subject.settings.early_hints;
    if !links.is_empty() && matches!(call.request.as_request().method(), Method::Get | Method::Head)
    {
        let mut fields = FieldLines::new();
        links.iter().for_each(|link| fields.push("Link", link));
        incoming.early_hints.send(fields);
    }
}

/// Has a worker answer, where the path names a script, and the file handler where it names
/// another file.
async fn by_workers(
    call: &Call,
    incoming: Incoming,
    name: &mut Arc<str>,
) -> Result<Response, Failure> {
    let request = call.request.as_request();
    let located = match locate::find(call).await? {
        Found::Script(located) => located,
        Found::Directory => return Ok(to_slash(&request, &call.subject.borrow())),
        Found::File if matches!(request.method(), Method::Get | Method::Head) => {
            let reply = file::answer(&call.ctx, &request, &call.subject.borrow());
            return Ok(Box::pin(file::into_response(&request, reply)).await);
        }
        Found::File => return Err(Failure::Status(405)),
    };
    if !located.program.as_os_str().is_empty() {
        *name = Arc::clone(&located.label);
    }
    match call.rules.kind {
        // Apart, so that what is kept of one kind has no room for every other.
        kind if kind.has_host() => Box::pin(host::attempt(call, incoming, &located, name)).await,
        kind if kind.is_by_streams() => {
            Box::pin(cgiplus::attempt(call, incoming, &located, name)).await
        }
        _ => Box::pin(socket::attempt(call, incoming, &located, name)).await,
    }
}

/// Why there is no answer of a script.
#[derive(Debug)]
enum Failure {
    /// There is no such script.
    Missing,
    /// It is there, and may not be run.
    Forbidden(String),
    /// All processes are taken, and too many requests wait or this one has waited too long; the
    /// pool has told of it.
    Busy,
    /// Something of the server's or the system's is in the way.
    Broken(String),
    /// What the script said is no answer.
    Malformed(String),
    /// Its host says that it has failed.
    Failed,
    /// What the configuration answers with.
    Status(u16),
    /// The variables are more than the protocol can carry.
    TooLarge,
    /// Its worker has not taken the request.
    Refused(String),
    /// No worker can be reached.
    Unreachable(String),
    /// The script's worker is gone, and nothing says that it had begun with the request.
    Lost(String),
    /// The script took too long.
    Late(&'static str),
    /// The client has left.
    Abandoned,
}

impl Failure {
    fn status(&self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Forbidden(_) => 403,
            Self::Busy | Self::Refused(_) => 503,
            Self::Status(status) => *status,
            Self::TooLarge => 431,
            Self::Broken(_) | Self::Failed => 500,
            Self::Malformed(_) | Self::Lost(_) | Self::Unreachable(_) | Self::Abandoned => 502,
            Self::Late(_) => 504,
        }
    }

    /// One line in the error log, where somebody has to do something about it.
    fn tell(&self, script: &str, request_id: &str) {
        match self {
            Self::Missing | Self::Abandoned | Self::Busy | Self::Status(_) => {}
            Self::TooLarge => {
                tracing::warn!(
                    script,
                    request_id,
                    "the script was not run: its variables are too long"
                );
            }
            Self::Forbidden(reason) => {
                tracing::warn!(script, request_id, "the script was not run: {reason}");
            }
            Self::Broken(reason) => {
                tracing::error!(script, request_id, "the script was not run: {reason}");
            }
            Self::Malformed(reason)
            | Self::Lost(reason)
            | Self::Refused(reason)
            | Self::Unreachable(reason) => {
                tracing::error!(script, request_id, "no valid answer: {reason}");
            }
            Self::Failed => tracing::error!(script, request_id, "the script has failed"),
            Self::Late(reason) => {
                tracing::error!(script, request_id, "the script was ended: {reason}");
            }
        }
    }

    /// A page for those who write the script: why there is no answer, and what the script wrote to its
    /// standard error.
    fn shown(&self, request: &Request<'_>, script: &str, course: &Course) -> Response {
        let reason = match self {
            Self::Malformed(reason)
            | Self::Broken(reason)
            | Self::Lost(reason)
            | Self::Refused(reason)
            | Self::Unreachable(reason) => reason,
            Self::Late(reason) => *reason,
            Self::Failed => "the script has failed",
            _ => "too many requests wait",
        };
        let facts = [("script", script), ("request", course.id()), ("reason", reason)];
        let page = error_page::explained(self.status(), &facts, &course.errors());
        let mut response = Response::with_text(self.status(), "text/html; charset=utf-8", page);
        response.fields.push("Cache-Control", "no-store");
        if request.method() == Method::Head { response.without_body() } else { response }
    }

    async fn into_response(
        self,
        ctx: &Rc<Loop>,
        request: &Request<'_>,
        subject: &Subject<'_>,
    ) -> Response {
        let reply = file::error_reply(ctx, request, subject, self.status(), FieldLines::default());
        file::into_response(request, reply).await
    }
}
