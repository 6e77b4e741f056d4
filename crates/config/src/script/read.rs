//! Checks of the table `script`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::keys::misplaced;
use super::{
    Language, Local, Mapping, Remote, RequestEnv, Script, WorkerAddress, Workers, application,
};
use crate::address::Address;
use crate::file::{Mount, RequestId, ScriptKind, ScriptTable};
use crate::map::Maps;
use crate::pattern::Pattern;
use crate::proxy::service_name;
use crate::report::Report;
use crate::spanned::Spanned;
use crate::units::DurationValue;
use crate::users::{Names, Owner};

/// Checks `table` and fills in its defaults.
pub(crate) fn read(
    table: &Spanned<ScriptTable>,
    (pattern, maps): (&Pattern, &Maps),
    report: Report<'_>,
) -> Script {
    let script = Reader { table, report }.script(pattern);
    RequestEnv::divided(script, maps, &table.span, report)
}

pub(super) struct Reader<'a> {
    pub(super) table: &'a Spanned<ScriptTable>,
    pub(super) report: Report<'a>,
}

/// Default of the largest message of a WebSocket in bytes.
const MESSAGE: u64 = 16 << 20;
/// Default of the time without a byte of a WebSocket.
const TUNNEL: Duration = Duration::from_secs(3600);

