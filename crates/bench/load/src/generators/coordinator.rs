//! The coordinator as a state machine: messages and times come in as arguments, messages to generators go out.

use std::collections::VecDeque;

use super::offset::Offset;
use super::protocol::{Done, FromGenerator, SILENCE_SECONDS, Task, ToGenerator};
use crate::engine::Conformance;
use crate::merge::{Part, Start};
use crate::plan::End;
use crate::progress::Snapshot;
use crate::segment::Segment;

/// Coordinates generators. Times are in nanoseconds of a clock that starts with it.
pub struct Coordinator {
    peers: Vec<Peer>,
    stage: Stage,
    /// The instant on which the generators agreed.
    agreed: u64,
    /// Longest duration of the run.
    lasts: u64,
    /// The latest time when the stage should have ended.
    overdue: u64,
    stopped: bool,
    output: VecDeque<(usize, ToGenerator)>,
}

/// The event that the coordinator waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first message of all generators.
    Connecting,
    /// The next plan.
    Idle,
    /// Generators that prepare their segment, or measure their clock.
    Preparing,
    /// Generators that run their segment.
    Running,
    /// The run has ended; [`Coordinator::parts`] has its results.
    Ended,
    /// No run is possible, for this reason.
    Failed(String),
}

struct Peer {
    name: String,
    state: State,
    offset: Offset,
    /// Pings without a response: number, and when they were sent.
    pings: VecDeque<(u64, u64)>,
    next_ping: u64,
    /// The reason why the link has ended.
    gone: Option<String>,
    /// The time when its last message arrived.
    heard: u64,
    snapshot: Snapshot,
    result: Option<Result<Done, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Idle,
    Preparing,
    /// Number of pings exchanged; deadline of the phase.
    Comparing(usize, u64),
    Prepared,
    Running,
    Ended,
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// Interval of pings, from which a generator knows that its coordinator lives.
const PING_INTERVAL: u64 = SECOND;
/// Exchanges before a run: at least, at most, and the time that they take at most beyond the least.
const LEAST_EXCHANGES: usize = 8;
const MOST_EXCHANGES: usize = 64;
const EXCHANGING: u64 = SECOND / 2;
/// Time from the decision to start until the start, to which round trips are added. In it, generators create their workers.
const LEAD: u64 = 300 * MS;
/// Time that generators may take to prepare a plan.
const PREPARING: u64 = 60 * SECOND;
/// Time that a generator may take beyond the planned duration and the timeout of its last response.
const GRACE: u64 = 30 * SECOND;

impl Coordinator {
    /// Creates a coordinator of generators with these names. Those with an empty name have that of their machine.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        let peer = |name| Peer {
            name,
            state: State::Greeting,
            offset: Offset::default(),
            pings: VecDeque::new(),
            next_ping: 0,
            gone: None,
            heard: 0,
            snapshot: Snapshot::default(),
            result: None,
        };
        Self {
            peers: names.into_iter().map(peer).collect(),
            stage: Stage::Connecting,
            agreed: 0,
            lasts: u64::MAX,
            overdue: u64::MAX,
            stopped: false,
            output: VecDeque::new(),
        }
    }

    /// Has all generators prepare their segment of `task`, and then run it. Only in [`Stage::Idle`] and [`Stage::Ended`].
    pub fn run(&mut self, task: &Task, now: u64) {
        self.stage = Stage::Preparing;
        let mut peers = self.peers.iter().enumerate();
        if let Some((index, reason)) = peers.find_map(|(index, p)| Some((index, p.gone.clone()?))) {
            return self.fail(index, &reason);
        }
        let of = self.peers.len() as u32;
        for (index, peer) in (0_u32..).zip(&mut self.peers) {
            let mut task = task.clone();
            task.plan.segment = Some(Segment { index, of });
            peer.state = State::Preparing;
            peer.result = None;
            peer.snapshot = Snapshot::default();
            self.output.push_back((index as usize, ToGenerator::Prepare(Box::new(task))));
        }
        let plan = &task.plan;
        let seconds = match plan.end {
            End::Seconds(seconds) => seconds + plan.warmup_seconds + plan.timeout_seconds,
            End::Requests(_) => f64::INFINITY,
        };
        self.lasts = (seconds * SECOND as f64) as u64;
        self.overdue = now + PREPARING;
    }

    /// Ends the run early. What was measured is kept.
    pub fn stop(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        match self.stage {
            Stage::Running => (0..self.peers.len()).for_each(|index| {
                self.output.push_back((index, ToGenerator::Stop));
            }),
            Stage::Connecting | Stage::Idle | Stage::Preparing => {
                self.stage = Stage::Failed("interrupted".to_owned());
            }
            Stage::Ended | Stage::Failed(_) => {}
        }
    }

    /// Processes a message that arrived from a generator at `now`.
    pub fn receive(&mut self, from: usize, message: FromGenerator, now: u64) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        peer.heard = now;
        match (message, peer.state) {
            (FromGenerator::Hello(hello), State::Greeting) => match hello.check() {
                Ok(()) => {
                    peer.state = State::Idle;
                    if peer.name.is_empty() {
                        peer.name = hello.name;
                    }
                }
                Err(reason) => return self.fail(from, &reason),
            },
            (FromGenerator::Pong { number, clock }, _) => {
                peer.pong(number, clock, now);
                if let State::Comparing(exchanges, until) = peer.state {
                    peer.compare(from, exchanges + 1, until, now, &mut self.output);
                }
            }
            (FromGenerator::Prepared, State::Preparing) => {
                peer.state = State::Comparing(0, now + EXCHANGING);
                peer.ping(from, now, &mut self.output);
            }
            (FromGenerator::Progress(snapshot), State::Running) => peer.snapshot = snapshot,
            (FromGenerator::Done(done), State::Running) => {
                peer.state = State::Ended;
                peer.result = Some(Ok(*done));
            }
            (FromGenerator::Failed { reason }, State::Running) => self.lose(from, &reason),
            (FromGenerator::Failed { reason }, _) => return self.fail(from, &reason),
            // Repeated or late.
            _ => {}
        }
        self.advance(now);
    }

    /// Processes the end of the link to a generator.
    pub fn closed(&mut self, from: usize, reason: &str, now: u64) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        peer.gone = Some(reason.to_owned());
        match (&self.stage, peer.state) {
            (Stage::Running, State::Running) => self.lose(from, reason),
            (Stage::Running, _) | (Stage::Ended | Stage::Failed(_), _) => {}
            _ => return self.fail(from, reason),
        }
        self.advance(now);
    }

    /// Does what is due at `now`. To be called a few times per second.
    pub fn tick(&mut self, now: u64) {
        if self.stage == Stage::Preparing && now > self.overdue {
            let slow = self.peers.iter().position(|peer| peer.state != State::Prepared);
            self.fail(slow.unwrap_or(0), "it has not prepared the run in time");
        }
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.state != State::Greeting && peer.gone.is_none() && now >= peer.next_ping {
                peer.ping(index, now, &mut self.output);
            }
            if peer.state != State::Running {
                continue;
            }
            if now > peer.heard.max(self.agreed) + SILENCE_SECONDS * SECOND {
                self.lose(index, &format!("no message from it for {SILENCE_SECONDS} s"));
            } else if now > self.overdue {
                self.lose(index, "it has not ended in time");
            }
        }
        self.advance(now);
    }

    /// Returns the messages to send, in order, with the number of their generator.
    pub fn output(&mut self) -> impl Iterator<Item = (usize, ToGenerator)> {
        self.output.drain(..)
    }

    /// Returns what is waited for.
    #[must_use]
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Names of the generators that have not sent their first message.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        let greets = |peer: &&Peer| peer.state == State::Greeting;
        self.peers.iter().filter(greets).map(|peer| peer.name.as_str())
    }

    /// Returns the counts of each generator so far.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        self.peers.iter().map(|peer| peer.snapshot)
    }

    /// Returns the results of the run, with the number of connections at their pace.
    pub fn parts(&mut self) -> (Vec<Part>, Conformance) {
        let of = self.peers.len() as u32;
        let mut conformance = Conformance::default();
        let mut parts = Vec::new();
        for (index, peer) in (0_u32..).zip(&mut self.peers) {
            let result = peer.result.take();
            let mut start = None;
            let result =
                result.unwrap_or_else(|| Err("it has no results".to_owned())).map(|done| {
                    start = peer.start(done.began, self.agreed);
                    conformance.add(done.conformance);
                    done.outcome
                });
            let (name, segment) = (peer.name.clone(), Some(Segment { index, of }));
            parts.push(Part { name, result, segment, start });
        }
        (parts, conformance)
    }

    /// Returns the instant on which the generators agreed.
    #[must_use]
    pub fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Proceeds to the next stage when all generators are ready for it.
    fn advance(&mut self, now: u64) {
        let all = |state: State| self.peers.iter().all(|peer| peer.state == state);
        match self.stage {
            Stage::Connecting if all(State::Idle) => self.stage = Stage::Idle,
            Stage::Preparing if all(State::Prepared) => self.start(now),
            Stage::Running if all(State::Ended) => self.stage = Stage::Ended,
            _ => {}
        }
    }

    /// Agrees on an instant and sends it to each generator by its own clock.
    fn start(&mut self, now: u64) {
        let slowest = self.peers.iter().map(|peer| peer.offset.round_trip()).max().unwrap_or(0);
        self.agreed = now + LEAD + 4 * slowest;
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let Some(at) = peer.offset.to_other(self.agreed) else {
                return self.fail(index, "its clock is not monotonic");
            };
            peer.state = State::Running;
            peer.next_ping = now;
            self.output.push_back((index, ToGenerator::Start { at }));
        }
        self.overdue = self.lasts.saturating_add(self.agreed + GRACE);
        self.stage = Stage::Running;
    }

    /// Goes on without a generator.
    fn lose(&mut self, index: usize, reason: &str) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        let responses = peer.snapshot.requests;
        peer.state = State::Ended;
        peer.result = Some(Err(format!(
            "{reason}; its results, at least {responses} responses, are missing"
        )));
        self.output.push_back((index, ToGenerator::Stop));
    }

    fn fail(&mut self, index: usize, reason: &str) {
        if let Some(peer) = self.peers.get(index)
            && !matches!(self.stage, Stage::Failed(_))
        {
            self.stage = Stage::Failed(format!("{}: {reason}", peer.name));
        }
    }
}

