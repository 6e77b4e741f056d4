//! QUERY (RFC 10008): the content of the request is a part of the key, so it is received before the store is looked into.

use dunlin_exchange::{Incoming, Response, stream};
use dunlin_response_cache::presented::Presented;
use sha2::{Digest, Sha256};

use super::forwarding::Forwarding;
use crate::handler::rejection::error_response;

/// The fields that determine what the content means (RFC 10008 §2.7).
const MEANING: [&str; 3] = ["content-type", "content-encoding", "content-language"];

impl Forwarding {
    /// Responds to a QUERY.
    pub(super) async fn query(mut self: Box<Self>, mut incoming: Box<Incoming>) -> Response {
        let mut body = std::mem::replace(&mut incoming.body, stream::empty());
        let (mut chunks, mut hash) = (Vec::new(), Sha256::new());
        loop {
            match body.next().await {
                Ok(Some(bytes)) => {
                    hash.update(&bytes);
                    chunks.push(bytes);
                }
                Ok(None) => break,
                // The client has left.
                Err(_) => return error_response(400, true),
            }
        }
        incoming.body = stream::of(chunks);
        let mut url = self.key.url.to_vec();
        url.extend_from_slice(b"\n");
        // No key has a NUL.
        url.extend(hash.finalize().iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        let presented = self.presented();
        for name in MEANING {
            let Some(lines) = presented.lines(name.as_bytes()) else {
                return self.pass(incoming).await;
            };
            for line in lines {
                url.extend_from_slice(&[name.as_bytes(), b":", line, b"\n"].concat());
            }
        }
        drop(presented);
        self.key.url = url.into();
        self.look_up(incoming).await
    }
}