impl Reader<'_> {
    fn script(mut self, pattern: &Pattern) -> Script {
        let table = self.table;
        let kind = table.kind.value;
        self.fitness();
        let workers = self.workers();
        let started_here = matches!(workers, Workers::Local(_));
        self.between("processes", &table.processes, 1, 65_536);
        if let Some(nice) = &table.nice
            && !(-20..=19).contains(&nice.value)
        {
            (self.report)(&nice.span, "script: nice is not between -20 and 19".into());
        }
        let queue_timeout = self.time("queue_timeout", &table.queue_timeout);
        let first_byte_timeout = self.time("first_byte_timeout", &table.first_byte_timeout);
        let timeout = self.time("timeout", &table.timeout);
        // A component is limited otherwise.
        let own = (!kind.is_component()).then_some(table);
        let cpu = own.and_then(|table| self.time("cpu", &table.cpu));
        let idle_timeout =
            table.idle_timeout.as_deref().map_or(Duration::from_secs(60), |span| span.0);
        let tunnel_timeout = table.tunnel_timeout.as_deref().map_or(TUNNEL, |span| span.0);
        let directory = table.file.as_ref().or(table.directory.as_ref()).or(table.root.as_ref());
        let directory = directory.map(|at| at.value.clone()).unwrap_or_default();
        let mapping = table.mapping();
        if let Some(mount) = &table.mount
            && !matches!(mapping, Mapping::Application | Mapping::Program)
        {
            let what = "script: mount is for an application or a single program; paths name the scripts of a directory";
            (self.report)(&mount.span, what.into());
        }
        Script {
            id: 0,
            label: match mapping {
                Mapping::Application => application(&workers).into(),
                _ => directory.display().to_string().into(),
            },
            kind,
            mapping,
            directory,
            extensions: self.extensions(),
            workers,
            processes: table.processes.as_deref().copied().unwrap_or(if started_here {
                4
            } else {
                32
            }),
            queue: table.queue.as_deref().copied().unwrap_or(1024),
            queue_timeout: queue_timeout.unwrap_or(Duration::from_secs(30)),
            timeout,
            first_byte_timeout,
            idle_timeout: (!idle_timeout.is_zero() && own.is_some()).then_some(idle_timeout),
            env: environment(
                table.env.as_deref().into_iter().chain(table.environment.as_deref()),
                self.report,
            ),
            request_env: Vec::new(),
            authorization: table.authorization.as_deref().copied().unwrap_or(false),
            accept_request_id: table.request_id.as_deref() == Some(&RequestId::Accept),
            send_request_id: table.send_request_id.as_deref().copied().unwrap_or(false),
            intercepts_errors: table.intercept_errors.as_deref().copied().unwrap_or(false),
            show_errors: table.show_errors.as_deref().copied().unwrap_or(false),
            owner: self.owner(),
            nice: table.nice.as_deref().copied().unwrap_or(0),
            memory: own.and_then(|table| table.memory.as_deref()).map(|size| size.0),
            cpu: cpu.map(|time| time.as_secs().max(1)),
            message_size: table.message_size.as_deref().map_or(MESSAGE, |size| size.0),
            tunnel_timeout: (!tunnel_timeout.is_zero()).then_some(tunnel_timeout),
            preload: preload(table, self.report),
            pattern: pattern.clone(),
            keeps_mount: table.mount.as_deref() == Some(&Mount::Keep),
        }
    }

    /// Reports keys that are missing, or that do not apply to the kind.
    fn fitness(&mut self) {
        use ScriptKind::FastCgi;
        let table = self.table;
        let kind = table.kind.value;
        let name = kind.as_str();
        let missing = match kind {
            kind if kind.is_cgi() => {
                let found =
                    table.directory.is_some() || table.file.is_some() || table.root.is_some();
                (!found).then_some("`directory`, `file` or `extensions`")
            }
            kind if kind.is_by_streams() || kind.is_component() => {
                let found = table.directory.is_some() || table.file.is_some();
                let needed =
                    if kind.is_component() { "`file` or `directory`" } else { "`directory`" };
                (!found).then_some(needed)
            }
            FastCgi => (table.command.is_none() && table.connect.is_none())
                .then_some("`command` or `connect`"),
            kind if kind.has_host() => table.application.is_none().then_some("`application`"),
            _ => table.connect.is_none().then_some("`connect`"),
        };
        if let Some(missing) = missing {
            let what = format!("script: a script of kind \"{name}\" needs {missing}");
            (self.report)(&table.kind.span, what);
        }
        if let (Some(_), Some(connect)) = (&table.command, &table.connect) {
            let what = "script: workers are either started by `command` or reached at `connect`";
            (self.report)(&connect.span, what.into());
        }
        if let (Some(_), Some(root)) = (&table.directory, &table.root) {
            let what = "script: scripts are either in a `directory` or beneath a `root`";
            (self.report)(&root.span, what.into());
        }
        let elsewhere = [&table.directory, &table.root].into_iter().flatten();
        if let (Some(file), Some(_)) = (&table.file, elsewhere.map(|at| &at.span).next()) {
            let what =
                "script: `file` names the one program, so that there is no `directory` or `root`";
            (self.report)(&file.span, what.into());
        }
        for (place, what) in misplaced(table) {
            (self.report)(place, what);
        }
        if let (Some(cpu), ScriptKind::Warm) = (&table.cpu, kind)
            && (table.user.is_some() || table.group.is_some())
        {
            let what = "script: with kind \"warm\" there is no `cpu` beside `user` or `group`";
            (self.report)(&cpu.span, what.into());
        }
    }

    fn workers(&mut self) -> Workers {
        let table = self.table;
        if table.kind.is_component() {
            return Workers::Component(self.component());
        }
        let second = Duration::from_secs;
        let kind = table.kind.value;
        if let Some(connect) = table.connect.as_ref().filter(|_| !kind.is_by_streams()) {
            if connect.0.is_empty() {
                (self.report)(&connect.span, "script: connect names no address".into());
            }
            return Workers::Remote(Remote {
                addresses: connect.0.iter().filter_map(|address| self.address(address)).collect(),
                connect_timeout: self
                    .time("connect_timeout", &table.connect_timeout)
                    .unwrap_or(second(5)),
                cool_down: self.time("cool_down", &table.cool_down).unwrap_or(second(10)),
                keep_alive: table.keep_alive.as_deref().copied().unwrap_or(false),
            });
        }
        if kind != ScriptKind::FastCgi && !kind.has_host() && !kind.is_by_streams() {
            return Workers::Each;
        }
        let max = table.processes.as_deref().copied().unwrap_or(4);
        self.between("min_processes", &table.min_processes, 0, max);
        self.between("requests", &table.requests, 1, usize::MAX);
        self.between("threads", &table.threads, 1, 1024);
        if let Some(size) = table.max_resident.as_ref().filter(|size| size.value.0 == 0) {
            (self.report)(&size.span, "script: max_resident is 0".into());
        }
        Workers::Local(Local {
            command: self.command(),
            application: self.application(),
            threads: table.threads.as_deref().copied().unwrap_or(1),
            min_processes: table.min_processes.as_deref().copied().unwrap_or(match kind {
                ScriptKind::Asgi => max,
                ScriptKind::Cgiplus => 0,
                _ => 1,
            }),
            retire_idle: self.time("retire_idle", &table.retire_idle).unwrap_or(second(60)),
            requests: table.requests.as_deref().map(|&requests| requests as u64),
            max_age: self.time("max_age", &table.max_age),
            max_resident: table.max_resident.as_deref().map(|size| size.0),
            backoff: self.time("backoff", &table.backoff).unwrap_or(Duration::from_millis(100)),
        })
    }

    fn command(&mut self) -> Vec<String> {
        let kind = self.table.kind.value;
        if kind.has_host() || kind == ScriptKind::Rte {
            let interpreter = self.table.interpreter.as_ref();
            if let Some(interpreter) = interpreter {
                self.plain("interpreter", interpreter);
                let is_rte = self.table.kind.value == ScriptKind::Rte;
                if is_rte && Language::of(Some(&**interpreter)).is_none() {
                    let what = format!(
                        "script: {:?} is named like neither python nor perl",
                        interpreter.value
                    );
                    (self.report)(&interpreter.span, what);
                }
            }
            let usual = if kind == ScriptKind::Psgi { "perl" } else { "python3" };
            return vec![interpreter.map_or_else(|| usual.into(), |name| name.value.clone())];
        }
        let Some(command) = &self.table.command else { return Vec::new() };
        match command.first() {
            Some(program) => self.plain("command", program),
            None => (self.report)(&command.span, "script: command names no program".into()),
        }
        for word in command.iter().filter(|word| word.contains('\0')) {
            (self.report)(&word.span, "script: command contains a NUL".into());
        }
        command.iter().map(|word| word.value.clone()).collect()
    }

    fn application(&mut self) -> String {
        let Some(application) = &self.table.application else { return String::new() };
        if self.table.kind.value == ScriptKind::Psgi {
            if application.is_empty() || application.contains('\0') {
                let what = "script: application names no file such as \"app.psgi\"";
                (self.report)(&application.span, what.into());
            }
            return application.value.clone();
        }
        if !is_python_application(application) {
            let what = format!(
                "script: {:?} is not an application such as \"app:application\" or \"app:create_app()\"",
                application.value
            );
            (self.report)(&application.span, what);
        }
        application.value.clone()
    }

    fn plain(&mut self, key: &str, word: &Spanned<String>) {
        if word.is_empty() || word.contains('\0') {
            (self.report)(&word.span, format!("script: {key} names no program"));
        }
    }

    fn address(&mut self, text: &Spanned<String>) -> Option<WorkerAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.starts_with('/') && path.len() < 108 && !path.contains('\0') {
                return Some(WorkerAddress::Socket(Address::Unix(path.into())));
            }
            let what = format!(
                "script: {path:?} is not the absolute path of a socket, of less than 108 bytes"
            );
            (self.report)(&text.span, what);
            return None;
        }
        let address = worker_address(text);
        if address.is_none() {
            let what = format!(
                "script: {:?} is not an address such as \"127.0.0.1:9000\", \"php:9000\", \"srv://_fastcgi._tcp.example.com\" or \"unix:/run/app.sock\"",
                text.value
            );
            (self.report)(&text.span, what);
        }
        address
    }

    fn extensions(&mut self) -> Vec<String> {
        let kind = self.table.kind.value;
        if !self.table.is_by_extension() {
            return Vec::new();
        }
        let Some(names) = &self.table.extensions else {
            let interpreter = self.table.interpreter.as_ref().map(|name| &*name.value);
            return vec![match kind {
                ScriptKind::Rte if Language::of(interpreter) == Some(Language::Perl) => "pl".into(),
                ScriptKind::Rte => "py".into(),
                kind if kind.is_cgi() => "cgi".into(),
                _ => "php".into(),
            }];
        };
        if names.is_empty() {
            (self.report)(&names.span, "script: extensions names none".into());
        }
        for name in names.iter().filter(|name| name.is_empty() || name.contains(['/', '\0'])) {
            let what = format!("script: {:?} is not an extension", name.value);
            (self.report)(&name.span, what);
        }
        names.iter().map(|name| name.trim_start_matches('.').to_owned()).collect()
    }

    fn owner(&mut self) -> Option<Owner> {
        let (user, group) = (self.table.user.as_ref(), self.table.group.as_ref());
        if user.is_none() && group.is_none() {
            return None;
        }
        let names = Names::load();
        let mut owner = Owner { user: None, group: 0, groups: Vec::new() };
        if let Some(user) = user {
            match names.user(user) {
                Some(known) => owner = known,
                None => {
                    let what = format!("script: there is no user {:?}", user.value);
                    (self.report)(&user.span, what);
                }
            }
        }
        if let Some(group) = group {
            match names.group(group) {
                Some(known) => owner.group = known,
                None => {
                    let what = format!("script: there is no group {:?}", group.value);
                    (self.report)(&group.span, what);
                }
            }
        }
        Some(owner)
    }

    pub(super) fn between(
        &mut self,
        key: &str,
        number: &Option<Spanned<usize>>,
        least: usize,
        max: usize,
    ) {
        let Some(number) = number else { return };
        if number.value < least {
            let what = match max {
                usize::MAX => format!("script: {key} is less than {least}"),
                _ => format!("script: {key} is not between {least} and {max}"),
            };
            (self.report)(&number.span, what);
        } else if number.value > max {
            let what = format!("script: {key} is not between {least} and {max}");
            (self.report)(&number.span, what);
        }
    }

    pub(super) fn time(
        &mut self,
        key: &str,
        span: &Option<Spanned<DurationValue>>,
    ) -> Option<Duration> {
        let span = span.as_ref()?;
        if span.value.0.is_zero() {
            (self.report)(&span.span, format!("script: {key} is 0: write how long to wait"));
        }
        Some(span.value.0)
    }
}