impl Peer {
    fn ping(&mut self, index: usize, now: u64, output: &mut VecDeque<(usize, ToGenerator)>) {
        let number = self.pings.back().map_or(0, |(number, _)| number + 1);
        self.pings.push_back((number, now));
        // The last one stays, so that numbers are not used again.
        if self.pings.len() > MOST_EXCHANGES {
            self.pings.pop_front();
        }
        self.next_ping = now + PING_INTERVAL;
        output.push_back((index, ToGenerator::Ping { number }));
    }

    fn pong(&mut self, number: u64, clock: u64, now: u64) {
        let sent = self.pings.iter().find(|(own, _)| *own == number).map(|(_, sent)| *sent);
        if let Some(sent) = sent {
            self.offset.add(sent, clock, now);
        }
    }

    /// Sends the next ping before a run, or ends the comparison.
    fn compare(
        &mut self,
        index: usize,
        exchanges: usize,
        until: u64,
        now: u64,
        output: &mut VecDeque<(usize, ToGenerator)>,
    ) {
        if exchanges < LEAST_EXCHANGES || exchanges < MOST_EXCHANGES && now < until {
            self.state = State::Comparing(exchanges, until);
            self.ping(index, now, output);
        } else {
            self.state = State::Prepared;
        }
    }

    /// Returns the start of the load relative to the agreed instant, from `began` by the generator's clock.
    fn start(&self, began: u64, agreed: u64) -> Option<Start> {
        let (own, uncertainty) = self.offset.to_own(began)?;
        let at_ms = (own - i128::from(agreed)) as f64 / MS as f64;
        Some(Start { at_ms, uncertainty_ms: Some(uncertainty as f64 / MS as f64) })
    }
}

#[cfg(test)]
mod tests;
