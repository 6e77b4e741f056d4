//! Running scenarios: servers started side by side, rounds interleaved in a random order, each run a generator of
//! its own on another processor.

use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::adapter::{ALL, Adapter, Site};
use super::resolver::SlowResolver;
use super::results::{Cell, Results, Round, Row, ScenarioResults, ServerColumn};
use super::scenario::{Content, RowPlan, Scenario, Script, Variant};
use super::server::{Server, exchange, free_port, spawn_on};
use super::{fixture, machine, report};
use crate::outcome::{Latency, Outcome};
use crate::rng::SplitMix64;
use crate::time::rfc3339;

/// What a comparison is told.
pub struct Options {
    /// What is run.
    pub scenarios: Vec<Scenario>,
    /// The servers, by name, in the order of the columns.
    pub servers: Vec<String>,
    /// Rounds of each row.
    pub rounds: u32,
    /// Seconds of each run.
    pub seconds: f64,
    /// Where everything is written.
    pub out: PathBuf,
    /// Start of every random choice.
    pub seed: u64,
    /// The processor of the servers.
    pub server_processor: u32,
    /// The processor of the load.
    pub load_processor: u32,
    /// Only what is marked for it.
    pub quick: bool,
    /// The command, as it was given.
    pub command: Vec<String>,
    /// Ends the comparison when it is set; what was measured is kept.
    pub stop: Arc<AtomicBool>,
}

/// How long the resolver of the DNS scenario takes.
const RESOLVER_DELAY: Duration = Duration::from_millis(30);
/// With `--quick`: seconds of one level of a search, which hold a window of each user, and its highest level.
const QUICK_TRIAL: f64 = 3.5;
const QUICK_USERS: &str = "2000";
/// A generator that takes this much longer than its run is given up.
const GRACE: Duration = Duration::from_secs(30);

/// The adapter of that name.
///
/// # Errors
/// The name, with the nearest that there is.
pub fn adapter(name: &str) -> Result<&'static Adapter, String> {
    ALL.iter().copied().find(|adapter| adapter.name == name).ok_or_else(|| {
        let nearest =
            ALL.iter().map(|adapter| (strsim::jaro_winkler(adapter.name, name), adapter.name));
        let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |(_, name)| name);
        format!("there is no adapter for {name}; the nearest is {nearest}")
    })
}

