//! The part of a reload that replaces workers.

use std::sync::Arc;

use super::prepare::Generation;
use crate::control::Answer;
use crate::handler::script::Renewal;

/// Replaces the workers whose code has changed, or all of them, while other commands are carried out. `text` is the
/// result of the reload so far; it and what follows are the answer to the command.
pub(super) fn workers(generation: &Generation, all: bool, mut text: String, answer: Answer) {
    tracing::info!("{text}");
    let shared = Arc::clone(&generation.shared);
    tokio::spawn(async move {
        let mut has_failed = false;
        for renewal in shared.pools.renew(&shared, all).await {
            let line = match renewal {
                Renewal::Unchanged => continue,
                Renewal::Replaced(scripts) => {
                    let line = format!("the workers of {scripts} are replaced");
                    tracing::info!("{line}");
                    line
                }
                Renewal::Failed(scripts, reason) => {
                    has_failed = true;
                    let line =
                        format!("the workers of {scripts} are not replaced and go on: {reason}");
                    tracing::error!("{line}");
                    line
                }
            };
            text += &format!("; {line}");
        }
        if let Some(answer) = answer {
            // An error says that the client has left.
            let _ = answer.send(if has_failed { Err(text) } else { Ok(text) });
        }
    });
}
