//! Workers: processes that stay, for every kind whose scripts do. One pool for each route's
//! scripts, over all loops; a thread of its own starts the processes, listens to them and ends
//! them, so that a request takes a worker and gives it back under one short lock.

mod code;
mod failing;
mod lease;
mod life;
mod renew;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use hashbrown::{Equivalent, HashMap};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use self::code::Code;
pub(super) use self::lease::{Kept, Lease};
pub(crate) use self::renew::Renewal;
use super::Failure;
use super::stderr::Recent;
use crate::config::{Local, Script};
use crate::handler::status::Scripts;
use crate::temp_files;
use crate::worker::{SharedState, WorkerContext};

/// The pools of all routes.
#[derive(Debug, Default)]
pub(crate) struct All {
    /// By the route and, where each program has a pool of its own, the program.
    pools: RwLock<HashMap<(usize, PathBuf), Arc<Pool>>>,
    supervisor: Mutex<Option<Supervisor>>,
    /// How many pools were made so far, at most.
    made: AtomicUsize,
}

/// The place of a pool among all.
#[derive(Debug, Hash)]
struct Key<'a>(usize, &'a Path);

impl Equivalent<(usize, PathBuf)> for Key<'_> {
    fn equivalent(&self, (id, program): &(usize, PathBuf)) -> bool {
        self.0 == *id && self.1 == program
    }
}

/// The thread that sees to the processes.
#[derive(Debug)]
struct Supervisor {
    handle: Handle,
    /// Where the workers' sockets are, which nobody else can reach.
    directory: tempfile::TempDir,
    /// The thread ends when this is dropped.
    _run: oneshot::Sender<()>,
}

/// The workers of one route's scripts.
#[derive(Debug)]
pub(super) struct Pool {
    /// Tells its workers' sockets from those of other pools.
    number: usize,
    rules: Arc<Script>,
    local: Local,
    capacity: Capacity,
    label: String,
    /// The one program that the workers run, where the route has several.
    program: Box<Path>,
    state: Mutex<State>,
    supervisor: Handle,
    directory: Box<Path>,
    /// The pause after failed starts has ended before its time.
    resumed: Notify,
    /// Held while workers are replaced.
    renewing: tokio::sync::Mutex<()>,
}

/// Requests that one worker is given at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    /// As many as it works on at once.
    pub(super) least: usize,
    /// With those that it is given ahead, while it answers within [`QUICK`] on the mean, so that
    /// waiting behind another costs less than being woken for each.
    pub(super) most: usize,
}

impl Capacity {
    /// One request at a time.
    pub(super) const ONE: Self = Self { least: 1, most: 1 };
}

#[derive(Debug)]
struct State {
    /// How long a worker takes for a request on the mean, lately.
    mean: Duration,
    slots: Vec<Slot>,
    waiting: VecDeque<Waiter>,
    /// Workers that are being started.
    starting: usize,
    /// Workers in a row that died before they had answered, and when the next may be started.
    failures: u32,
    not_before: Instant,
    /// Why no worker can be started. A request after `not_before` has it tried again.
    down: Option<Arc<str>>,
    /// A worker has been ready since the last one that could not be started.
    is_proven: bool,
    stopping: bool,
    /// The log has told that requests are refused, and there was no room since.
    told: bool,
    next_number: u64,
    next_holder: u64,
}