/// Runs everything and writes the reports; they are written anew after each scenario.
///
/// # Errors
/// What kept the comparison as a whole from being made.
pub fn run(options: &Options) -> Result<Results, String> {
    let told = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(options.out.join("configurations"))
        .map_err(|error| told(&options.out, error))?;
    let scratch = Scratch::new().map_err(|error| told(Path::new("the temporary folder"), error))?;
    let mut servers = Vec::new();
    for name in &options.servers {
        let adapter = adapter(name)?;
        let program = adapter.find();
        servers.push(ServerColumn {
            name: name.clone(),
            version: program.as_ref().map(|program| adapter.version(program)),
            missing: program.is_none().then(|| "it is not installed".to_owned()),
            configurations: BTreeMap::new(),
        });
    }
    let mut results = Results {
        format: 1,
        generator: concat!("dunlin ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: options.command.clone(),
        seed: options.seed,
        started: rfc3339(SystemTime::now()),
        finished: String::new(),
        interrupted: false,
        rounds: options.rounds,
        machine: machine::describe(options.server_processor, options.load_processor),
        servers,
        scenarios: Vec::new(),
    };
    for scenario in &options.scenarios {
        let mut run = ScenarioRun::new(options, scenario, &scratch.0)?;
        // Whatever ends the comparison, the rounds that were run are kept.
        let keep = |rows: &[Row]| {
            let mut so_far = results.clone();
            so_far.scenarios.push(told_of(scenario, rows.to_vec()));
            so_far.finished = rfc3339(SystemTime::now());
            so_far.interrupted = true;
            if let Err(error) = report::write(&so_far, &options.out) {
                eprintln!("  {}", told(&options.out, error));
            }
        };
        let (rows, configurations) = run.run(keep);
        for (server, file, text) in configurations {
            let path = options.out.join("configurations").join(&file);
            fs::write(&path, text).map_err(|error| told(&path, error))?;
            if let Some(column) = results.servers.iter_mut().find(|column| column.name == server) {
                column.configurations.insert(file.clone(), format!("configurations/{file}"));
            }
        }
        results.scenarios.push(told_of(scenario, rows));
        results.finished = rfc3339(SystemTime::now());
        results.interrupted = options.stop.load(Ordering::Relaxed);
        report::write(&results, &options.out).map_err(|error| told(&options.out, error))?;
        if results.interrupted {
            break;
        }
    }
    Ok(results)
}

/// What a report says of a scenario.
fn told_of(scenario: &Scenario, rows: Vec<Row>) -> ScenarioResults {
    ScenarioResults {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        summary: scenario.summary.clone(),
        document: scenario.document.clone(),
        notes: scenario.notes.clone(),
        metrics: scenario.metrics.clone(),
        charts: scenario.charts.clone(),
        rows,
    }
}

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let name = format!("dunlin-compare-{}", std::process::id());
        // Servers that drop their privileges must be able to read it.
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed from the folder for temporary files is removed by the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Server, file and text.
type Configuration = (String, String, String);
/// What happened, and what the server said last.
type Failure = (String, String);

struct ScenarioRun<'a> {
    options: &'a Options,
    scenario: &'a Scenario,
    rows: Vec<&'a RowPlan>,
    folder: PathBuf,
    root: PathBuf,
    certificate: Option<(PathBuf, PathBuf)>,
    resolver: Option<SlowResolver>,
    running: BTreeMap<(usize, Variant, String), Result<Running, Failure>>,
    configurations: Vec<Configuration>,
}

struct Running {
    server: Server,
    port: u16,
}

impl<'a> ScenarioRun<'a> {
    fn new(options: &'a Options, scenario: &'a Scenario, scratch: &Path) -> Result<Self, String> {
        let folder = scratch.join(&scenario.name);
        let root = folder.join("site");
        fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        eprintln!("{}: {}", scenario.name, scenario.title);
        fixture::make(&root, &scenario.files, options.seed)?;
        let marked = scenario.rows.iter().any(|row| row.quick);
        let rows = scenario.rows.iter().enumerate();
        let rows = rows
            .filter(|(index, row)| !options.quick || if marked { row.quick } else { *index < 3 });
        let rows: Vec<&RowPlan> = rows.map(|(_, row)| row).collect();
        let needs = |what: fn(&Variant) -> bool| rows.iter().any(|row| what(&row.server));
        let certificate =
            if needs(|variant| variant.tls) { certificate(&folder).ok() } else { None };
        let resolver = if needs(|variant| variant.dns) {
            Some(
                SlowResolver::start(RESOLVER_DELAY)
                    .map_err(|error| format!("the resolver: {error}"))?,
            )
        } else {
            None
        };
        Ok(Self {
            options,
            scenario,
            rows,
            folder,
            root,
            certificate,
            resolver,
            running: BTreeMap::new(),
            configurations: Vec::new(),
        })
    }

