//! The settings of scripts, with every default filled in.

use std::path::PathBuf;
use std::time::Duration;

use super::at::At;
use super::file::{ScriptKind, ScriptTable};
use super::pattern::Pattern;
use super::settings::Report;
use super::units::Span;

/// How the scripts of a route are run. One vocabulary for every kind.
#[derive(Debug)]
pub struct Script {
    /// Tells the pools of different routes apart.
    pub id: usize,
    /// How they are run.
    pub kind: ScriptKind,
    /// Directory of the scripts.
    pub directory: PathBuf,
    /// Most processes at once.
    pub processes: usize,
    /// Most requests that wait for a process.
    pub queue: usize,
    /// Longest wait for a process.
    pub queue_timeout: Duration,
    /// Longest run; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Longest wait for the answer's header.
    pub first_byte_timeout: Option<Duration>,
    /// Longest time without reading or writing; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Variables of the environment.
    pub env: Vec<(String, String)>,
    /// Whether Authorization is handed over.
    pub authorization: bool,
    /// Added to the server's priority number.
    pub nice: i32,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Seconds of processor time.
    pub cpu: Option<u64>,
    /// Modules that warm hosts of Python and Perl load.
    pub preload: Vec<String>,
    pattern: Pattern,
}

impl Script {
    /// What of `path` names a script beneath the directory: what the `*` stands for, begun at the
    /// slash before it, without that slash.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let prefix = self.pattern.prefix();
        let mount = memchr::memrchr(b'/', prefix).map_or(1, |slash| slash + 1);
        path.get(mount..).unwrap_or_default()
    }
}

/// Fills in what `table` does not say; what is wrong in it is told to `report`.
pub(super) fn read(table: &At<ScriptTable>, pattern: &Pattern, report: Report<'_>) -> Script {
    if let Some(processes) = &table.processes
        && !(1..=65_536).contains(&processes.value)
    {
        report(&processes.span, "script: processes is not between 1 and 65536".into());
    }
    if let Some(nice) = &table.nice
        && !(-20..=19).contains(&nice.value)
    {
        report(&nice.span, "script: nice is not between -20 and 19".into());
    }
    let mut time = |key: &str, span: &Option<At<Span>>| {
        let span = span.as_ref()?;
        if span.value.0.is_zero() {
            report(&span.span, format!("script: {key} is 0: write how long to wait"));
        }
        Some(span.value.0)
    };
    let queue_timeout = time("queue_timeout", &table.queue_timeout);
    let first_byte_timeout = time("first_byte_timeout", &table.first_byte_timeout);
    let timeout = time("timeout", &table.timeout);
    let cpu = time("cpu", &table.cpu).map(|time| time.as_secs().max(1));
    let idle_timeout = table.idle_timeout.map_or(Duration::from_secs(60), |span| span.0);
    Script {
        id: table.directory.span.as_ref().map_or(0, |span| span.start),
        kind: table.kind,
        directory: table.directory.value.clone(),
        processes: table.processes.as_deref().copied().unwrap_or(32),
        queue: table.queue.unwrap_or(1024),
        queue_timeout: queue_timeout.unwrap_or(Duration::from_secs(30)),
        timeout,
        first_byte_timeout,
        idle_timeout: (!idle_timeout.is_zero()).then_some(idle_timeout),
        env: environment(table, report),
        authorization: table.authorization.unwrap_or(false),
        nice: table.nice.as_deref().copied().unwrap_or(0),
        memory: table.memory.as_deref().map(|size| size.0),
        cpu,
        preload: preload(table, report),
        pattern: pattern.clone(),
    }
}

fn preload(table: &ScriptTable, report: Report<'_>) -> Vec<String> {
    let Some(modules) = &table.preload else { return Vec::new() };
    if table.kind != ScriptKind::Warm {
        report(&modules.span, "script: preload is for kind = 'warm'".into());
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':');
    for name in &modules.value {
        if name.is_empty() || !name.bytes().all(plain) {
            report(&modules.span, format!("script: {name:?} is not a name of a module"));
        }
    }
    modules.value.clone()
}

fn environment(table: &ScriptTable, report: Report<'_>) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for (name, value) in table.env.iter().flatten() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
            let what = format!("script: {:?} is not a name of a variable", name.value);
            report(&name.span, what);
        } else if name.value == "HTTP_PROXY" {
            report(&name.span, "script: HTTP_PROXY is never handed to a script".into());
        }
        if value.contains('\0') {
            report(&value.span, format!("script: {} holds a NUL", name.value));
        }
        variables.push((name.value.clone(), value.value.clone()));
    }
    variables
}
