//! Replacement of script workers after a reload.

use std::sync::Arc;

use dunlin_script::Renewal;

use super::prepare::Generation;
use crate::control::ResultSender;

/// Replaces the script workers whose code has changed, or all of them, without blocking other commands. The response to
/// the command is `text`, the result of the reload, followed by the results of the replacements.
pub(super) fn workers(
    generation: &Generation,
    all: bool,
    mut text: String,
    result_sender: ResultSender,
) {
    tracing::info!("{text}");
    let shared = Arc::clone(&generation.shared);
    tokio::spawn(async move {
        let mut has_failed = false;
        for renewal in shared.scripts.renew(all).await {
            let line = match renewal {
                Renewal::Unchanged => continue,
                Renewal::Replaced(scripts) => {
                    let line = format!("the workers of {scripts} are replaced");
                    tracing::info!("{line}");
                    line
                }
                Renewal::Failed(scripts, reason) => {
                    has_failed = true;
                    let line = format!(
                        "the workers of {scripts} are not replaced and keep running: {reason}"
                    );
                    tracing::error!("{line}");
                    line
                }
            };
            text += &format!("; {line}");
        }
        if let Some(result_sender) = result_sender {
            // The client may have disconnected.
            let _ = result_sender.send(if has_failed { Err(text) } else { Ok(text) });
        }
    });
}