    /// Runs all rounds; `keep` is given what is there after each.
    fn run(&mut self, keep: impl Fn(&[Row])) -> (Vec<Row>, Vec<Configuration>) {
        let mut rows: Vec<Row> = self.rows.iter().map(|plan| empty_row(plan)).collect();
        let mut jobs = Vec::new();
        for row in 0..self.rows.len() {
            for server in 0..self.options.servers.len() {
                match self.refusal(row, server) {
                    Some(cell) => {
                        rows[row].cells.insert(self.options.servers[server].clone(), cell);
                    }
                    None => jobs.push((row, server)),
                }
            }
        }
        let mut rng = SplitMix64::new(self.options.seed);
        let most = self
            .rows
            .iter()
            .filter_map(|row| row.rounds)
            .max()
            .unwrap_or(0)
            .max(self.options.rounds);
        let mut work: Vec<(u32, usize, usize)> = Vec::new();
        for round in 0..most {
            let mut order: Vec<(usize, usize)> =
                jobs.iter().copied().filter(|(row, _)| round < self.rounds_of(*row)).collect();
            shuffle(&mut order, &mut rng);
            work.extend(order.into_iter().map(|(row, server)| (round, row, server)));
        }
        let began = Instant::now();
        let mut last = 0;
        for (order, (round, row, server)) in work.iter().copied().enumerate() {
            if round != std::mem::replace(&mut last, round) {
                keep(&rows);
            }
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            let name = &self.options.servers[server];
            if matches!(
                rows[row].cells.get(name),
                Some(Cell::Failed { .. } | Cell::NotAvailable { .. })
            ) {
                continue;
            }
            self.say(order, work.len(), began, &rows[row].title, name);
            let cell = rows[row]
                .cells
                .entry(name.clone())
                .or_insert_with(|| Cell::Measured { rounds: Vec::new(), facts: BTreeMap::new() });
            match self.one(row, server, round, order as u32) {
                Ok((Some(run), _)) => {
                    if let Cell::Measured { rounds, .. } = cell {
                        rounds.push(run);
                    }
                }
                Ok((None, told)) => *cell = Cell::Measured { rounds: Vec::new(), facts: told },
                // What was cut short by the stop says nothing of the server.
                Err(_) if self.options.stop.load(Ordering::Relaxed) => break,
                Err((reason, log_tail)) => *cell = Cell::Failed { reason, log_tail },
            }
        }
        let back = if std::io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
        eprintln!("{back}{}: done in {:.0} s", self.scenario.name, began.elapsed().as_secs_f64());
        self.running.clear();
        (rows, std::mem::take(&mut self.configurations))
    }

    fn rounds_of(&self, row: usize) -> u32 {
        if self.rows[row].facts {
            return 1;
        }
        let rounds = self.rows[row].rounds.unwrap_or(self.options.rounds);
        rounds.min(self.options.rounds)
    }

    /// Shows the progress: in place on a terminal, a line for each run elsewhere.
    fn say(&self, done: usize, all: usize, began: Instant, row: &str, server: &str) {
        let gone = began.elapsed().as_secs_f64();
        let rest = if done == 0 {
            String::new()
        } else {
            format!(", {:.0} s left", gone / done as f64 * (all - done) as f64)
        };
        let line = format!("  {} of {all}: {row}, {server}{rest}", done + 1);
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[2K{line}");
        } else {
            eprintln!("{line}");
        }
    }

    /// Why a cell cannot be measured, before anything is started.
    fn refusal(&self, row: usize, server: usize) -> Option<Cell> {
        let adapter = adapter(&self.options.servers[server]).ok()?;
        let variant = &self.rows[row].server;
        let no = |reason: &str| Some(Cell::NotAvailable { reason: reason.to_owned() });
        if adapter.find().is_none() {
            return no("it is not installed");
        }
        if let Some(reason) = (adapter.lacks)(variant) {
            return no(reason);
        }
        if variant.tls && self.certificate.is_none() {
            return no("no certificate could be made: openssl is not installed");
        }
        let plan = self.rows[row];
        let needed = match variant.script {
            Some(Script::Fastcgi) => Some(Content::FastcgiProgram),
            Some(Script::Cgiplus) => Some(Content::CgiplusProgram),
            Some(_) => Some(Content::CgiProgram),
            None => None,
        };
        let mut programs = self.scenario.files.iter().filter(|file| Some(file.content) == needed);
        if programs.any(|file| !self.root.join(&file.path).is_file()) {
            return no("its program could not be compiled");
        }
        if adapter.name == "floor" && (plan.paths.len() != 1 || plan.facts || plan.many.is_some()) {
            return no("it has one answer only");
        }
        None
    }

