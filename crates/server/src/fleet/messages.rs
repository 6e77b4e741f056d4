//! Messages between the servers of a fleet.

use std::time::{Duration, Instant};

use dunlin_limits::names::ClientId;
use dunlin_net::log_limiter::LogLimiter;
use dunlin_shared_state::messages::{Message, Position};
use dunlin_shared_state::{Store, StoreError};
use dunlin_tls::{Challenges, Published, SharedChallenge, certificates_were_stored};
use serde::{Deserialize, Serialize};

use super::participants::Participants;
use super::{Confirmation, Confirmed};
use crate::handler::response_cache::purge_order::PurgeOrder;
use crate::maintenance::{ClosedSites, Closure};

/// The content of a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Content {
    /// Purge cached responses.
    Purge(PurgeOrder),
    /// Read the sites under maintenance again.
    Maintenance,
    /// Certificates were stored.
    Certificates,
    /// Respond to an HTTP-01 challenge.
    Http { token: String, response: String },
    /// Respond to a TLS-ALPN-01 challenge.
    Tls { name: String, digest: [u8; 32] },
    /// Attempts to log in of these names are to be rejected, each for that number of milliseconds.
    Reject(Vec<(ClientId, u64)>),
}

/// Messages, as far as this server has come.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// The last message that was received; `None` before the first connection.
    last: Option<Position>,
    /// The store was not reachable since.
    may_have_gap: bool,
    /// There are more messages to read.
    pub(super) has_more: bool,
    /// Commands whose confirmation is outstanding.
    pending: Vec<Pending>,
    /// Responses to challenges of other servers, and when they end.
    challenges: Vec<(Instant, Published)>,
}

/// A command that other servers have to confirm.
#[derive(Debug)]
struct Pending {
    position: Position,
    /// When it is reported, even if some have not confirmed it.
    deadline: Instant,
    confirmation: Confirmation,
}

/// The kind of all messages: this version of their content.
const KIND: &str = "1";
/// Maximum of replies with messages that a server which starts reads at once.
const MAX_BATCHES: usize = 100;
/// The time for which a command waits for confirmations.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time for which the server responds to a challenge.
const CHALLENGE: Duration = Duration::from_secs(600);

impl Mailbox {
    /// Begins to read after a connection was established.
    pub(super) fn connect(&mut self, store: &mut Store, server: &str) -> Result<(), StoreError> {
        match self.last {
            Some(_) => self.may_have_gap = true,
            None => {
                let last = store.last_position()?;
                // Another server may wait for the authority to connect to this one.
                let mut after = last.before(CHALLENGE);
                for _ in 0..MAX_BATCHES {
                    let received = store.receive(after, false)?;
                    received.messages.iter().for_each(|message| self.respond(message));
                    after = received.messages.last().map_or(after, |message| message.position);
                    if received.is_complete {
                        break;
                    }
                }
                store.note_received(server, last)?;
                self.last = Some(last);
            }
        }
        Ok(())
    }

    /// Sends a message. Those who gave the command get `confirmation` when all servers have received it.
    pub(super) fn send(
        &mut self,
        store: &mut Store,
        server: &str,
        content: &Content,
        confirmation: Option<Confirmation>,
    ) -> Result<(), StoreError> {
        // The serialization of texts and numbers cannot fail.
        let text = serde_json::to_string(content).unwrap_or_default();
        if !Store::can_send(&text) {
            let why = || Err("it is too long for a message to the other servers".to_owned());
            drop(confirmation.map(|confirmation| confirmation.send(why())));
            return Ok(());
        }
        let position = store.send(server, KIND, &text)?;
        if let Some(confirmation) = confirmation {
            let deadline = Instant::now() + PATIENCE;
            self.pending.push(Pending { position, deadline, confirmation });
        }
        Ok(())
    }

