//! The changes that a reload with another configuration would make. The server itself compares, because the secrets of its
//! configuration stay within it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin_config::{Config, Problem, diff};
use dunlin_exchange::Response;
use serde::Deserialize;

use crate::route::reply::Reply;
use crate::worker::WorkerContext;

/// Time between two comparisons, since each shows whether a secret has been guessed.
const PAUSE: Duration = Duration::from_millis(100);

/// The time of the last comparison.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// A configuration.
#[derive(Deserialize)]
struct Proposal {
    /// The path of its file.
    file: PathBuf,
    text: String,
}

/// Compares the configuration in the request body with the one in use. The response has one line for each difference.
pub(super) fn respond(ctx: &Rc<WorkerContext>) -> Reply {
    let ctx = Rc::clone(ctx);
    Reply::reading(async move |mut incoming| {
        let Ok(body) = incoming.body.rest().await else {
            return text(400, "the configuration is incomplete\n".into());
        };
        let Ok(proposal) = serde_json::from_slice(&body) else {
            return text(400, "the body is not JSON with `file` and `text`\n".into());
        };
        compare(&ctx, &proposal)
    })
}

fn compare(ctx: &WorkerContext, proposal: &Proposal) -> Response {
    if !is_due() {
        return text(429, "another configuration has just been compared; try again\n".into());
    }
    match differences(ctx, proposal) {
        Ok(lines) => text(200, lines.iter().map(|line| format!("{line}\n")).collect()),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let list = lines.join("; ");
            text(422, format!("this version of the server does not accept the file: {list}\n"))
        }
    }
}

fn differences(ctx: &WorkerContext, proposal: &Proposal) -> Result<Vec<String>, Vec<Problem>> {
    let running = &ctx.shared.config;
    let Proposal { file, text } = proposal;
    // The one in use has what the start has fixed.
    let own = running.path().unwrap_or(file);
    let before = Config::parse(running.text(), own, running.overrides())?;
    let after = Config::parse(text, file, running.overrides())?;
    Ok(diff(&before, &after, &ctx.shared.startup))
}

fn is_due() -> bool {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|last| last.elapsed() >= PAUSE);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

fn text(status: u16, text: String) -> Response {
    Response::with_text(status, "text/plain; charset=utf-8", text)
}