/// What the pool knows of a worker.
#[derive(Debug)]
struct Slot {
    worker: Arc<Worker>,
    fitness: Fitness,
    holders: Vec<Holder>,
    /// Requests that it was given so far.
    requests: u64,
    /// Requests that it is done with.
    served: u64,
    idle_since: Instant,
    /// A connection to it that is open.
    kept: Option<Kept>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fitness {
    /// It gets requests once it is ready.
    Starting,
    Fit,
    /// It is to be replaced once its requests are done.
    Due,
    /// It is being ended, or nobody knows whether it still works on a request that was given up.
    Unfit,
}

/// A request that has a worker.
#[derive(Debug)]
struct Holder {
    id: u64,
    script: Arc<str>,
    since: Instant,
}

/// A request that waits for a worker.
#[derive(Debug)]
struct Waiter {
    script: Arc<str>,
    since: Instant,
    home: ThreadId,
    give: oneshot::Sender<Result<Lease, String>>,
}

/// A process of a pool.
#[derive(Debug)]
pub(super) struct Worker {
    number: u64,
    /// Its process.
    pub(super) pid: i32,
    /// Where it listens, or reads the variables of its requests from.
    pub(super) socket: Box<Path>,
    started: Instant,
    orders: mpsc::UnboundedSender<Order>,
    /// What it has written to its standard error lately, where that is to be shown.
    pub(super) errors: Option<Arc<Recent>>,
    code: Code,
    /// Whether its application is loaded, of workers that report it.
    ready: watch::Sender<bool>,
    /// The files that its application has loaded, as it has reported them.
    loaded: Mutex<Vec<PathBuf>>,
}

impl Worker {
    /// Takes the report of a host: its application is loaded, from these files.
    pub(super) fn note_loaded(&self, files: Vec<PathBuf>) {
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = files;
        self.ready.send_replace(true);
    }

    /// Whether its application is known to be loaded.
    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    fn loaded(&self) -> Vec<PathBuf> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the thread is to do with a worker.
#[derive(Debug)]
enum Order {
    End,
    /// End it unless it ends soon by itself.
    Lost,
    /// Find out when it is done with a request that was given up.
    Probe {
        holder: u64,
    },
}

/// Who has a worker, and who waits for one.
#[derive(Debug)]
pub(super) struct View {
    /// The processes, the scripts that they work on, and since when.
    pub(super) holding: Vec<(i32, Arc<str>, Instant)>,
    /// The scripts that wait, and since when.
    pub(super) waiting: Vec<(Arc<str>, Instant)>,
}

/// See [`Capacity`].
const QUICK: Duration = Duration::from_millis(1);
const STALLED: Duration = Duration::from_millis(5);
/// How long a pool that is let go of has to be without requests before its workers end.
const RETIRING: Duration = Duration::from_secs(1);
/// How long the workers may take to end when the server does.
const STOP: Duration = Duration::from_millis(2500);

impl All {
    /// The pool of `rules`; `capacity` says how many requests each of its workers is
    /// given at once.
    pub(super) fn of(
        &self,
        shared: &Arc<SharedState>,
        rules: &Arc<Script>,
        local: &Local,
        capacity: Capacity,
    ) -> Result<Arc<Pool>, Failure> {
        self.of_program(shared, rules, local, capacity, Path::new(""))
    }

    /// The same for one of the programs of `rules`.
    pub(super) fn of_program(
        &self,
        shared: &Arc<SharedState>,
        rules: &Arc<Script>,
        local: &Local,
        capacity: Capacity,
        program: &Path,
    ) -> Result<Arc<Pool>, Failure> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&Key(rules.id, program)) {
            return Ok(Arc::clone(pool));
        }
        drop(pools);
        let (handle, directory) = self
            .supervisor()
            .map_err(|error| Failure::Broken(format!("workers cannot be started: {error}")))?;
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let pool = pools.entry((rules.id, program.to_owned())).or_insert_with(|| {
            let pool = Pool::new(rules, local, capacity, program, handle, directory);
            let pool = Arc::new(Pool { number, ..pool });
            pool.supervisor.spawn(life::tend(Arc::clone(&pool), Arc::clone(shared)));
            pool
        });
        Ok(Arc::clone(pool))
    }

    fn supervisor(&self) -> std::io::Result<(Handle, Box<Path>)> {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(supervisor) = &*supervisor {
            return Ok((supervisor.handle.clone(), supervisor.directory.path().into()));
        }
        let directory = temp_files::directory("dunlin-")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (run, stopped) = oneshot::channel::<()>();
        let body = move || {
            // An error says that the sender is gone, which is what is waited for.
            let _ = runtime.block_on(stopped);
        };
        std::thread::Builder::new().name("workers".into()).spawn(body)?;
        let path = directory.path().into();
        *supervisor = Some(Supervisor { handle: handle.clone(), directory, _run: run });
        Ok((handle, path))
    }