/// Returns `true` for `module:application` or `module:factory(arguments)`. The arguments are checked when the
/// application is loaded.
fn is_python_application(text: &str) -> bool {
    let is_name = |text: &str| {
        text.split('.').all(|part| {
            part.chars().all(|c| c.is_alphanumeric() || c == '_')
                && part.chars().next().is_some_and(|first| !first.is_numeric())
        })
    };
    let Some((module, application)) = text.split_once(':') else { return false };
    let application = application.trim();
    let callable = match application.split_once('(') {
        Some((factory, arguments)) if arguments.ends_with(')') => factory,
        Some(_) => return false,
        None => application,
    };
    is_name(module) && is_name(callable.trim_end()) && !text.contains(['\0', '\n', '\r'])
}

fn preload(table: &ScriptTable, report: Report<'_>) -> Vec<String> {
    let Some(modules) = &table.preload else { return Vec::new() };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':');
    for name in &modules.value {
        if name.is_empty() || !name.bytes().all(plain) {
            report(&modules.span, format!("script: {name:?} is not a name of a module"));
        }
    }
    modules.value.clone()
}

fn environment<'t>(
    tables: impl Iterator<Item = &'t BTreeMap<Spanned<String>, Spanned<String>>>,
    report: Report<'_>,
) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for (name, value) in tables.flatten() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
            let what = format!("script: {:?} is not a name of a variable", name.value);
            report(&name.span, what);
        } else if name.value == "HTTP_PROXY" {
            report(&name.span, "script: HTTP_PROXY is never handed to a script".into());
        }
        if value.contains('\0') {
            report(&value.span, format!("script: {} contains a NUL", name.value));
        }
        variables.push((name.value.clone(), value.value.clone()));
    }
    variables
}

/// Returns the address of workers that are reached by TCP: an IP address or a name with a port, or a name with SRV records.
pub(crate) fn worker_address(text: &str) -> Option<WorkerAddress> {
    if let Some(name) = text.strip_prefix("srv://") {
        return Some(WorkerAddress::Name { name: service_name(name)?.to_owned(), port: None });
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then_some(WorkerAddress::Socket(Address::Tcp(address)));
    }
    let (name, port) = text.rsplit_once(':')?;
    let (name, port) = (service_name(name)?, port.parse().ok().filter(|&port: &u16| port != 0)?);
    // Digits and dots are an address with an error.
    let is_name = name.bytes().any(|byte| byte.is_ascii_alphabetic());
    is_name.then(|| WorkerAddress::Name { name: name.to_owned(), port: Some(port) })
}
