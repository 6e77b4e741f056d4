//! A generator: runs its segment of plans as a coordinator has it do, and stops by itself if the link breaks.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::link::{Arrived, Event, Link, encode, read_lines, report, write_lines};
use super::protocol::{Done, FromGenerator, Hello, SILENCE_SECONDS, Task, ToGenerator};
use crate::conclude::conclude;
use crate::engine::{self, Job};
use crate::preflight;
use crate::progress::Progress;

/// Interval of progress messages.
const PROGRESS: Duration = Duration::from_millis(250);

/// Serves a coordinator at the other end of `input` and `output`, until the coordinator needs no more.
///
/// # Errors
/// The link broke, or the coordinator rejects this generator.
pub fn serve(
    input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
) -> Result<(), String> {
    let (events, arrived) = mpsc::channel();
    let reader = events.clone();
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        let read = read_lines(&mut input, |line| report(&reader, COORDINATOR, Event::Line(line)));
        let reason = read.err().map_or("the coordinator has ended".to_owned(), |e| e.to_string());
        report(&reader, COORDINATOR, Event::Closed(reason))
    });
    let (link, lines) = mpsc::channel::<Vec<u8>>();
    let writer = thread::spawn(move || write_lines(&mut output, lines.into_iter()));
    let served = run(Box::new(Lines(link)), &arrived, &events);
    // The last message is written before the process ends.
    let _ = writer.join();
    served
}

/// A link over a stream: lines go to the thread that writes them.
pub(super) struct Lines(pub(super) Sender<Vec<u8>>);

impl Link for Lines {
    fn send(&mut self, line: String) {
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        // A writer that has ended is reported by the reader.
        let _ = self.0.send(bytes);
    }
}

/// Number of the coordinator's link among the events; the others are the generator's own.
pub(super) const COORDINATOR: usize = 0;
/// Number of events of the engine.
const ENGINE: usize = 1;

/// Serves a coordinator over any link. `events` is the sender of `arrived`.
///
/// # Errors
/// As [`serve`].
pub(super) fn run(
    link: Box<dyn Link>,
    arrived: &Receiver<Arrived>,
    events: &Sender<Arrived>,
) -> Result<(), String> {
    let mut generator = Generator {
        link,
        events: events.clone(),
        epoch: Instant::now(),
        heard: None,
        job: None,
        running: None,
    };
    generator.send(&FromGenerator::Hello(Hello::own()));
    let served = generator.serve(arrived);
    generator.stop();
    served
}

struct Generator {
    link: Box<dyn Link>,
    events: Sender<Arrived>,
    /// Start of the clock that the coordinator compares with its own.
    epoch: Instant,
    /// The time of the last message of the coordinator.
    heard: Option<Instant>,
    /// The plan that is prepared.
    job: Option<Arc<Job>>,
    running: Option<Running>,
}

struct Running {
    progress: Arc<Progress>,
    thread: thread::JoinHandle<io::Result<Done>>,
}

impl Generator {
    fn serve(&mut self, arrived: &Receiver<Arrived>) -> Result<(), String> {
        let silence = Duration::from_secs(SILENCE_SECONDS);
        loop {
            match arrived.recv_timeout(PROGRESS) {
                Ok(Arrived { from: ENGINE, .. }) => self.ended(),
                Ok(Arrived { event: Event::Closed(reason), .. }) => return Err(reason),
                Ok(Arrived { event: Event::Line(line), .. }) => {
                    if self.receive(&line)? {
                        return Ok(());
                    }
                    // Preparing a plan takes time in which nothing is received.
                    self.heard = Some(Instant::now());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the link has ended".to_owned()),
            }
            if self.heard.is_some_and(|heard| heard.elapsed() > silence) {
                return Err(format!("no message from the coordinator for {SILENCE_SECONDS} s"));
            }
            if let Some(running) = &self.running {
                let snapshot = running.progress.snapshot();
                self.send(&FromGenerator::Progress(snapshot));
            }
        }
    }

    /// Processes a message. Returns whether it is the last one.
    fn receive(&mut self, line: &str) -> Result<bool, String> {
        let message = serde_json::from_str(line)
            .map_err(|error| format!("the coordinator sent an invalid message ({error})"))?;
        match message {
            ToGenerator::Ping { number } => {
                let clock = self.epoch.elapsed().as_nanos() as u64;
                self.send(&FromGenerator::Pong { number, clock });
            }
            ToGenerator::Prepare(task) => {
                let response = match prepare(*task) {
                    Ok(job) => {
                        self.job = Some(Arc::new(job));
                        FromGenerator::Prepared
                    }
                    Err(reason) => FromGenerator::Failed { reason },
                };
                self.send(&response);
            }
            ToGenerator::Start { at } => self.start(at),
            ToGenerator::Stop => {
                if let Some(running) = &self.running {
                    running.progress.stop();
                }
            }
            ToGenerator::Bye { reason } if reason.is_empty() => return Ok(true),
            ToGenerator::Bye { reason } => return Err(reason),
        }
        Ok(false)
    }

    /// Runs the plan from an instant of the own clock.
    fn start(&mut self, at: u64) {
        let (Some(job), None) = (self.job.take(), &self.running) else { return };
        let start = self.epoch + Duration::from_nanos(at);
        let progress = Arc::new(Progress::new(job.plan.threads as usize));
        let (own, events) = (Arc::clone(&progress), self.events.clone());
        let thread = thread::spawn(move || {
            let measured = engine::run(&job, &own, Some(start));
            let done = measured.map(|measured| Done {
                outcome: conclude(&job, &measured),
                conformance: measured.tally.conformance,
                began: at + measured.late.as_nanos() as u64,
            });
            report(&events, ENGINE, Event::Line(String::new()));
            done
        });
        self.running = Some(Running { progress, thread });
    }

    /// Sends the result of the run.
    fn ended(&mut self) {
        let Some(running) = self.running.take() else { return };
        let message = match running.thread.join() {
            Ok(Ok(done)) => FromGenerator::Done(Box::new(done)),
            Ok(Err(error)) => FromGenerator::Failed { reason: error.to_string() },
            Err(_) => FromGenerator::Failed { reason: "a thread panicked".to_owned() },
        };
        self.send(&message);
    }

    /// Ends the load, if it runs.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.progress.stop();
            // There is no receiver of the result.
            let _ = running.thread.join();
        }
    }

    fn send(&mut self, message: &FromGenerator) {
        self.link.send(encode(message));
    }
}

/// Checks everything that can be checked before the run.
fn prepare(task: Task) -> Result<Job, String> {
    let Task { plan, extras, reference, permitted } = task;
    let mut job = Job::new(plan, extras, reference).map_err(|error| error.to_string())?;
    if !job.is_local() && !permitted {
        return Err(job.not_permitted());
    }
    preflight::prepare(&mut job.plan, job.address)?;
    job.probe().map_err(|error| error.to_string())?;
    Ok(job)
}
