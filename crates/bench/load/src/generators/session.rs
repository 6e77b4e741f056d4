//! Runs a [`Coordinator`] over links.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use super::coordinator::{Coordinator, Stage};
use super::link::{Arrived, Event, Link, encode};
use super::protocol::{Task, ToGenerator};
use crate::engine::Conformance;
use crate::merge::{self, Part};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::time;

/// The generators of one command, which run any number of plans.
pub struct Session {
    coordinator: Coordinator,
    links: Vec<Box<dyn Link>>,
    events: Receiver<Arrived>,
    epoch: Instant,
}

/// A run of all generators.
pub struct Run {
    /// The merged outcome.
    pub outcome: Outcome,
    /// With a modem pace: connections that were served at that pace.
    pub conformance: Conformance,
}

/// Interval of the coordinator's ticks.
const TICK: Duration = Duration::from_millis(50);
/// Interval of messages on generators that are waited for.
const REMINDER: Duration = Duration::from_secs(10);

impl Session {
    /// Waits for the first message of all generators. `events` are those of `links`, by number. `waiting` gets the names of
    /// those that are waited for, from time to time.
    ///
    /// # Errors
    /// A generator cannot be used, or `stop` was set.
    pub fn new(
        names: Vec<String>,
        links: Vec<Box<dyn Link>>,
        events: Receiver<Arrived>,
        stop: &AtomicBool,
        mut waiting: impl FnMut(&[&str]),
    ) -> Result<Self, String> {
        let coordinator = Coordinator::new(names);
        let mut session = Self { coordinator, links, events, epoch: Instant::now() };
        let mut reminder = Instant::now() + REMINDER;
        session.drive(Stage::Connecting, stop, |coordinator| {
            if Instant::now() >= reminder {
                reminder += REMINDER;
                waiting(&coordinator.absent().collect::<Vec<_>>());
            }
        })?;
        Ok(session)
    }

    /// Runs a plan on all generators, each its segment. `progress` has a slot for each; its flag ends the run early.
    ///
    /// # Errors
    /// The run could not start, or no generator has results.
    pub fn run(&mut self, task: &Task, progress: &Progress) -> Result<Run, String> {
        let now = self.now();
        self.coordinator.run(task, now);
        let stop = progress.stop_flag();
        self.drive(Stage::Preparing, &stop, |_| {})?;
        let started = self.instant(self.coordinator.agreed());
        self.drive(Stage::Running, &stop, |coordinator| {
            for (index, snapshot) in coordinator.snapshots().enumerate() {
                progress.slot(index).publish(snapshot);
            }
        })?;
        let (mut parts, conformance) = self.coordinator.parts();
        align(&mut parts, started, task.plan.warmup_seconds);
        let outcome = merge::merge(&parts, stop.load(Ordering::Relaxed))?;
        Ok(Run { outcome, conformance })
    }

    /// Returns the number of generators.
    #[must_use]
    pub fn generators(&self) -> usize {
        self.links.len()
    }

    /// Processes events until the coordinator leaves `stage`.
    fn drive(
        &mut self,
        stage: Stage,
        stop: &AtomicBool,
        mut each: impl FnMut(&Coordinator),
    ) -> Result<(), String> {
        while *self.coordinator.stage() == stage {
            self.send();
            match self.events.recv_timeout(TICK) {
                Ok(arrived) => self.process(arrived)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            if stop.load(Ordering::Relaxed) {
                self.coordinator.stop();
            }
            let now = self.now();
            self.coordinator.tick(now);
            each(&self.coordinator);
        }
        self.send();
        match self.coordinator.stage() {
            Stage::Failed(reason) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    fn process(&mut self, arrived: Arrived) -> Result<(), String> {
        let now = arrived.at.saturating_duration_since(self.epoch).as_nanos() as u64;
        match arrived.event {
            Event::Line(line) => match serde_json::from_str(&line) {
                Ok(message) => self.coordinator.receive(arrived.from, message, now),
                Err(error) => {
                    let start: String = line.chars().take(100).collect();
                    let reason = format!("it sent an invalid message ({error}): {start}");
                    self.coordinator.closed(arrived.from, &reason, now);
                }
            },
            Event::Closed(reason) => self.coordinator.closed(arrived.from, &reason, now),
        }
        Ok(())
    }

    fn send(&mut self) {
        for (to, message) in self.coordinator.output() {
            if let Some(link) = self.links.get_mut(to) {
                link.send(encode(&message));
            }
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Returns the time of day of a time of the coordinator.
    fn instant(&self, nanos: u64) -> SystemTime {
        SystemTime::now() + Duration::from_nanos(nanos) - self.epoch.elapsed()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for link in &mut self.links {
            link.send(encode(&ToGenerator::Bye { reason: String::new() }));
        }
    }
}

/// Sets the starts of all outcomes by the coordinator's clock.
fn align(parts: &mut [Part], agreed: SystemTime, warmup_seconds: f64) {
    let measuring = agreed + Duration::from_secs_f64(warmup_seconds);
    for part in parts {
        if let Ok(outcome) = &mut part.result {
            outcome.started = time::rfc3339_millis(measuring);
        }
    }
}
