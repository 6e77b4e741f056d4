//! Threads for work that may block: one bounded pool for each kind of work, so that no kind delays another.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// The pools of a server; all workers share them.
#[derive(Debug)]
pub struct Pools {
    /// Looking up and reading files for which the kernel has to wait for a disk.
    pub files: Pool,
    /// Reading small directories, and making the pages of listings.
    pub listings: Pool,
    /// Reading and sorting large directories, one at a time: each takes memory, and further requests for it wait for the
    /// same result.
    pub large_listings: Pool,
    /// Comparing passwords.
    pub passwords: Pool,
    /// Starting scripts and fork servers.
    pub starts: Pool,
    /// Writing request bodies to temporary files, and reading them.
    pub bodies: Pool,
    /// Writing and removing stored responses, one after the other.
    pub responses: Pool,
    /// Compressing files.
    pub compression: Pool,
}

/// Threads that run one kind of work in the order of submission. They start on demand and end when idle.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// Why work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The queue is full.
    Full,
    /// No thread can be started.
    NoThread,
    /// The work panicked.
    Panicked,
}

/// The bounds of a [`Pool`].
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The name of the threads.
    pub name: &'static str,
    /// Jobs that run at once.
    pub threads: Threads,
    /// Jobs that wait, for each thread.
    pub queue: usize,
    /// The sum of the weights of jobs that run at once. A heavier job runs alone.
    pub weight: u64,
    /// Added to the nice value of the threads.
    pub nice: i32,
}

/// A number of threads.
#[derive(Debug, Clone, Copy)]
pub enum Threads {
    /// This number. With 0, the caller runs each job itself.
    Exactly(usize),
    /// The first number for each processor, and at least the second.
    PerCore(usize, usize),
}

impl Threads {
    fn count(self) -> usize {
        // Reads several files, so it is not done before it is needed.
        static CORES: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
        match self {
            Self::Exactly(count) => count,
            Self::PerCore(each, least) => (each * *CORES).max(least),
        }
    }
}

#[derive(Debug)]
struct Inner {
    bounds: Bounds,
    state: Mutex<State>,
    /// Signals a new job, or that the weight of one was released.
    changed: Condvar,
    /// Signals that a job with a weight has ended.
    finished: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// The sum of the weights of running jobs.
    weight: u64,
    /// The sum of the weights of waiting jobs.
    waiting: u64,
}

struct Job {
    weight: u64,
    run: Box<dyn FnOnce() + Send>,
}

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// Memory that all compressions together may use. The weight of such a job is an estimate of its memory.
const COMPRESSION_MEMORY: u64 = 40 << 20;

