//! Scripts: programs that make the answer. `pool` and `process` hold what every kind of running
//! them shares; each kind has a folder.

mod cgi;
mod locate;
mod phases;
mod pool;
mod process;
mod stderr;
mod warm;

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::Request;

pub(crate) use self::pool::Pools;
pub use self::warm::cold_programs;
use crate::config::{Script, ScriptKind};
use crate::event_loop::Loop;
use crate::handler::file;
use crate::response::Response;
use crate::route::{Reply, Subject};

/// Answers with what a script of the route says.
pub(crate) fn answer(
    ctx: &Rc<Loop>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    rules: &Arc<Script>,
) -> Reply {
    let call = cgi::Call {
        ctx: Rc::clone(ctx),
        request: request.to_owned(),
        subject: subject.to_owned(),
        rules: Arc::clone(rules),
    };
    Reply::Exchange(Box::new(move |incoming| match call.rules.kind {
        ScriptKind::Cgi | ScriptKind::Warm => Box::pin(cgi::respond(call, incoming)),
    }))
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
            Self::Busy => 503,
            Self::Broken(_) => 500,
            Self::Malformed(_) | Self::Abandoned => 502,
            Self::Late(_) => 504,
        }
    }

    /// One line in the error log, where somebody has to do something about it.
    fn tell(&self, script: &str) {
        match self {
            Self::Missing | Self::Abandoned | Self::Busy => {}
            Self::Forbidden(reason) => tracing::warn!(script, "the script was not run: {reason}"),
            Self::Broken(reason) => tracing::error!(script, "the script was not run: {reason}"),
            Self::Malformed(reason) => tracing::error!(script, "no valid answer: {reason}"),
            Self::Late(reason) => tracing::error!(script, "the script was ended: {reason}"),
        }
    }

    async fn into_response(
        self,
        ctx: &Rc<Loop>,
        request: &Request<'_>,
        subject: &Subject<'_>,
    ) -> Response {
        let reply = file::error_reply(ctx, request, subject, self.status(), None);
        file::into_response(request, reply).await
    }
}