    /// One run: its figures, or what was found by probing.
    fn one(
        &mut self,
        row: usize,
        server: usize,
        round: u32,
        order: u32,
    ) -> Result<(Option<Round>, BTreeMap<String, String>), Failure> {
        let plan = self.rows[row];
        // The floor has one answer, so that it needs a process for each file.
        let only = if self.options.servers[server] == "floor" {
            plan.paths.join(" ")
        } else {
            String::new()
        };
        let key = (server, plan.server.clone(), only);
        if !self.running.contains_key(&key) {
            let started = self.start(server, plan, &key.1);
            self.running.insert(key.clone(), started);
        }
        let running = match self.running.get_mut(&key) {
            Some(Ok(running)) => running,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(("it was not started".to_owned(), String::new())),
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, running.port));
        if plan.facts {
            let name = &self.options.servers[server];
            return Ok((None, facts(name, address, &running.server)));
        }
        let command = self.load_command(plan, address)?;
        let (outcome, error) =
            run_load(&command, self.options.load_processor, self.limit(plan), &self.options.stop);
        let Some(Ok(running)) = self.running.get_mut(&key) else {
            return Err(("it was not started".to_owned(), String::new()));
        };
        if !running.server.is_alive() {
            let told = running.server.log_tail();
            // The other rows get one that lives.
            self.running.remove(&key);
            return Err(("it died while it was being measured".to_owned(), told));
        }
        let outcome = outcome
            .ok_or_else(|| (format!("the generator failed: {error}"), running.server.log_tail()))?;
        let values = values(&outcome, running.server.memory());
        let mut reasons = outcome.reasons.clone();
        reasons.extend(
            outcome.findings.iter().map(|finding| format!("{}: {}", finding.kind, finding.text)),
        );
        let histogram = outcome.latency_ms.as_ref().map(|latency| latency.histogram.clone());
        Ok((
            Some(Round {
                round,
                order,
                command,
                verdict: outcome.verdict,
                reasons,
                values,
                histogram,
            }),
            BTreeMap::new(),
        ))
    }

    fn start(
        &mut self,
        server: usize,
        plan: &RowPlan,
        variant: &Variant,
    ) -> Result<Running, Failure> {
        let adapter =
            adapter(&self.options.servers[server]).map_err(|error| (error, String::new()))?;
        let io = |error: std::io::Error| (error.to_string(), String::new());
        let name = format!("{}-{}", adapter.name, variant.name());
        let folder = self.folder.join(&name);
        fs::create_dir_all(&folder).map_err(io)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).map_err(io)?;
        let port = free_port().map_err(io)?;
        let probe = plan.paths.first().filter(|_| !plan.generated).cloned();
        if adapter.name == "floor"
            && let Some(path) = &probe
        {
            fs::copy(self.root.join(path.trim_start_matches('/')), self.root.join(".floor"))
                .map_err(io)?;
        }
        let site = Site {
            program: adapter.find().unwrap_or_default(),
            root: &self.root,
            folder: &folder,
            port,
            variant,
            certificate: self
                .certificate
                .as_ref()
                .filter(|_| variant.tls)
                .map(|(a, b)| (a.as_path(), b.as_path())),
            resolver: self
                .resolver
                .as_ref()
                .filter(|_| variant.dns)
                .map(|resolver| resolver.address),
        };
        let launch = (adapter.launch)(&site).map_err(io)?;
        let file = format!("{}-{}.conf", self.scenario.name, name);
        self.configurations.push((adapter.name.to_owned(), file, launch.configuration.clone()));
        let body =
            probe.as_ref().and_then(|path| fs::read(self.root.join(self.file_of(path))).ok());
        let probe = probe.as_deref().zip(body.as_deref()).filter(|_| !variant.tls);
        let server = Server::start(&launch, &folder, self.options.server_processor, port, probe)?;
        Ok(Running { server, port })
    }

    /// The file that a path has to be answered with.
    fn file_of(&self, path: &str) -> PathBuf {
        let file = PathBuf::from(path.trim_start_matches('/'));
        if file.extension().is_some_and(|extension| extension == "var") {
            file.with_extension("txt")
        } else {
            file
        }
    }

    fn load_command(&self, plan: &RowPlan, address: SocketAddr) -> Result<Vec<String>, Failure> {
        let program =
            std::env::current_exe().map_err(|error| (error.to_string(), String::new()))?;
        let scheme = if plan.server.tls { "https" } else { "http" };
        let mut command = vec![program.display().to_string(), "load".to_owned()];
        let many = plan.many.iter().flat_map(|many| {
            (0..many.count).map(|number| many.path.replace("{n}", &number.to_string()))
        });
        let paths: Vec<String> = plan.paths.iter().cloned().chain(many).collect();
        if paths.len() > 20 {
            let file = self.folder.join(format!("{}.urls", plan.id));
            fs::write(&file, paths.join("\n"))
                .map_err(|error| (error.to_string(), String::new()))?;
            command.extend([
                format!("{scheme}://{address}/"),
                "--urls-file".to_owned(),
                file.display().to_string(),
            ]);
        } else {
            command.extend(paths.iter().map(|path| format!("{scheme}://{address}{path}")));
        }
        command.extend(plan.load.iter().cloned());
        let counts = plan.load.iter().any(|word| word == "-n" || word == "--requests");
        let seconds = plan.seconds.unwrap_or(self.options.seconds);
        let searches = plan.load.iter().any(|word| word.starts_with("--find"));
        let longest = if searches { QUICK_TRIAL } else { self.options.seconds.max(1.0) };
        let seconds = if self.options.quick { seconds.min(longest) } else { seconds };
        if searches && self.options.quick {
            command.extend(["--most", QUICK_USERS].map(str::to_owned));
        }
        if !counts {
            command.extend(["-d".to_owned(), format!("{seconds}s")]);
            if !searches {
                command.extend(["--warmup".to_owned(), format!("{}s", (seconds / 4.0).min(0.5))]);
            }
        }
        if plan.generated || plan.server.records {
            command.push("--verify".to_owned());
        } else {
            command.push(format!("--verify={}", self.root.display()));
        }
        if plan.server.tls {
            command.push("--insecure".to_owned());
        }
        if plan.server.http2 {
            command.push("--http2".to_owned());
        }
        command.extend(["--seed".to_owned(), self.options.seed.to_string()]);
        command.extend(["--quiet", "--json", "-"].map(str::to_owned));
        Ok(command)
    }

    fn limit(&self, plan: &RowPlan) -> Duration {
        let seconds = plan.seconds.unwrap_or(self.options.seconds);
        let trials =
            if plan.load.iter().any(|word| word.starts_with("--find")) { 40.0 } else { 1.0 };
        GRACE + Duration::try_from_secs_f64(seconds * 2.0 * trials).unwrap_or(GRACE)
    }
}