impl Default for Pools {
    fn default() -> Self {
        let bounds =
            |name, threads| Bounds { name, threads, queue: usize::MAX, weight: u64::MAX, nice: 0 };
        Self {
            files: Pool::new(bounds("files", Threads::Exactly(16))),
            // Listings give way to the workers. On one core, requests for files beside a flood of pages took 1 to 2 ms at the
            // 90th percentile instead of 4.
            listings: Pool::new(Bounds { nice: 5, ..bounds("listings", Threads::PerCore(1, 2)) }),
            large_listings: Pool::new(Bounds {
                nice: 10,
                ..bounds("large listings", Threads::Exactly(1))
            }),
            passwords: Pool::new(bounds("passwords", Threads::PerCore(1, 1))),
            starts: Pool::new(bounds("starts", Threads::PerCore(2, 8))),
            bodies: Pool::new(bounds("bodies", Threads::PerCore(2, 8))),
            responses: Pool::new(bounds("responses", Threads::Exactly(1))),
            compression: Pool::new(Bounds {
                queue: 8,
                weight: COMPRESSION_MEMORY,
                nice: 10,
                ..bounds("compression", Threads::PerCore(1, 1))
            }),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Pools {
    /// Pools without threads: the caller runs each job itself, so that the order of all work is the same in each run.
    pub fn inline() -> Self {
        let pool = || {
            let threads = Threads::Exactly(0);
            Pool::new(Bounds { name: "inline", threads, queue: 0, weight: u64::MAX, nice: 0 })
        };
        Self {
            files: pool(),
            listings: pool(),
            large_listings: pool(),
            passwords: pool(),
            starts: pool(),
            bodies: pool(),
            responses: pool(),
            compression: pool(),
        }
    }
}

impl Pool {
    /// Creates a pool without threads: they start with the first jobs.
    pub fn new(bounds: Bounds) -> Self {
        let (changed, finished) = (Condvar::new(), Condvar::new());
        let inner = Inner { bounds, state: Mutex::default(), changed, finished };
        Self { inner: Arc::new(inner) }
    }

    /// Runs `work` on a thread of the pool and returns its result. The work is done even when this future is dropped.
    ///
    /// # Errors
    /// When the work was not done.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Rejected> {
        let (sender, receiver) = oneshot::channel();
        self.submit(0, move || {
            // The receiver may have been dropped.
            let _ = sender.send(work());
        })?;
        receiver.await.map_err(|_| Rejected::Panicked)
    }

    /// Adds `work` to the queue.
    ///
    /// # Errors
    /// When the queue is full or no thread can be started; then `work` was dropped.
    pub fn submit(
        &self,
        weight: u64,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Rejected> {
        let inner = &self.inner;
        let threads = inner.bounds.threads.count();
        if threads == 0 {
            work();
            return Ok(());
        }
        let mut state = inner.lock();
        if state.queue.len() >= inner.bounds.queue.saturating_mul(threads) {
            return Err(Rejected::Full);
        }
        // An idle thread may have been notified of an earlier job already.
        if state.idle <= state.queue.len() && state.threads < threads {
            match Inner::start_thread(inner) {
                Ok(()) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    tracing::error!(pool = inner.bounds.name, "starting a thread: {error}");
                    return Err(Rejected::NoThread);
                }
                // The threads that run do the work.
                Err(_) => {}
            }
        }
        state.waiting = state.waiting.saturating_add(weight);
        state.queue.push_back(Job { weight, run: Box::new(work) });
        inner.changed.notify_one();
        Ok(())
    }

    /// Returns the weight of all jobs that wait or run.
    pub fn weight(&self) -> u64 {
        self.inner.lock().weight()
    }

    /// Waits until no job with a weight waits or runs, at most for `limit`. Blocks.
    pub fn wait_until_finished(&self, limit: Duration) {
        let (inner, is_busy) = (&self.inner, |state: &mut State| state.weight() > 0);
        // After the limit, the jobs continue.
        let _ = inner.finished.wait_timeout_while(inner.lock(), limit, is_busy);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(this: &Arc<Self>) -> io::Result<()> {
        let inner = Arc::clone(this);
        let thread = std::thread::Builder::new().name(this.bounds.name.into());
        thread.spawn(move || inner.work()).map(drop)
    }

    /// Runs jobs until the thread has been idle for [`IDLE`].
    fn work(&self) {
        if self.bounds.nice != 0 {
            // On Linux this is the nice value of the calling thread. A failure does not prevent the work.
            let _ = rustix::process::setpriority_process(None, self.bounds.nice);
        }
        let mut state = self.lock();
        loop {
            let Some(job) = state.take(self.bounds.weight) else {
                state.idle += 1;
                let (guard, wait) =
                    self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = guard;
                state.idle -= 1;
                if wait.timed_out() && state.queue.is_empty() {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            drop(state);
            // A panic ends the job, not the thread. The job's caller notices the dropped channel.
            let _ = catch_unwind(AssertUnwindSafe(job.run));
            state = self.lock();
            state.weight -= job.weight;
            if job.weight > 0 {
                // A heavier job may start now, on any thread.
                self.changed.notify_all();
                self.finished.notify_all();
            }
        }
    }
}

impl State {
    fn weight(&self) -> u64 {
        self.weight.saturating_add(self.waiting)
    }

    /// Returns the next job, when its weight fits.
    fn take(&mut self, bound: u64) -> Option<Job> {
        let weight = self.queue.front()?.weight;
        if self.weight > 0 && self.weight.saturating_add(weight) > bound {
            return None;
        }
        self.weight = self.weight.saturating_add(weight);
        self.waiting -= weight;
        self.queue.pop_front()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (queue, threads) = (self.queue.len(), self.threads);
        f.debug_struct("State").field("queue", &queue).field("threads", &threads).finish()
    }
}

impl From<Rejected> for io::Error {
    fn from(rejected: Rejected) -> Self {
        Self::other(match rejected {
            Rejected::Full => "too much work of this kind is queued",
            Rejected::NoThread => "no thread can be started",
            Rejected::Panicked => "the work panicked",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    fn pool(threads: usize, queue: usize, weight: u64) -> Pool {
        let threads = Threads::Exactly(threads);
        Pool::new(Bounds { name: "test", threads, queue, weight, nice: 0 })
    }

    /// Work that runs until the sender is dropped, and a receiver of its start.
    fn held_work() -> (mpsc::Sender<()>, mpsc::Receiver<()>, impl FnOnce() + Send + 'static) {
        let (open, wait) = mpsc::channel::<()>();
        let (begun, started) = mpsc::channel();
        let work = move || {
            begun.send(()).expect("the test waits");
            let _ = wait.recv();
        };
        (open, started, work)
    }

    #[test]
    fn no_more_jobs_run_at_once_than_there_are_threads() {
        let pool = pool(2, 100, u64::MAX);
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, ended) = mpsc::channel();
        for _ in 0..50 {
            let (running, peak, done) = (Arc::clone(&running), Arc::clone(&peak), done.clone());
            pool.submit(0, move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                peak.fetch_max(now, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                done.send(()).expect("the test waits");
            })
            .expect("there is room");
        }
        assert_eq!(ended.iter().take(50).count(), 50);
        assert!(peak.load(Ordering::SeqCst) <= 2);
    }

    #[test]
    fn a_full_queue_rejects_work_and_a_free_one_takes_it_again() {
        let pool = pool(1, 1, u64::MAX);
        let (open, started, work) = held_work();
        pool.submit(0, work).expect("there is room");
        started.recv().expect("it starts");
        let (done, ended) = mpsc::channel();
        pool.submit(0, move || done.send(()).expect("the test waits")).expect("one may wait");
        assert_eq!(pool.submit(0, || ()), Err(Rejected::Full));
        drop(open);
        ended.recv().expect("the second job runs");
        let (done, ended) = mpsc::channel();
        pool.submit(0, move || done.send(()).expect("the test waits"))
            .expect("there is room again");
        ended.recv().expect("the third job runs");
    }

    #[test]
    fn jobs_that_are_too_heavy_together_run_one_after_the_other() {
        let pool = pool(2, 10, 10);
        let (open, started, work) = held_work();
        pool.submit(8, work).expect("there is room");
        started.recv().expect("it starts");
        let (second_open, second_started, second) = held_work();
        pool.submit(8, second).expect("there is room");
        assert_eq!(pool.weight(), 16);
        assert!(second_started.recv_timeout(Duration::from_millis(50)).is_err());
        drop(open);
        second_started.recv().expect("it starts when the first has ended");
        drop(second_open);
        pool.wait_until_finished(Duration::from_secs(60));
        assert_eq!(pool.weight(), 0);
    }

    #[test]
    fn a_panic_ends_the_job_and_not_the_pool() {
        let pool = pool(1, 10, u64::MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let panicked: Result<(), _> = pool.run(|| panic!("on purpose")).await;
            assert_eq!(panicked, Err(Rejected::Panicked));
            assert_eq!(pool.run(|| 7).await, Ok(7));
        });
    }
}
