//! Requests whose response may be on disk.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_exchange::{Incoming, Response};
use dunlin_net::clock;
use dunlin_response_cache::flight::{Decision, Held, Leader, Role};
use dunlin_response_cache::freshness::Usability;
use dunlin_response_cache::key::Key;
use dunlin_response_cache::memory::Found;
use dunlin_response_cache::status::Forward;
use dunlin_response_cache::stored::Stored;
use dunlin_response_disk::Found as OnDisk;

use super::forwarding::{Forwarding, WAIT};
use super::outcome::Outcome;
use super::reuse::unavailable;
use super::shared::ResponseCache;
use crate::disk_cache::DiskCache;

/// The body of a response that is in no store, with the memory that it takes.
struct Body(Bytes, #[expect(dead_code, reason = "dropping it returns the memory")] Held);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Forwarding {
    /// Responds with the response in memory or on disk, or as [`respond`](Self::respond) does.
    pub(super) async fn look_up(mut self: Box<Self>, incoming: Box<Incoming>) -> Response {
        self.call.ctx.count_other();
        let found = self.cache.find(
            (self.key.site, &self.key.url),
            &self.presented(),
            self.cache.is_sampled(),
        );
        let found = match found {
            Found::Response(stored) => Found::Response(stored),
            others => {
                if matches!(others, Found::OtherVariants) {
                    self.why = Forward::VaryMiss;
                }
                self.look_on_disk().await
            }
        };
        self.respond_with(found, incoming).await
    }

    /// Responds with the response on disk, or as [`respond`](Self::respond) does.
    pub(super) async fn restore(self: Box<Self>, incoming: Box<Incoming>) -> Response {
        let found = self.look_on_disk().await;
        self.respond_with(found, incoming).await
    }

    /// Responds with what was found, if it may be used, or as [`respond`](Self::respond) does.
    pub(super) async fn respond_with(
        mut self: Box<Self>,
        found: Found,
        incoming: Box<Incoming>,
    ) -> Response {
        match found {
            Found::Nothing => {}
            Found::OtherVariants => self.why = Forward::VaryMiss,
            Found::Response(stored) => {
                let now = self.call.ctx.clock.now();
                match stored.head.freshness.usability(&self.directives, now) {
                    Usability::Fresh => return self.reuse(&stored, Outcome::Hit),
                    Usability::AllowedStale => return self.reuse(&stored, Outcome::Stale),
                    // The content of a QUERY is consumed by sending it.
                    Usability::WhileRevalidate if !self.is_query => {
                        self.why = Forward::Stale;
                        self.stored = Some(stored);
                        return self.revalidate_later(incoming).await;
                    }
                    Usability::WhileRevalidate | Usability::Validate => {
                        self.why = Forward::of(&stored.head.freshness, now);
                        self.stored = Some(stored);
                    }
                }
            }
        }
        if self.directives.only_if_cached {
            return unavailable(&self.cache);
        }
        self.respond(incoming).await
    }

    /// Reads the response from disk. Concurrent requests share one read.
    pub(super) async fn look_on_disk(&self) -> Found {
        let Some(disk) = &self.cache.disk else { return Found::Nothing };
        let Some(key) = disk.key(&self.key) else { return Found::Nothing };
        loop {
            let file = match disk.disk.find(&key, &self.presented()) {
                OnDisk::File { number, bytes } => (number, bytes),
                OnDisk::OtherVariants => return Found::OtherVariants,
                OnDisk::Nothing => return Found::Nothing,
            };
            // The variants of requests begin with the name of a field.
            let reading = [&b" file "[..], &file.0.to_le_bytes()].concat();
            let reader = match self.cache.flights.join(&self.key, &reading) {
                Role::Leader(leader) => {
                    return match self.cache.load(disk, (&self.key, &key), file, leader).await {
                        Some(stored) => Found::Response(stored),
                        None => Found::Nothing,
                    };
                }
                Role::Waiter(reader) => reader,
            };
            match clock::timeout(WAIT, poll_fn(|cx| reader.poll_decision(cx))).await {
                Some(Decision::Rejoin) => {}
                Some(Decision::Stored(stored)) => return Found::Response(stored),
                None | Some(Decision::Forward | Decision::Response(..)) => return Found::Nothing,
            }
        }
    }
}

impl ResponseCache {
    /// Reads a response from disk for all requests that wait for it, and keeps it in memory if admitted.
    async fn load(
        &self,
        disk: &DiskCache,
        (key, on_disk): (&Key, &Key),
        file: (u64, u64),
        leader: Leader,
    ) -> Option<Arc<Stored>> {
        let read = async {
            let held = self.flights.hold(file.1)?;
            Some((held, disk.read(on_disk, file).await?))
        };
        let Some((held, stored)) = read.await else {
            leader.decline();
            return None;
        };
        let _changes = self.changing();
        if !disk.disk.has(on_disk, file.0) {
            // It was removed during the read.
            leader.decline();
            return None;
        }
        let stored = self.memory.restore(key, Arc::new(stored)).unwrap_or_else(|stored| {
            // The body takes memory until the last response is sent.
            let body = Bytes::from_owner(Body(stored.body.clone(), held));
            Arc::new(Stored { head: stored.head.clone(), body })
        });
        leader.resolve(Arc::clone(&stored));
        Some(stored)
    }
}
