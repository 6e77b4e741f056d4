//! Sends bodies as the client's windows allow, in the order of its priorities.

use dunlin_http::http2::ErrorCode;

use super::super::exchange::Filled;
use super::stream::Sending;
use super::{BATCH, Connection};
use crate::worker::Completion;

impl Connection {
    /// Adds frames to `out` up to the size of one write. Returns `true` if there were any.
    pub(super) fn pump(&mut self, out: &mut Vec<u8>) -> bool {
        let (now, start) = (self.link.ctx.clock.now(), out.len());
        while out.len() < BATCH {
            let Some(id) = self.engine.next_to_send() else { break };
            let allowance = self.engine.allowance(id);
            let Some(stream) = self.streams.get_mut(id) else {
                self.engine.set_ready(id, false);
                continue;
            };
            let Sending::Body(body) = &mut stream.sending else {
                self.engine.set_ready(id, false);
                continue;
            };
            let mark = self.engine.begin_data(out);
            let before = out.len();
            let filled = body.fill(&self.link.ctx.shared.blocking.files, allowance, out);
            stream.note_sent(out.len() - before, self.flushes);
            stream.moved = now;
            self.served = now;
            let is_ready = stream.has_bytes();
            match filled {
                Filled::More => {
                    self.engine.end_data(id, mark, false, out);
                    if !is_ready {
                        self.engine.set_ready(id, false);
                        self.streams.poll_again(id);
                    }
                }
                Filled::End => {
                    self.engine.end_data(id, mark, true, out);
                    self.finish(id, out);
                }
                Filled::Changed => {
                    out.truncate(mark);
                    self.engine.cancel(id, ErrorCode::InternalError, out);
                    self.forget(id, Completion::Aborted, out);
                }
            }
        }
        out.len() > start
    }
}