fn empty_row(plan: &RowPlan) -> Row {
    Row {
        id: plan.id.clone(),
        title: plan.title.clone(),
        group: plan.group.clone(),
        x: plan.x,
        then: plan.then.clone(),
        notes: plan.notes.clone(),
        cells: BTreeMap::new(),
    }
}

fn shuffle<T>(items: &mut [T], rng: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last + 1));
    }
}

/// Runs the generator: its outcome, or what it said instead.
fn run_load(
    command: &[String],
    processor: u32,
    limit: Duration,
    stop: &AtomicBool,
) -> (Option<Outcome>, String) {
    let mut load = Command::new(&command[0]);
    load.args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = match spawn_on(processor, &mut load) {
        Ok(child) => child,
        Err(error) => return (None, error.to_string()),
    };
    // Read beside the waiting, so that a full pipe does not hold the generator up.
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                // What cannot be read leaves the text short, and that is told as no outcome.
                let _ = pipe.read_to_string(&mut text);
            }
            text
        })
    };
    let out = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let end = Instant::now() + limit;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end || stop.load(Ordering::Relaxed) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    (serde_json::from_str(&out).ok(), err.trim().to_owned())
}

fn values(o: &Outcome, memory: u64) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::from([
        ("requests_per_second", o.requests_per_second),
        ("bytes_per_second", o.bytes_per_second),
        ("memory_bytes", memory as f64),
        ("errors", o.errors as f64),
        ("depth", o.connections.depth_mean),
        ("requests_per_connection", o.connections.requests_each),
    ]);
    if o.requests_per_second > 0.0 {
        values.insert("seconds_for_200", 200.0 / o.requests_per_second);
    }
    if let Some(latency) = &o.latency_ms {
        values.extend([
            ("mean_ms", latency.mean),
            ("p50_ms", latency.p50),
            ("p99_ms", latency.p99),
            ("max_ms", latency.max),
        ]);
    }
    if let Some(server) = &o.server
        && let Some(cpu) = server.cpu_us_per_request
    {
        values.insert("cpu_us_per_request", cpu);
        if server.cpu_seconds > 0.0 {
            values.insert("requests_per_cpu_second", o.requests as f64 / server.cpu_seconds);
        }
    }
    let part = |latency: &Option<Latency>| latency.as_ref().map(|latency| latency.mean);
    if let Some(connect) = part(&o.connect_ms) {
        values.insert("connect_ms", connect);
    }
    if let Some(lifetime) = part(&o.connection_ms) {
        values.insert("connection_ms", lifetime);
    }
    if let Some(first) = part(&o.first_byte_ms) {
        values.insert("first_byte_ms", first);
        if let Some(service) = part(&o.service_ms) {
            values.insert("transfer_ms", (service - first).max(0.0));
        }
    }
    if let Some(search) = &o.search {
        values.insert("found", search.found);
    }
    values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A certificate of its own for 127.0.0.1.
