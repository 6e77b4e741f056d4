//! Changed bodies.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_exchange::stream::{Broken, Source};
use dunlin_net::blocking::Pools;
use dunlin_transform::ssi::Include;
use dunlin_transform::{Chain, Part};

use super::body_bytes::BodyBytes;
use super::include::{Included, Includer};

/// A document that is got.
type Getting = dyn Future<Output = (Option<Included>, Bytes)>;

/// A changed body.
pub(super) struct Changed {
    bytes: BodyBytes,
    pools: Arc<Pools>,
    /// `None` after the end of the body.
    chain: Option<Chain>,
    parts: VecDeque<Part>,
    includer: Option<Includer>,
    getting: Option<Pin<Box<Getting>>>,
    /// A document whose bytes are sent.
    included: Option<BodyBytes>,
}

impl std::fmt::Debug for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changed").field("chain", &self.chain).finish_non_exhaustive()
    }
}

impl Changed {
    pub(super) fn new(
        bytes: BodyBytes,
        chain: Chain,
        includer: Option<Includer>,
        pools: Arc<Pools>,
    ) -> Self {
        Self {
            bytes,
            pools,
            chain: Some(chain),
            parts: VecDeque::new(),
            includer,
            getting: None,
            included: None,
        }
    }

    /// Returns the next bytes of a document that is included; `None` if there are no more.
    fn poll_included(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if let Some(getting) = &mut self.getting {
            let (included, error) = ready!(getting.as_mut().poll(cx));
            self.getting = None;
            match included {
                Some(Included::Bytes(bytes)) => self.included = Some(bytes),
                Some(Included::Text(text)) => return Poll::Ready(Ok(Some(text.into()))),
                None => return Poll::Ready(Ok(Some(error))),
            }
        }
        let Some(included) = &mut self.included else { return Poll::Ready(Ok(None)) };
        let next = ready!(included.poll_next(&self.pools, cx))?;
        if next.is_none() {
            self.included = None;
        }
        Poll::Ready(Ok(next))
    }

    fn get(&mut self, include: Include) {
        let Some(includer) = self.includer.clone() else { return };
        self.getting = Some(Box::pin(async move {
            let included = includer.get(&include).await;
            (included, include.error)
        }));
    }
}

impl Source for Changed {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        loop {
            if let Some(bytes) = ready!(self.poll_included(cx))? {
                if bytes.is_empty() {
                    continue;
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            match self.parts.pop_front() {
                Some(Part::Bytes(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Some(Part::Include(include)) => {
                    self.get(*include);
                    continue;
                }
                None => {}
            }
            let Some(chain) = &mut self.chain else { return Poll::Ready(Ok(None)) };
            let mut parts = Vec::new();
            match ready!(self.bytes.poll_next(&self.pools, cx))? {
                Some(bytes) => chain.push(bytes, &mut parts),
                None => {
                    chain.end(&mut parts);
                    self.chain = None;
                }
            }
            self.parts.extend(parts);
        }
    }
}
