//! Generators in memory, with clocks, delays and faults of their own, and time that tests advance.

use super::*;
use crate::generators::protocol::Hello;
use crate::outcome::{Outcome, Verdict};
use crate::testing;

/// A simulated generator.
struct Simulated {
    /// The time by which the clock is behind the coordinator's.
    behind: u64,
    /// Delays of messages from and to the coordinator.
    there: u64,
    back: u64,
    /// The delay of its start after the agreed instant.
    late: u64,
    /// It does not respond from this time on.
    dies: u64,
    /// The time when it received `start`, and the instant by its own clock.
    starts: Option<u64>,
    /// The time when the run is over, by the coordinator's clock.
    ends: Option<u64>,
    stopped: bool,
    bye: Option<String>,
}

impl Default for Simulated {
    fn default() -> Self {
        Self {
            behind: 0,
            there: MS,
            back: MS,
            late: 0,
            dies: u64::MAX,
            starts: None,
            ends: None,
            stopped: false,
            bye: None,
        }
    }
}

/// A message under way.
struct Under {
    at: u64,
    generator: usize,
    message: Way,
}

enum Way {
    There(ToGenerator),
    Back(FromGenerator),
}

struct Simulation {
    coordinator: Coordinator,
    generators: Vec<Simulated>,
    under_way: Vec<Under>,
    now: u64,
    seconds: f64,
}

impl Simulation {
    fn new(generators: Vec<Simulated>) -> Self {
        let names = (1..=generators.len()).map(|number| format!("host{number}")).collect();
        let coordinator = Coordinator::new(names);
        let mut all =
            Self { coordinator, generators, under_way: Vec::new(), now: SECOND, seconds: 2.0 };
        (0..all.generators.len())
            .for_each(|index| all.back(index, FromGenerator::Hello(Hello::own())));
        all
    }

    fn back(&mut self, generator: usize, message: FromGenerator) {
        let at = self.now + self.generators[generator].back;
        self.under_way.push(Under { at, generator, message: Way::Back(message) });
    }

    /// Advances until the coordinator leaves its stage.
    fn advance(&mut self) -> Stage {
        let stage = self.coordinator.stage().clone();
        let end = self.now + 300 * SECOND;
        while *self.coordinator.stage() == stage {
            assert!(self.now < end, "nothing happens in {stage:?}");
            self.step();
        }
        self.coordinator.stage().clone()
    }

    /// Advances by a tenth of a millisecond.
    fn step(&mut self) {
        for (generator, message) in self.coordinator.output() {
            let at = self.now + self.generators[generator].there;
            self.under_way.push(Under { at, generator, message: Way::There(message) });
        }
        self.now += MS / 10;
        let now = self.now;
        let (due, rest) =
            std::mem::take(&mut self.under_way).into_iter().partition(|u| u.at <= now);
        self.under_way = rest;
        let due: Vec<Under> = due;
        for Under { generator, message, .. } in due {
            match message {
                Way::Back(message) => self.coordinator.receive(generator, message, now),
                Way::There(message) if now < self.generators[generator].dies => {
                    self.receive(generator, message);
                }
                Way::There(_) => {}
            }
        }
        self.end_runs();
        if now.is_multiple_of(50 * MS) {
            self.coordinator.tick(now);
        }
    }

    fn receive(&mut self, index: usize, message: ToGenerator) {
        let (now, seconds) = (self.now, self.seconds);
        let own = &mut self.generators[index];
        let clock = now - own.behind;
        match message {
            ToGenerator::Ping { number } => self.back(index, FromGenerator::Pong { number, clock }),
            ToGenerator::Prepare(task) => {
                assert_eq!(task.plan.segment.unwrap().index as usize, index);
                self.back(index, FromGenerator::Prepared);
            }
            ToGenerator::Start { at } => {
                assert!(at > clock, "the start has passed when it is received");
                own.starts = Some(at);
                let length = (seconds * SECOND as f64) as u64;
                own.ends = Some(at + own.behind + own.late + length);
            }
            ToGenerator::Stop => {
                own.stopped = true;
                own.ends = own.ends.map(|ends| ends.min(now));
            }
            ToGenerator::Bye { reason } => own.bye = Some(reason),
        }
    }