fn certificate(folder: &Path) -> std::io::Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let done = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()?;
    if !done.status.success() {
        return Err(std::io::Error::other("openssl failed"));
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644))?;
    Ok((certificate, key))
}

/// What a server can do, found out by asking it.
fn facts(name: &str, address: SocketAddr, server: &Server) -> BTreeMap<String, String> {
    let ask = |request: &str| {
        let answer = exchange(address, &request.replace('\n', "\r\n")).unwrap_or_default();
        String::from_utf8_lossy(&answer[..answer.len().min(4000)]).to_ascii_lowercase()
    };
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let get = |fields: &str| {
        ask(&format!("GET /1k.bin HTTP/1.1\nHost: 127.0.0.1\n{fields}Connection: close\n\n"))
    };
    let plain = get("");
    let date = last_modified(address);
    let two = "GET /1k.bin HTTP/1.1\nHost: 127.0.0.1\n\n";
    let piped = ask(&format!("{two}GET /1k.bin HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n"));
    let program = adapter(name).ok().and_then(Adapter::find);
    let size =
        program.and_then(|program| fs::metadata(program).ok()).map_or(0, |metadata| metadata.len());
    let threads: usize = server
        .processes()
        .iter()
        .map(|pid| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count))
        .sum();
    let processes = server.processes().len();
    [
        ("model", format!("{processes} processes, {threads} threads")),
        ("persistent connections", yes(!says_close(&ask(two)))),
        ("pipelining", yes(piped.matches("http/1.1 200").count() == 2)),
        (
            "conditional GET",
            yes(get(&format!("If-Modified-Since: {date}\n")).starts_with("http/1.1 304")),
        ),
        ("entity tags", yes(plain.contains("\netag:"))),
        ("ranges", yes(get("Range: bytes=0-9\n").starts_with("http/1.1 206"))),
        ("several ranges", yes(get("Range: bytes=0-9,20-29\n").contains("multipart/byteranges"))),
        ("executable bytes", size.to_string()),
        ("memory at start", server.memory_at_start.to_string()),
        ("source bytes, files, lines", "not known here".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The date as it was sent: some servers do not know it in small letters.
fn last_modified(address: SocketAddr) -> String {
    let request = "GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let answer = exchange(address, request).unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let line = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("last-modified:"));
    line.and_then(|line| line.split_once(':'))
        .map_or(String::new(), |(_, date)| date.trim().to_owned())
}

/// Whether the answer says that the connection ends.
fn says_close(answer: &str) -> bool {
    answer.contains("connection: close") || answer.starts_with("http/1.0")
}
