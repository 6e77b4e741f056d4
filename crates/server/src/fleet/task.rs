//! The thread that talks to the store.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dunlin_config::Shared;
use dunlin_limits::lease::INTERVAL;
use dunlin_shared_state::limits::BATCH;
use dunlin_shared_state::roster::ABSENT_AFTER;
use dunlin_shared_state::tickets::Rotation;
use dunlin_shared_state::{Store, StoreError};
use dunlin_tls::{TicketSecret, set_ticket_secrets};

use crate::listen::quic;

use super::messages::{Content, Mailbox, read_maintenance};
use super::participants::Participants;
use super::servers::servers;
use super::storage::Reached;
use super::{Command, Confirmation, FleetState};
use crate::checks::ATTEMPTS_WINDOW;

/// The state of the thread.
pub(super) struct Task {
    settings: Shared,
    /// ID of this server in the store.
    server: String,
    state: Arc<FleetState>,
    commands: Receiver<Command>,
    participants: Option<Box<Participants>>,
    store: Option<Store>,
    mailbox: Mailbox,
    /// The loss of the store has been logged.
    is_loss_logged: bool,
    /// When the other servers have had the time to reach a store that was lost, too.
    settled: Instant,
    /// The number of servers before the store was lost, and the time until which it is the minimum.
    before_loss: Option<(u32, Instant)>,
    due: Due,
    random: RandomState,
    draws: u64,
}

/// When each is done next.
#[derive(Debug, Clone, Copy)]
struct Due {
    limits: Instant,
    messages: Instant,
    presence: Instant,
    secrets: Instant,
    connection: Instant,
}

/// Interval at which messages are read.
const MESSAGES: Duration = Duration::from_millis(250);
/// Interval at which a server reports that it is there.
const PRESENCE: Duration = Duration::from_secs(1);
/// Interval at which the secrets of tickets and names are read.
const SECRETS: Duration = Duration::from_secs(10);
/// Interval between attempts to connect.
const RECONNECT: Duration = Duration::from_secs(1);

/// The rules by which the secrets of tickets change: as those of a server alone.
const ROTATION: Rotation =
    Rotation { period: Duration::from_secs(6 * 3600), lead: Duration::from_secs(60), kept: 4 };

impl Task {
    pub(super) fn new(
        settings: Shared,
        state: Arc<FleetState>,
        commands: Receiver<Command>,
    ) -> Self {
        let (random, now) = (RandomState::new(), Instant::now());
        let id = (random.hash_one(0_u64), random.hash_one(1_u64));
        Self {
            settings,
            server: format!("{:016x}{:016x}", id.0, id.1),
            state,
            commands,
            participants: None,
            store: None,
            mailbox: Mailbox::default(),
            is_loss_logged: false,
            before_loss: None,
            settled: now,
            due: Due { limits: now, messages: now, presence: now, secrets: now, connection: now },
            random,
            draws: 2,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let worked = match self.commands.recv_timeout(self.pause()) {
                Ok(Command::Stop(done)) => {
                    self.leave();
                    drop(done);
                    return;
                }
                Ok(command) => self.execute(command),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => return self.leave(),
            };
            if self.store.is_none() && Instant::now() >= self.due.connection {
                self.connect();
            }
            if let Err(error) = worked.and_then(|()| self.work()) {
                self.lose(&error);
            }
        }
    }

    /// Time until something is due.
    fn pause(&self) -> Duration {
        let Due { limits, messages, presence, secrets, connection } = self.due;
        let next = match &self.store {
            Some(_) => limits.min(messages).min(presence).min(secrets),
            None => connection.min(limits),
        };
        next.saturating_duration_since(Instant::now())
    }