    fn end_runs(&mut self) {
        for index in 0..self.generators.len() {
            let own = &mut self.generators[index];
            if own.ends.is_none_or(|ends| ends > self.now) || self.now >= own.dies {
                continue;
            }
            own.ends = None;
            let began = own.starts.unwrap() + own.late;
            let outcome = testing::outcome(100, self.seconds);
            let segment = Some(Segment { index: index as u32, of: self.generators.len() as u32 });
            let outcome =
                Outcome { plan: crate::plan::Plan { segment, ..outcome.plan.clone() }, ..outcome };
            let conformance = Conformance { users: 2, conforming: 1, late: 0 };
            self.back(index, FromGenerator::Done(Box::new(Done { outcome, conformance, began })));
        }
    }

    /// Runs a plan to its end, and merges the results.
    fn run(&mut self) -> Outcome {
        assert_eq!(self.advance(), Stage::Idle);
        let now = self.now;
        self.coordinator.run(&testing::task(self.seconds), now);
        assert_eq!(self.advance(), Stage::Running);
        assert_eq!(self.advance(), Stage::Ended);
        let (parts, _) = self.coordinator.parts();
        crate::merge::merge(&parts, false).unwrap()
    }
}

#[test]
fn generators_with_any_clock_start_at_one_instant() {
    let generators = vec![
        Simulated { behind: 900 * MS, ..Simulated::default() },
        Simulated { behind: 17, there: 40 * MS, back: 40 * MS, ..Simulated::default() },
        Simulated { behind: 500 * MS, there: 3 * MS, back: MS, ..Simulated::default() },
    ];
    let mut simulation = Simulation::new(generators);
    let outcome = simulation.run();
    let agreed = simulation.coordinator.agreed();
    let starts = simulation.generators.iter().map(|own| own.starts.unwrap() + own.behind);
    // The simulation has steps of a tenth of a millisecond; the third generator's ways differ by 2 ms.
    let errors: Vec<u64> = starts.map(|start| start.abs_diff(agreed)).collect();
    assert!(
        errors[0] <= MS / 10 && errors[1] <= MS / 10 && errors[2] <= MS + MS / 10,
        "{errors:?}"
    );
    let generators = outcome.generators.unwrap();
    let uncertainties: Vec<f64> =
        generators.each.iter().map(|one| one.uncertainty_ms.unwrap()).collect();
    assert!(
        uncertainties[0] < 1.3 && (40.0..41.0).contains(&uncertainties[1]),
        "{uncertainties:?}"
    );
    for (error, uncertainty) in errors.iter().zip(&uncertainties) {
        assert!(*error as f64 / MS as f64 <= *uncertainty);
    }
    assert_eq!(outcome.verdict, Verdict::Valid, "{:?}", outcome.reasons);
    assert_eq!((outcome.requests, outcome.latency_ms.unwrap().count), (300, 300));
}

#[test]
fn a_late_start_is_measured_and_judged() {
    let late = Simulated { late: 80 * MS, behind: 333 * MS, ..Simulated::default() };
    let outcome = Simulation::new(vec![Simulated::default(), late]).run();
    let skew = outcome.generators.unwrap().skew_ms;
    assert!((79.0..81.5).contains(&skew), "{skew}");
    assert_eq!(outcome.verdict, Verdict::ClientBound);
    assert!(outcome.reasons[0].starts_with("host2 started 80 ms after"), "{:?}", outcome.reasons);
}

#[test]
fn a_generator_that_falls_silent_is_given_up_and_named() {
    let dies = Simulated { dies: 3 * SECOND, ..Simulated::default() };
    let mut simulation = Simulation::new(vec![Simulated::default(), dies]);
    simulation.seconds = 4.0;
    let outcome = simulation.run();
    assert_eq!((outcome.verdict, outcome.requests), (Verdict::Incomplete, 100));
    assert!(outcome.reasons[0].starts_with("host2: no message from it"), "{:?}", outcome.reasons);
    // Ten seconds of silence, and no wait for anything else.
    assert!(simulation.now < 15 * SECOND, "{}", simulation.now);
}

#[test]
fn a_link_that_breaks_in_the_run_loses_one_generator_only() {
    let mut simulation = Simulation::new(vec![Simulated::default(), Simulated::default()]);
    simulation.advance();
    let now = simulation.now;
    simulation.coordinator.run(&testing::task(2.0), now);
    simulation.advance();
    let progress = Snapshot { requests: 42, ..Snapshot::default() };
    simulation.coordinator.receive(1, FromGenerator::Progress(progress), now);
    simulation.generators[1].dies = 0;
    simulation.coordinator.closed(1, "the connection has ended", now);
    assert_eq!(simulation.advance(), Stage::Ended);
    let (parts, conformance) = simulation.coordinator.parts();
    let outcome = crate::merge::merge(&parts, false).unwrap();
    assert_eq!((outcome.verdict, conformance.users), (Verdict::Incomplete, 2));
    let lost = outcome.generators.unwrap().each[1].lost.clone().unwrap();
    assert!(lost.contains("has ended") && lost.contains("at least 42 responses"), "{lost}");
    // Another run is impossible.
    let now = simulation.now;
    simulation.coordinator.run(&testing::task(2.0), now);
    assert!(matches!(simulation.coordinator.stage(), Stage::Failed(_)));
}