    /// What each pool is doing.
    pub(super) fn report(&self, all: &mut Vec<Scripts>) {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        all.extend(pools.values().map(|pool| pool.report()));
    }

    /// Lets go of the pools of scripts that there are no longer. Requests that have a worker of theirs,
    /// or wait for one, are finished.
    pub(in super::super) fn retain(&self, has: &impl Fn(usize) -> bool) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        for (_, pool) in pools.extract_if(|(id, _), _| !has(*id)) {
            pool.retire();
        }
    }

    /// Ends all workers, and waits until they have ended, for a while.
    pub(crate) fn stop(&self) {
        let pools: Vec<Arc<Pool>> = {
            let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
            pools.values().map(Arc::clone).collect()
        };
        for pool in &pools {
            pool.stop();
        }
        let began = Instant::now();
        while began.elapsed() < STOP && pools.iter().any(|pool| pool.has_processes()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Pool {
    fn new(
        rules: &Arc<Script>,
        local: &Local,
        capacity: Capacity,
        program: &Path,
        supervisor: Handle,
        directory: Box<Path>,
    ) -> Self {
        let state = State {
            // Unknown: at first none is given ahead.
            mean: 10 * QUICK,
            slots: Vec::new(),
            waiting: VecDeque::new(),
            starting: 0,
            failures: 0,
            not_before: Instant::now(),
            down: None,
            is_proven: false,
            stopping: false,
            told: false,
            next_number: 0,
            next_holder: 0,
        };
        Self {
            number: 0,
            rules: Arc::clone(rules),
            local: local.clone(),
            capacity,
            label: match program.as_os_str().is_empty() {
                true => rules.label.to_string(),
                false => program.display().to_string(),
            },
            program: program.into(),
            state: Mutex::new(state),
            supervisor,
            directory,
            resumed: Notify::new(),
            renewing: tokio::sync::Mutex::default(),
        }
    }

    /// A worker, in the order of asking.
    ///
    /// # Errors
    /// [`Failure::Busy`] when too many wait, or when it took too long; [`Failure::Unreachable`] when no
    /// worker can be started.
    pub(super) async fn lease(
        self: &Arc<Self>,
        ctx: &WorkerContext,
        script: &Arc<str>,
    ) -> Result<Lease, Failure> {
        let home = std::thread::current().id();
        let (given, since) = {
            let mut state = self.lock();
            if let Some(lease) = self.take(&mut state, script, home) {
                return Ok(lease);
            }
            if let Some(reason) = state.down() {
                return Err(Failure::Unreachable(reason.to_string()));
            }
            state.waiting.retain(|waiter| !waiter.give.is_closed());
            let (give, given) = oneshot::channel();
            let (script, since) = (Arc::clone(script), Instant::now());
            state.waiting.push_back(Waiter { script, since, home, give });
            self.grow(&mut state, &ctx.shared);
            // Those whose worker is being started do not wait for another request's.
            let coming = match self.is_cautious(&state) {
                true => self.rules.processes.saturating_sub(state.slots.len()),
                false => state.starting,
            };
            let room = self.rules.queue + coming * self.capacity.least;
            if state.waiting.len() > room {
                state.waiting.pop_back();
                self.tell_of_refusal(&mut state);
                return Err(Failure::Busy);
            }
            (given, since)
        };
        match ctx.deadlines.before(since + self.rules.queue_timeout, since, given).await {
            Some(Ok(Ok(lease))) => Ok(lease),
            Some(Ok(Err(reason))) => Err(Failure::Unreachable(reason)),
            Some(Err(_)) => Err(Failure::Broken("the server is stopping".into())),
            None => {
                self.tell_of_refusal(&mut self.lock());
                Err(Failure::Busy)
            }
        }
    }

    fn tell_of_refusal(&self, state: &mut State) {
        if std::mem::replace(&mut state.told, true) {
            return;
        }
        let View { holding, waiting } = state.view();
        let longest = holding.iter().min_by_key(|(_, _, since)| *since);
        tracing::warn!(
            scripts = self.label,
            processes = self.rules.processes,
            waiting = waiting.len(),
            longest = longest.map(|(_, script, _)| &**script),
            longest_pid = longest.map(|(pid, ..)| pid),
            longest_ms = longest.map(|(_, _, since)| since.elapsed().as_millis() as u64),
            "scripts are asked for faster than they run; requests are refused until there is room"
        );
    }

    fn report(&self) -> Scripts {
        let state = self.lock();
        let processes = state.slots.len() as u64;
        let View { holding, waiting } = state.view();
        drop(state);
        let longest = holding.iter().min_by_key(|(_, _, since)| *since);
        Scripts {
            name: self.label.clone(),
            kind: self.rules.kind.as_str().into(),
            most: self.rules.processes as u64,
            processes,
            busy: holding.len() as u64,
            waiting: waiting.len() as u64,
            longest: longest.map_or(0, |(_, _, since)| since.elapsed().as_millis() as u64),
            longest_script: longest.map_or_else(String::new, |(_, script, _)| (**script).into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A state is whole after every statement, so that a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives out the least busy worker; among those the one whose connection is registered here,
    /// then the one that was used last, so that those too many become idle.
    fn take(
        self: &Arc<Self>,
        state: &mut State,
        script: &Arc<str>,
        home: ThreadId,
    ) -> Option<Lease> {
        let limit = self.local.requests.unwrap_or(u64::MAX);
        let Capacity { least, most } = self.capacity;
        let ahead = if state.mean < QUICK { most } else { least };
        let now = Instant::now();
        let fit = state.slots.iter_mut().filter(|slot| {
            let held = slot.holders.len();
            // Nothing is given ahead to one that has been at work for long.
            let flows = || slot.holders.first().is_none_or(|first| now - first.since < STALLED);
            slot.fitness == Fitness::Fit
                && slot.requests < limit
                && (held < least || held < ahead && flows())
        });
        let slot = fit.min_by_key(|slot| {
            let away = slot.kept.as_ref().is_none_or(|kept| kept.home != home);
            (slot.holders.len(), away, std::cmp::Reverse(slot.idle_since))
        })?;
        state.next_holder += 1;
        let id = state.next_holder;
        slot.holders.push(Holder { id, script: Arc::clone(script), since: now });
        slot.requests += 1;
        if slot.requests >= limit {
            slot.fitness = Fitness::Due;
        }
        Some(Lease::new(Arc::clone(self), Arc::clone(&slot.worker), id, slot.kept.take()))
    }

    /// Gives workers that are free to those who wait.
    fn serve_waiting(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(waiter) = state.waiting.pop_front() else {
                state.told = false;
                return;
            };
            if waiter.give.is_closed() {
                continue;
            }
            let Some(lease) = self.take(&mut state, &waiter.script, waiter.home) else {
                state.waiting.push_front(waiter);
                return;
            };
            drop(state);
            // Dropped unused, it goes back, and the next one has it.
            drop(waiter.give.send(Ok(lease)));
        }
    }

    /// Takes a worker back.
    fn give_back(self: &Arc<Self>, worker: &Worker, holder: u64, kept: Option<Kept>) {
        let mut state = self.lock();
        let Some(slot) = state.slot(worker.number) else { return };
        let now = Instant::now();
        let held = slot.holders.iter().position(|other| other.id == holder);
        let took = held.map(|at| {
            let share = u32::try_from(slot.holders.len()).unwrap_or(u32::MAX);
            (now - slot.holders.remove(at).since) / share
        });
        slot.served += 1;
        slot.idle_since = now;
        match slot.fitness {
            Fitness::Fit => slot.kept = kept.or_else(|| slot.kept.take()),
            Fitness::Due if slot.holders.is_empty() => slot.end(),
            _ => {}
        }
        if let Some(took) = took {
            state.mean = state.mean * 7 / 8 + took / 8;
        }
        if !state.waiting.is_empty() {
            drop(state);
            self.serve_waiting();
        }
    }

    /// A worker's request was given up while it worked on it.
    fn suspect(&self, worker: &Worker, holder: u64) {
        if let Some(slot) = self.lock().slot(worker.number) {
            slot.fitness = Fitness::Unfit;
            // An error says that it has ended.
            let _ = slot.worker.orders.send(Order::Probe { holder });
        }
    }

    /// A worker has to end at once.
    fn end(&self, worker: &Worker) {
        if let Some(slot) = self.lock().slot(worker.number) {
            slot.end();
        }
    }

    /// A worker has closed what it is heard by.
    fn lose(&self, worker: &Worker) {
        if let Some(slot) = self.lock().slot(worker.number) {
            slot.fitness = Fitness::Unfit;
            // An error says that it has ended.
            let _ = slot.worker.orders.send(Order::Lost);
        }
    }

    /// Has workers whose program's file has changed replaced, once they are done.
    pub(super) fn refresh(&self) {
        if self.program.as_os_str().is_empty() {
            return;
        }
        for slot in &mut self.lock().slots {
            if slot.fitness == Fitness::Fit && slot.worker.code.has_other_files() {
                match slot.holders.is_empty() {
                    true => slot.end(),
                    false => slot.fitness = Fitness::Due,
                }
            }
        }
    }

    /// Starts as many workers as are waited for, and at least the least.
    fn grow(self: &Arc<Self>, state: &mut State, shared: &Arc<SharedState>) {
        if state.stopping {
            return;
        }
        let mut wanted = state.waiting.len().div_ceil(self.capacity.least);
        let (mut least, mut most) = (self.local.min_processes, self.rules.processes);
        if self.is_cautious(state) {
            // Whether the application can be loaded, one worker finds out for all.
            (wanted, least, most) = (wanted.min(1), least.min(1), 1);
        }
        while state.slots.len() + state.starting < most
            && (state.starting < wanted || state.slots.len() + state.starting < least)
        {
            state.starting += 1;
            self.supervisor.spawn(life::start(Arc::clone(self), Arc::clone(shared)));
        }
    }

    /// Whether one worker has to show that the application can be loaded before others are started.
    fn is_cautious(&self, state: &State) -> bool {
        self.rules.kind.has_host() && !state.is_proven
    }

    /// Ends the workers as soon as nobody waits for them and their requests are done.
    fn retire(self: &Arc<Self>) {
        let pool = Arc::clone(self);
        self.supervisor.spawn(async move {
            // A request may have found the pool just before it was let go of, and come a little later.
            let mut quiet = 0;
            while quiet < 10 {
                tokio::time::sleep(RETIRING / 10).await;
                let is_busy = pool.is_busy();
                quiet = if is_busy { 0 } else { quiet + 1 };
            }
            pool.stop();
        });
    }

    /// Whether requests have a worker, or wait for one.
    fn is_busy(&self) -> bool {
        let mut state = self.lock();
        state.waiting.retain(|waiter| !waiter.give.is_closed());
        !state.waiting.is_empty() || state.slots.iter().any(|slot| !slot.holders.is_empty())
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        state.waiting.clear();
        for slot in &mut state.slots {
            slot.end();
        }
    }

    fn has_processes(&self) -> bool {
        let state = self.lock();
        !state.slots.is_empty() || state.starting > 0
    }
}

impl State {
    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.worker.number == number)
    }

    fn view(&self) -> View {
        let of = |slot: &Slot| {
            let pid = slot.worker.pid;
            let holder = move |holder: &Holder| (pid, Arc::clone(&holder.script), holder.since);
            slot.holders.iter().map(holder).collect::<Vec<_>>()
        };
        View {
            holding: self.slots.iter().flat_map(of).collect(),
            waiting: self
                .waiting
                .iter()
                .map(|waiter| (Arc::clone(&waiter.script), waiter.since))
                .collect(),
        }
    }
}

impl Slot {
    fn end(&mut self) {
        self.fitness = Fitness::Unfit;
        self.kept = None;
        // An error says that it has ended.
        let _ = self.worker.orders.send(Order::End);
    }
}