    /// Executes a command. One that needs the store fails without it.
    fn execute(&mut self, command: Command) -> Result<(), StoreError> {
        let (confirmation, content, state) = match command {
            Command::Use(participants) => {
                self.participants = Some(participants);
                // They need the names of clients.
                self.due.secrets = Instant::now();
                return Ok(());
            }
            Command::Stop(_) => return Ok(()),
            Command::Access(access) => {
                let (server, is_settled) = (&*self.server, Instant::now() >= self.settled);
                let reached = |store| Reached { store, server, is_settled };
                return access.run(self.store.as_mut().map(reached));
            }
            Command::Announce(content, confirmation) => (confirmation, *content, None),
            Command::Purge(order, confirmation) => (confirmation, Content::Purge(order), None),
            Command::Maintenance(site, closure, confirmation) => {
                // The serialization of a number cannot fail.
                let state = closure.and_then(|closure| serde_json::to_string(&closure).ok());
                (confirmation, Content::Maintenance, Some((site, state)))
            }
        };
        let hosts = self.settings.hosts();
        let Some(store) = &mut self.store else {
            let _ = confirmation.send(Err(format!("the store {hosts} is not reachable")));
            return Ok(());
        };
        let written = match &state {
            Some((site, state)) => store.set_maintenance(site, state.as_deref()),
            None => Ok(()),
        };
        if let Err(error) = written {
            let _ = confirmation.send(Err(format!("the store {hosts}: {error}")));
            return Err(error);
        }
        self.announce(&content, confirmation)
    }

