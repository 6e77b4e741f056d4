//! Sends bodies as the client's windows allow, in the order of its priorities.

use dunlin_exchange::Filled;

use super::stream::StreamSending;
use super::{Cancel, Multiplexer, Protocol};
use crate::worker::Completion;

impl<P: Protocol> Multiplexer<P> {
    /// Adds parts of bodies to `out` up to the size of one write. Returns `true` if there were any.
    pub(crate) fn pump(&mut self, out: &mut P::Output) -> bool {
        let now = self.link.ctx.clock.now();
        let mut has_sent = false;
        while let Some(id) = self.protocol.next_to_send(out) {
            let Some(stream) = self.streams.get_mut(id) else {
                self.protocol.set_ready(id, false);
                continue;
            };
            let StreamSending::Body(body) = &mut stream.sending else {
                self.protocol.set_ready(id, false);
                continue;
            };
            let slice = self.protocol.send_slice(id, |room| body.take_slice(room), out);
            let (bytes, filled) = slice.unwrap_or_else(|| {
                let pool = &self.link.ctx.shared.blocking.files;
                let fill = |room, out: &mut Vec<u8>| body.fill(pool, room, out);
                self.protocol.send_data(id, fill, out)
            });
            stream.note_sent(bytes, self.protocol.flushes());
            (stream.moved, self.served) = (now, now);
            has_sent |= bytes > 0 || !matches!(filled, Filled::More);
            match filled {
                Filled::More if stream.has_bytes() => {}
                Filled::More => {
                    self.protocol.set_ready(id, false);
                    self.streams.poll_again(id);
                }
                Filled::End => self.finish(id, out),
                Filled::Changed => {
                    self.protocol.cancel(id, Cancel::Broken, out);
                    self.forget(id, Completion::Aborted, out);
                }
            }
        }
        has_sent
    }
}
