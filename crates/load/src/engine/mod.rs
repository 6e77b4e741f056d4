//! The engine: workers on threads of their own, each with its connections, its share of the plan and its own tally. They
//! share no mutable state while they run.

mod clock;
mod connection;
mod http2;
mod job;
mod pace;
mod request;
mod response;
mod series;
mod shared;
mod tally;
mod timers;
mod tls;
mod transport;
mod worker;

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub use job::{Extras, Job, JobError};
pub use series::Series;
pub use tally::{Conformance, Tally, Windows};
pub(crate) use transport::MIN_RECEIVE_BUFFER;

use crate::plan::Protocol;
use crate::processes::{self, Sample};
use crate::progress::Progress;

use clock::Clock;
use worker::Worker;

/// The measurement of all workers.
pub struct Measured {
    /// The sum of all tallies.
    pub tally: Tally,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Start of the measurement.
    pub started: SystemTime,
    /// Time from the start of the run until its last worker has started.
    pub late: Duration,
    /// The server's processes before and after, if they run on this machine.
    pub server: Option<(Sample, Sample)>,
    /// The generator's process before and after.
    pub client: (Sample, Sample),
}

/// Time to search all processes of the machine.
const SEARCH_TIME: Duration = Duration::from_millis(20);

/// Runs `job` from `start`, or else at once, to its end or until `progress` is stopped.
///
/// # Errors
/// A worker cannot be created.
pub fn run(job: &Job, progress: &Progress, start: Option<Instant>) -> io::Result<Measured> {
    let pids = processes::listening_on(job.address);
    // Search again at the end, since servers start processes under load.
    let find = || processes::with_descendants(pids.iter().flatten().copied());
    let sample = |found: &[u32]| {
        let server = (!found.is_empty()).then(|| processes::sample(found));
        (server, processes::sample_self())
    };
    let warmup = Duration::from_secs_f64(job.plan.warmup_seconds);
    let mut before = sample(&find());
    let now = Instant::now();
    let start = start.unwrap_or(now);
    let clock = Clock::new(start);
    let ahead = start.saturating_duration_since(now) + warmup;
    let started = SystemTime::now() + ahead - now.saturating_duration_since(start);
    thread::scope(|scope| {
        let (done, ended) = mpsc::channel();
        let mut held = Vec::new();
        for index in 0..job.plan.threads {
            let slot = progress.slot(index as usize);
            let worker = match job.plan.protocol {
                Protocol::Http2 => None,
                _ => Some(Worker::new(job, clock, index, slot).inspect_err(|_| progress.stop())?),
            };
            let (hold, release) = mpsc::channel();
            held.push(hold);
            let done = done.clone();
            let builder = thread::Builder::new().name(format!("load-{index}"));
            let spawned = builder.spawn_scoped(scope, move || {
                clock.wait(Duration::ZERO, || slot.is_stopped());
                let late = clock.now();
                let (result, tally, end) = match worker {
                    Some(mut worker) => {
                        let result = worker.run();
                        let (tally, end) = worker.finish();
                        (result, tally, end)
                    }
                    None => http2::run(job, clock, index, slot),
                };
                stay(Ended { result, tally, end, late }, done, release);
            });
            spawned.inspect_err(|_| progress.stop())?;
        }
        drop(done);
        if !ahead.is_zero() {
            // Search the processes beforehand, so that the sample is taken at the exact time.
            Clock::new(now).wait(ahead.saturating_sub(SEARCH_TIME), || progress.is_stopped());
            let found = find();
            clock.wait(warmup, || progress.is_stopped());
            before = sample(&found);
        }
        let began = clock::nanos(job.plan.warmup_seconds);
        let (mut tally, mut last, mut failure) = (Tally::new(0), began, None);
        let (mut count, mut late) = (0, 0);
        while let Ok(worker) = ended.recv() {
            tally.add(worker.tally);
            last = last.max(worker.end);
            late = late.max(worker.late);
            failure = failure.or(worker.result.err());
            count += 1;
        }
        // The workers' threads still exist, so that their processor time can be read.
        let after = sample(&find());
        drop(held);
        if let Some(error) = failure {
            return Err(error);
        }
        if count < job.plan.threads {
            return Err(io::Error::other("a worker thread panicked"));
        }
        let seconds = last.saturating_sub(began).max(1) as f64 / 1e9;
        let (server, client) = (before.0.zip(after.0), (before.1, after.1));
        let late = Duration::from_nanos(late);
        let started = started + late;
        Ok(Measured { tally, seconds, started, late, server, client })
    })
}

/// The end of a worker. Times are in nanoseconds since the start of the run.
struct Ended {
    result: io::Result<()>,
    tally: Tally,
    end: u64,
    /// When the worker started.
    late: u64,
}

/// Reports the result of a worker, and keeps its thread alive until its processor time has been read.
fn stay(ended: Ended, done: mpsc::Sender<Ended>, release: mpsc::Receiver<()>) {
    // The receiver is gone if the run has failed.
    let _ = done.send(ended);
    drop(done);
    let _ = release.recv();
}
