//! Obtains and renews one certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use dunlin_config::{Acme, AcmeChallenge};
use tokio::sync::{Semaphore, watch};

use super::challenges::Challenges;
use super::files::Outcome;
use super::order::{self, Failure};
use super::renewal::renewal;
use super::storage::{Storage, Turn, announcements};
use super::{backoff, jitter, log_failure, minimum_age, query};
use crate::certificate;

/// Interval at which the wall clock is checked: it may be set, and machines may be suspended.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum delay after a failed order when the server was restarted, as the administrator may have fixed the cause.
const AFTER_RESTART: Duration = Duration::from_secs(60);
/// Delay until the storage is tried again, or the order of another server.
const AGAIN: Duration = Duration::from_secs(1);

/// The certificate of a site.
pub(super) struct Maintained {
    acme: Arc<Acme>,
    site: String,
    storage: Storage,
    challenges: Arc<Challenges>,
    retired: Arc<AtomicBool>,
    /// Other servers have stored certificates.
    announced: watch::Receiver<()>,
    /// The outcome of the last attempt, if it has failed.
    last: Option<Outcome>,
    /// When to try; `None` if the certificate is not due.
    due: Option<SystemTime>,
    /// When to try the storage again, though the certificate is not due.
    again: Option<SystemTime>,
    /// A new certificate is not renewed before this time.
    earliest: SystemTime,
    /// The other servers have the certificate of this one, if they need it.
    is_offered: bool,
}

impl Maintained {
    pub(super) fn new(
        acme: Acme,
        storage: Storage,
        challenges: Arc<Challenges>,
        retired: Arc<AtomicBool>,
    ) -> Self {
        let last = Outcome::read(&acme.outcome());
        Self {
            site: acme.names.first().cloned().unwrap_or_default(),
            due: last.as_ref().map(|last| last.next_try().min(last.failed_at() + AFTER_RESTART)),
            last,
            is_offered: !storage.is_shared(),
            acme: Arc::new(acme),
            storage,
            challenges,
            retired,
            announced: announcements(),
            again: None,
            earliest: SystemTime::UNIX_EPOCH,
        }
    }

    /// Runs until the configuration is retired.
    pub(super) async fn run(mut self, orders: Arc<Semaphore>) {
        loop {
            self.offer().await;
            match self.due {
                Some(at) => {
                    wait_until(at, &self.retired, &mut self.announced).await;
                }
                None => self.wait_for_renewal().await,
            }
            let Ok(_permit) = orders.acquire().await else { return };
            if self.retired.load(Ordering::Relaxed) {
                return;
            }
            match self.storage.adopt(&self.acme).await {
                Ok(true) => self.has_adopted(),
                Ok(false) if self.is_due() => {
                    let Some(kind) = self.challenge() else { return };
                    self.take_turn(kind).await;
                }
                // An announcement was for another certificate.
                Ok(false) => {}
                Err(error) => self.wait_for_storage(&error),
            }
        }
    }

    /// Returns `true` if the certificate is to be ordered now.
    fn is_due(&self) -> bool {
        let at = self.due.unwrap_or_else(|| renewal(&self.acme.file()).max(self.earliest));
        at <= SystemTime::now()
    }

    /// Returns the challenge of the next attempt; `None` if no listener can respond to one.
    fn challenge(&self) -> Option<AcmeChallenge> {
        let kinds = &self.acme.challenges;
        let rejected = self.last.as_ref().map_or(0, |last| last.rejected);
        let kind = kinds.get(rejected as usize % kinds.len().max(1)).copied();
        if kind.is_none() {
            tracing::error!(
                site = self.site,
                "ACME: no challenge type is usable with these listeners; add a listener on port 443 with TLS or on port 80"
            );
        }
        kind
    }

    /// Orders the certificate, unless another server does so.
    async fn take_turn(&mut self, kind: AcmeChallenge) {
        let turn = match self.storage.begin(&self.acme).await {
            Ok(Some(turn)) => turn,
            Ok(None) => {
                self.due = Some(SystemTime::now() + AGAIN);
                return;
            }
            Err(error) => return self.wait_for_storage(&error),
        };
        if self.is_still_due().await {
            self.order(kind, &turn).await;
        }
        self.storage.end(&self.acme, &turn).await;
    }

    /// Returns `true` if no other server has ordered the certificate, or failed to do so, before this one had its turn.
    async fn is_still_due(&mut self) -> bool {
        if !self.storage.is_shared() {
            return true;
        }
        match self.storage.adopt(&self.acme).await {
            Ok(true) => {
                self.has_adopted();
                return false;
            }
            Ok(false) => {}
            Err(error) => {
                self.wait_for_storage(&error);
                return false;
            }
        }
        let outcome = self.storage.outcome(&self.acme).await;
        let before = self.last.as_ref().map(Outcome::failed_at);
        let is_news = outcome.as_ref().is_some_and(|now| Some(now.failed_at()) != before);
        if is_news {
            self.last = outcome;
            let next = self.last.as_ref().map(Outcome::next_try);
            if next.is_some_and(|next| next > SystemTime::now()) {
                self.due = next;
                return false;
            }
        }
        true
    }

