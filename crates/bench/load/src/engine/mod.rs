//! The engine: workers on threads of their own, each with its connections, its share of the plan and its own tally. They
//! share no mutable state while they run. A worker is an engine, `http1`, or `streams` with an adapter such as `http2`, under a
//! `recorder`, which has what is due and in flight, and counts what becomes of it.

mod clock;
mod dictionary;
mod http1;
mod http2;
mod http3;
mod job;
mod recorder;
mod request;
mod response;
mod series;
mod streams;
mod tally;
mod tls;

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use http1::MIN_RECEIVE_BUFFER;
pub use job::{Extras, Job, JobError};
pub use series::Series;
pub use tally::{Conformance, Lost, Quarter, Tally, Windows};

use crate::plan::Protocol;
use crate::processes::{self, Sample};
use crate::progress::{Progress, Slot};
use crate::segment::Segment;

use clock::Clock;
use http1::Http1;
use http2::Http2;
use http3::Http3;
use streams::Streams;

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
    let work = worker(job.plan.protocol);
    // Search again at the end, since servers start processes under load.
    let find = || processes::with_descendants(pids.iter().flatten().copied());
    let server = |found: &[u32]| (!found.is_empty()).then(|| processes::sample(found));
    let warmup = Duration::from_secs_f64(job.plan.warmup_seconds);
    let found = find();
    thread::scope(|scope| {
        let (done, ended) = mpsc::channel();
        let (prepared, ready) = mpsc::channel();
        let (mut held, mut begins) = (Vec::new(), Vec::new());
        for index in 0..job.plan.threads {
            let slot = progress.slot(index as usize);
            let (hold, release) = mpsc::channel();
            let (begin, begun) = mpsc::channel::<Clock>();
            held.push(hold);
            begins.push(begin);
            let (done, prepared) = (done.clone(), prepared.clone());
            let builder = thread::Builder::new().name(format!("load-{index}"));
            let spawned = builder.spawn_scoped(scope, move || {
                if let Some(ended) = work(job, index, slot, prepared, begun) {
                    stay(ended, done, release);
                }
            });
            spawned.inspect_err(|_| progress.stop())?;
        }
        drop((done, prepared));
        if ready.iter().count() < job.plan.threads as usize {
            return Err(panicked());
        }
        // What the threads did before is not part of the run.
        let mut before = (server(&found), processes::sample_self());
        let now = Instant::now();
        let start = start.unwrap_or(now);
        let clock = Clock::new(start);
        let ahead = start.saturating_duration_since(now) + warmup;
        let started = SystemTime::now() + ahead - now.saturating_duration_since(start);
        progress.begin(start);
        for begin in begins {
            // A thread that has panicked is noticed by its missing result.
            let _ = begin.send(clock);
        }
        if !ahead.is_zero() {
            // Search the processes beforehand, so that the sample is taken at the exact time.
            Clock::new(now).wait(ahead.saturating_sub(SEARCH_TIME), || progress.is_stopped());
            let found = find();
            clock.wait(warmup, || progress.is_stopped());
            before = (server(&found), processes::sample_self());
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
        // The workers' threads still exist, so that their processor time can be read. The search is not theirs.
        let client = processes::sample_self();
        let after = server(&find());
        drop(held);
        if let Some(error) = failure {
            return Err(error);
        }
        if count < job.plan.threads {
            return Err(panicked());
        }
        let seconds = last.saturating_sub(began).max(1) as f64 / 1e9;
        let late = Duration::from_nanos(late);
        Ok(Measured {
            tally,
            seconds,
            started: started + late,
            late,
            server: before.0.zip(after),
            client: (before.1, client),
        })
    })
}

fn panicked() -> io::Error {
    io::Error::other("a worker thread panicked")
}

/// A worker of one protocol. It takes requests from its [`recorder::Recorder`], carries them, and reports what becomes of them.
trait Engine<'a>: Sized {
    /// Prepares the worker of a part of the run, on its own thread. The worker publishes its progress in `slot`.
    ///
    /// # Errors
    /// The system lacks a resource.
    fn new(job: &'a Job, part: Segment, slot: &'a Slot) -> io::Result<Self>;

    /// Runs until the end of the plan, or until it is stopped.
    ///
    /// # Errors
    /// Events cannot be awaited.
    fn run(&mut self, clock: Clock) -> io::Result<()>;

    /// Returns the tally, and the end of the measurement in nanoseconds since the start.
    fn finish(&mut self) -> (Tally, u64);
}

/// The function that runs a worker with an index, once it has been prepared and the clock arrives.
type Work<'a> =
    fn(&'a Job, u32, &'a Slot, mpsc::Sender<()>, mpsc::Receiver<Clock>) -> Option<Ended>;

/// Returns the function that runs a worker of the protocol.
fn worker<'a>(protocol: Protocol) -> Work<'a> {
    match protocol {
        Protocol::Http10 | Protocol::Http11 => work::<Http1>,
        Protocol::Http2 => work::<Streams<Http2>>,
        Protocol::Http3 => work::<Streams<Http3>>,
    }
}

/// Runs a worker when the run begins; `None` if it does not, since another worker has failed.
fn work<'a, E: Engine<'a>>(
    job: &'a Job,
    index: u32,
    slot: &'a Slot,
    prepared: mpsc::Sender<()>,
    begun: mpsc::Receiver<Clock>,
) -> Option<Ended> {
    job.prepare_thread();
    let engine = E::new(job, job.plan.part_of_thread(index), slot);
    // The receivers are gone if the run has failed.
    let _ = prepared.send(());
    drop(prepared);
    let clock = begun.recv().ok()?;
    let mut engine = match engine {
        Ok(engine) => engine,
        Err(error) => {
            return Some(Ended { result: Err(error), tally: Tally::new(0), end: 0, late: 0 });
        }
    };
    clock.wait(Duration::ZERO, || slot.is_stopped());
    let late = clock.now();
    let result = engine.run(clock);
    let (tally, end) = engine.finish();
    Some(Ended { result, tally, end, late })
}

/// The end of a worker. Times are in nanoseconds since the start of the run.
struct Ended {
    result: io::Result<()>,
    tally: Tally,
    end: u64,
    /// The time when the worker started.
    late: u64,
}

/// Reports the result of a worker, and keeps its thread alive until its processor time has been read.
fn stay(ended: Ended, done: mpsc::Sender<Ended>, release: mpsc::Receiver<()>) {
    // The receiver is gone if the run has failed.
    let _ = done.send(ended);
    drop(done);
    let _ = release.recv();
}