    /// Receives the next messages, and executes them. Returns how many were from other servers.
    pub(super) fn receive(
        &mut self,
        store: &mut Store,
        server: &str,
        participants: &Participants,
    ) -> Result<u64, StoreError> {
        let Some(last) = self.last else { return Ok(0) };
        let now = Instant::now();
        self.challenges.retain(|(until, _)| *until > now);
        let received = store.receive(last, std::mem::take(&mut self.may_have_gap))?;
        self.has_more = !received.is_complete;
        if received.has_gap {
            participants.purge_all();
        }
        let Some(newest) = received.messages.last().map(|message| message.position) else {
            return Ok(0);
        };
        let mut others = 0;
        for message in &received.messages {
            others += u64::from(message.from != server);
            if message.from != server {
                self.respond(message);
            }
            execute(message, message.from == server, store, participants)?;
        }
        self.last = Some(newest);
        store.note_received(server, newest)?;
        Ok(others)
    }

    /// Publishes the response to a challenge of another server, if the message is about one.
    fn respond(&mut self, message: &Message) {
        let challenge = match content(message) {
            Some(Content::Http { token, response }) => SharedChallenge::Http { token, response },
            Some(Content::Tls { name, digest }) => SharedChallenge::Tls { name, digest },
            _ => return,
        };
        match Challenges::of_process().publish_shared(&challenge) {
            Ok(published) => self.challenges.push((Instant::now() + CHALLENGE, published)),
            Err(error) => {
                static LOG_LIMITER: LogLimiter = LogLimiter::new();
                if LOG_LIMITER.is_due() {
                    tracing::error!("ACME: a challenge of another server: {error}");
                }
            }
        }
    }

    /// Returns `true` if a confirmation is outstanding.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reports the commands that all servers have confirmed, or that have waited long enough.
    pub(super) fn confirm(&mut self, store: &mut Store) -> Result<(), StoreError> {
        let now = Instant::now();
        for pending in std::mem::take(&mut self.pending) {
            let (by, of) = store.received_by(pending.position)?;
            if by < of && now < pending.deadline {
                self.pending.push(pending);
            } else {
                // The client may have left.
                let _ = pending.confirmation.send(Ok(Confirmed { by, of }));
            }
        }
        Ok(())
    }

    /// Reports all outstanding commands as not confirmed.
    pub(super) fn abandon(&mut self, why: &str) {
        for pending in self.pending.drain(..) {
            let _ = pending.confirmation.send(Err(why.to_owned()));
        }
    }
}

fn execute(
    message: &Message,
    is_own: bool,
    store: &mut Store,
    participants: &Participants,
) -> Result<(), StoreError> {
    match content(message) {
        Some(Content::Purge(order)) if !is_own => participants.purge(&order),
        Some(Content::Maintenance) => read_maintenance(store, participants)?,
        Some(Content::Reject(rejected)) => {
            let now = Instant::now();
            for (name, millis) in rejected {
                let until = now + Duration::from_millis(millis.min(60_000));
                participants.attempts.iter().for_each(|attempts| attempts.reject(name, until, now));
            }
        }
        Some(Content::Certificates) => certificates_were_stored(),
        Some(Content::Purge(_) | Content::Http { .. } | Content::Tls { .. }) => {}
        None => tracing::debug!(content = message.content, "an unknown message of another server"),
    }
    Ok(())
}

/// Returns the content of a message; `None` if a server of another version has sent what this one does not know.
fn content(message: &Message) -> Option<Content> {
    serde_json::from_str(&message.content).ok().filter(|_| message.kind == KIND)
}

/// Reads the sites under maintenance.
pub(super) fn read_maintenance(
    store: &mut Store,
    participants: &Participants,
) -> Result<(), StoreError> {
    let mut sites = ClosedSites::new();
    for (site, state) in store.maintenance()? {
        if let Ok(closure) = serde_json::from_str::<Closure>(&state) {
            sites.insert(site, closure);
        }
    }
    if sites != participants.maintenance.all() {
        participants.maintenance.replace(sites);
    }
    Ok(())
}