    async fn order(&mut self, kind: AcmeChallenge, turn: &Turn) {
        let site = &self.site;
        tracing::info!(
            site,
            directory = self.acme.directories(),
            challenge = kind.as_str(),
            "ACME: ordering a certificate"
        );
        let (own, published) = (Arc::clone(&self.acme), Arc::clone(&self.challenges));
        let storage = self.storage.clone();
        // A separate task, so that a panic counts as a failed attempt.
        let task = tokio::task::spawn_local(async move {
            let order = order::obtain(&own, kind, &published, &storage);
            storage.during(&own, order).await
        });
        let failure = match task.await {
            Ok(Ok(())) => return self.succeed(turn).await,
            Ok(Err(failure)) => failure,
            Err(fault) => Failure::from(fault.to_string()),
        };
        let kinds = self.acme.challenges.len();
        let outcome = self.last.take().unwrap_or_default();
        let outcome = outcome
            .failed(&failure.error, failure.unreachable, |outcome| jitter(backoff(outcome, kinds)));
        log_failure(site, &self.acme, &outcome);
        if let Err(error) = self.storage.conclude(&self.acme, Some(&outcome)).await {
            tracing::error!(site, "{}: {error}", self.acme.outcome().display());
        }
        self.due = Some(outcome.next_try());
        self.last = Some(outcome);
    }

    async fn succeed(&mut self, turn: &Turn) {
        // Nothing is left of the attempts before.
        let _ = self.storage.conclude(&self.acme, None).await;
        (self.last, self.due) = (None, None);
        self.earliest = SystemTime::now() + minimum_age(&self.acme.file());
        let renewal = certificate::date(renewal(&self.acme.file()).max(self.earliest));
        tracing::info!(site = self.site, renewal, "ACME: the certificate was obtained");
        if let Err(error) = self.storage.offer(&self.acme, turn).await {
            self.is_offered = false;
            tracing::warn!(
                site = self.site,
                "ACME: the certificate was not stored for the other servers: {error}"
            );
        }
    }

    fn has_adopted(&mut self) {
        (self.last, self.due, self.is_offered) = (None, None, true);
        let _ = std::fs::remove_file(self.acme.outcome());
        self.earliest = SystemTime::now() + minimum_age(&self.acme.file());
        tracing::info!(
            site = self.site,
            "ACME: the certificate that another server has obtained is used"
        );
    }

    fn wait_for_storage(&mut self, error: &str) {
        tracing::debug!(site = self.site, "ACME: the shared storage: {error}");
        let again = Some(SystemTime::now() + AGAIN);
        if self.is_due() {
            self.due = again;
        } else {
            self.again = again;
        }
    }

    /// Stores a certificate that this server had before the others.
    async fn offer(&mut self) {
        let file = self.acme.file();
        if self.is_offered || self.is_due() || certificate::check_pair(&file, &file).is_err() {
            return;
        }
        let Ok(is_lacking) = self.storage.lacks(&self.acme).await else {
            return self.wait_for_storage("it is not reachable");
        };
        if is_lacking && let Ok(Some(turn)) = self.storage.begin(&self.acme).await {
            self.is_offered = self.storage.offer(&self.acme, &turn).await.is_ok();
            self.storage.end(&self.acme, &turn).await;
        } else {
            self.is_offered = true;
        }
    }

    /// Waits until the current certificate is due for renewal, by the default schedule or the authority's, or others are announced.
    async fn wait_for_renewal(&mut self) {
        let file = self.acme.file();
        loop {
            // Without a certificate it is the current time, so it is read first.
            let at = renewal(&file).max(self.earliest);
            if at <= SystemTime::now() || self.retired.load(Ordering::Relaxed) {
                return;
            }
            let again = SystemTime::now() + query::update(&self.acme).await;
            let at = renewal(&file).max(self.earliest).min(again);
            let storage = self.again.take();
            let at = storage.map_or(at, |storage| storage.min(at));
            if wait_until(at, &self.retired, &mut self.announced).await || storage.is_some() {
                return;
            }
        }
    }
}

/// Waits until a time. Returns `true` if certificates were announced before that.
async fn wait_until(
    at: SystemTime,
    retired: &AtomicBool,
    announced: &mut watch::Receiver<()>,
) -> bool {
    while let Ok(left) = at.duration_since(SystemTime::now()) {
        if left.is_zero() || retired.load(Ordering::Relaxed) {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(left.min(CLOCK_INTERVAL)) => {}
            Ok(()) = announced.changed() => return true,
        }
    }
    false
}