#[test]
fn a_link_that_breaks_before_the_run_prevents_it() {
    let mut simulation = Simulation::new(vec![Simulated::default(), Simulated::default()]);
    simulation.coordinator.closed(0, "Connection refused", 0);
    let failed = Stage::Failed("host1: Connection refused".to_owned());
    assert_eq!(*simulation.coordinator.stage(), failed);
    simulation.coordinator.closed(1, "Connection refused", 0);
    assert_eq!(*simulation.coordinator.stage(), failed, "the first error is the one to report");
}

#[test]
fn a_generator_of_another_version_is_rejected_with_both_versions() {
    for (protocol, version) in [(2, env!("CARGO_PKG_VERSION")), (1, "99.0.0")] {
        let mut coordinator = Coordinator::new(vec!["host1".to_owned()]);
        let hello = Hello { protocol, version: version.to_owned(), name: "a".to_owned() };
        coordinator.receive(0, FromGenerator::Hello(hello), 0);
        let Stage::Failed(reason) = coordinator.stage() else { panic!("it was accepted") };
        assert!(reason.starts_with("host1: its dunlin has version"), "{reason}");
        assert!(reason.contains(version) && reason.contains(env!("CARGO_PKG_VERSION")), "{reason}");
    }
}

#[test]
fn a_plan_that_one_generator_cannot_run_is_not_run_by_any() {
    let mut simulation = Simulation::new(vec![Simulated::default(), Simulated::default()]);
    simulation.advance();
    let now = simulation.now;
    simulation.coordinator.run(&testing::task(1.0), now);
    simulation.back(1, FromGenerator::Failed { reason: "no descriptors".to_owned() });
    assert_eq!(simulation.advance(), Stage::Failed("host2: no descriptors".to_owned()));
    assert!(simulation.generators.iter().all(|own| own.starts.is_none()));
}

#[test]
fn a_generator_that_does_not_prepare_in_time_prevents_the_run() {
    let silent = Simulated { dies: 2 * SECOND, ..Simulated::default() };
    let mut simulation = Simulation::new(vec![Simulated::default(), silent]);
    simulation.advance();
    simulation.now = 3 * SECOND;
    simulation.coordinator.run(&testing::task(1.0), 3 * SECOND);
    let reason = "host2: it has not prepared the run in time".to_owned();
    assert_eq!(simulation.advance(), Stage::Failed(reason));
}

#[test]
fn an_interrupt_stops_all_generators_and_keeps_their_results() {
    let mut simulation = Simulation::new(vec![Simulated::default(), Simulated::default()]);
    simulation.seconds = 1000.0;
    simulation.advance();
    let now = simulation.now;
    simulation.coordinator.run(&testing::task(1000.0), now);
    simulation.advance();
    (0..20_000).for_each(|_| simulation.step());
    simulation.coordinator.stop();
    assert_eq!(simulation.advance(), Stage::Ended);
    assert!(simulation.generators.iter().all(|own| own.stopped));
    let (parts, _) = simulation.coordinator.parts();
    let outcome = crate::merge::merge(&parts, true).unwrap();
    assert_eq!((outcome.verdict, outcome.requests), (Verdict::Valid, 200));
}

#[test]
fn an_interrupt_before_the_start_ends_everything() {
    let mut simulation = Simulation::new(vec![Simulated::default()]);
    simulation.coordinator.stop();
    assert_eq!(*simulation.coordinator.stage(), Stage::Failed("interrupted".to_owned()));
}

#[test]
fn generators_run_any_number_of_plans() {
    let mut simulation = Simulation::new(vec![Simulated::default(), Simulated::default()]);
    assert_eq!(simulation.run().requests, 200);
    for _ in 0..3 {
        let now = simulation.now;
        simulation.coordinator.run(&testing::task(2.0), now);
        assert_eq!(simulation.advance(), Stage::Running);
        assert_eq!(simulation.advance(), Stage::Ended);
        let (parts, _) = simulation.coordinator.parts();
        assert!(parts.iter().all(|part| part.result.is_ok()));
    }
}