    /// Sends a message that the other servers confirm.
    fn announce(
        &mut self,
        content: &Content,
        confirmation: Confirmation,
    ) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        // If it fails, the confirmation is dropped with the connection.
        self.mailbox.send(store, &self.server, content, Some(confirmation))?;
        self.due.messages = Instant::now();
        Ok(())
    }

    fn connect(&mut self) {
        self.due.connection = Instant::now() + self.vary(RECONNECT);
        let hosts = self.settings.hosts();
        let joined = Store::connect(&self.settings).and_then(|mut store| {
            let count = store.report_presence(&self.server)?;
            self.mailbox.connect(&mut store, &self.server)?;
            Ok((store, count))
        });
        match joined {
            Ok((store, count)) => {
                let now = Instant::now();
                if self.is_loss_logged {
                    self.before_loss = Some((servers().count(), now + ABSENT_AFTER));
                    self.settled = now + 2 * RECONNECT;
                }
                let count = count_servers(count, self.before_loss);
                self.store = Some(store);
                self.due = Due { messages: now, presence: now, secrets: now, ..self.due };
                self.state.is_connected.store(true, Ordering::Relaxed);
                let again = if std::mem::take(&mut self.is_loss_logged) { " again" } else { "" };
                tracing::info!(
                    "shared state: {hosts} is reachable{again}; number of servers: {count}"
                );
            }
            Err(error) => self.log_loss(&error),
        }
    }

    /// Continues without the store until it is reachable again.
    fn lose(&mut self, error: &StoreError) {
        if self.store.take().is_none() {
            return;
        }
        self.mailbox.abandon(&format!("the store {} is not reachable", self.settings.hosts()));
        self.due.connection = Instant::now();
        self.state.is_connected.store(false, Ordering::Relaxed);
        self.state.counts.losses.fetch_add(1, Ordering::Relaxed);
        self.log_loss(error);
    }

    /// Logs once that the store is not reachable.
    fn log_loss(&mut self, error: &StoreError) {
        let hosts = self.settings.hosts();
        if std::mem::replace(&mut self.is_loss_logged, true) {
            tracing::debug!("shared state: {hosts}: {error}");
            return;
        }
        let part = match servers().count() {
            1 => {
                "no other server has been seen, so shared limits apply only to this one".to_owned()
            }
            count => format!("this server allows 1/{count} of shared limits"),
        };
        tracing::error!("shared state: {hosts} is not reachable, {part} until it is: {error}");
    }

    /// Does what is due.
    fn work(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if now >= self.due.limits {
            self.due.limits = now + self.vary(INTERVAL);
            self.exchange_limits()?;
            self.exchange_attempts()?;
        }
        let (Some(store), Some(participants)) = (&mut self.store, &self.participants) else {
            return Ok(());
        };
        if now >= self.due.secrets {
            self.due.secrets = now + SECRETS;
            store.read_names()?;
            participants.attempts.iter().for_each(|attempts| attempts.set_names(store.names()));
            read_tickets(store)?;
            read_quic_secret(store)?;
        }
        if now >= self.due.presence {
            self.due.presence = now + PRESENCE;
            count_servers(store.report_presence(&self.server)?, self.before_loss);
            read_maintenance(store, participants)?;
        }
        if now >= self.due.messages {
            let others = self.mailbox.receive(store, &self.server, participants)?;
            self.state.counts.messages.fetch_add(others, Ordering::Relaxed);
            self.mailbox.confirm(store)?;
            // Another server may confirm soon.
            let pause = match (self.mailbox.has_more, self.mailbox.is_waiting()) {
                (true, _) => Duration::ZERO,
                (_, true) => INTERVAL,
                _ => MESSAGES,
            };
            self.due.messages = now + pause;
        }
        Ok(())
    }

    fn exchange_limits(&mut self) -> Result<(), StoreError> {
        let Some(participants) = &self.participants else { return Ok(()) };
        for limit in &participants.limits {
            let (Some(name), Some(terms)) = (limit.name_in_store(), limit.terms()) else {
                continue;
            };
            let Some(store) = &mut self.store else {
                limit.disconnect();
                continue;
            };
            let reports = limit.reports(Instant::now());
            if reports.is_empty() {
                continue;
            }
            let mut rest = &*reports;
            while !rest.is_empty() {
                let (batch, after) = rest.split_at(rest.len().min(BATCH));
                match store.exchange(name, &terms, servers().count(), batch) {
                    Ok(granted) => {
                        let now = Instant::now();
                        for (report, granted) in batch.iter().zip(granted) {
                            limit.grant(report, granted, now);
                        }
                    }
                    Err(error) => {
                        rest.iter().for_each(|report| limit.take_back(report));
                        return Err(error);
                    }
                }
                rest = after;
            }
            self.state.counts.exchanges.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Exchanges failed log-ins of a bounded number of clients, so that a wave of them delays nothing else. The rest is for the next
    /// time.
    fn exchange_attempts(&mut self) -> Result<(), StoreError> {
        let (Some(participants), Some(store)) = (&self.participants, &mut self.store) else {
            return Ok(());
        };
        for attempts in &participants.attempts {
            let reports = attempts.reports(BATCH);
            if reports.is_empty() {
                continue;
            }
            let changes: Vec<_> = reports.iter().map(|report| (report.id, report.change)).collect();
            let totals = store.count_attempts(&changes, ATTEMPTS_WINDOW).inspect_err(|_| {
                reports.iter().for_each(|report| attempts.take_back(report));
            })?;
            let mut rejected = Vec::new();
            for (report, total) in reports.iter().zip(totals) {
                attempts.apply(report, total.count);
                if total.count >= report.max {
                    let name = store.names().name(&report.id);
                    rejected.push((name, total.left.as_millis() as u64));
                }
            }
            if !rejected.is_empty() {
                self.mailbox.send(store, &self.server, &Content::Reject(rejected), None)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.mailbox.abandon("the server is stopping");
        if let Some(store) = &mut self.store {
            // The others notice it soon, anyway.
            let _ = store.leave(&self.server);
        }
    }

    /// From half of the time to one and a half, so that servers do not keep in step.
    fn vary(&mut self, time: Duration) -> Duration {
        self.draws += 1;
        time.mul_f64(0.5 + self.random.hash_one(self.draws) as f64 / u64::MAX as f64)
    }
}

/// Takes the number of servers that the store has seen. Returns how many share the limits.
///
/// A store that has lost its content sees one server after the other. If the first ones took the limits for theirs alone, all
/// servers together would allow more than the limits.
fn count_servers(seen: u32, before_loss: Option<(u32, Instant)>) -> u32 {
    let before = before_loss.filter(|(_, until)| Instant::now() < *until);
    let count = before.map_or(seen, |(count, _)| seen.max(count));
    servers().set(count);
    count
}

/// Reads the secret of QUIC endpoints once, or makes it.
fn read_quic_secret(store: &mut Store) -> Result<(), StoreError> {
    let keys = &quic::identity().keys;
    let mut fresh = [0; 32];
    if keys.is_shared() || crate::password::random(&mut fresh).is_err() {
        return Ok(());
    }
    keys.share(&store.quic_secret(&fresh)?);
    Ok(())
}

/// Reads the secrets of session tickets, and makes the next one when it is due.
fn read_tickets(store: &mut Store) -> Result<(), StoreError> {
    let (mut id, mut secret) = ([0; 16], [0; 32]);
    if crate::password::random(&mut id).is_err() || crate::password::random(&mut secret).is_err() {
        tracing::error!("shared state: the system provides no random numbers for session tickets");
        return Ok(());
    }
    let secrets = store.ticket_secrets((&id, &secret), &ROTATION)?;
    let secrets = secrets.into_iter();
    set_ticket_secrets(
        secrets.map(|one| TicketSecret { id: one.id, secret: one.secret, age: one.age }).collect(),
    );
    Ok(())
}
