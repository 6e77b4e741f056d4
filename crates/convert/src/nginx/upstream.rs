//! Tables `upstream` and addresses of upstreams.

use super::context::Context;
use super::parse::Directive;
use super::units::{shown_time, time};
use crate::value::Value;

/// The servers behind a name, and how one is chosen.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    /// Addresses as nginx has them, with weights.
    pub(super) servers: Vec<(String, u64)>,
    /// Those that are used only when none of these is available.
    pub(super) backups: Vec<(String, u64)>,
    pub(super) balance: Option<String>,
    pub(super) eject: Option<Value>,
    /// They are those of a table `upstream`.
    pub(super) is_named: bool,
    pub(super) sticky: Option<Value>,
    /// Further keys of the proxy.
    pub(super) more: Vec<(&'static str, Value)>,
}

impl Group {
    /// Sets a key of the proxy. Where servers have different numbers, that of the first one holds.
    fn set(&mut self, key: &'static str, value: Value) {
        if !self.more.iter().any(|(other, _)| *other == key) {
            self.more.push((key, value));
        }
    }
}

/// Returns the servers of an upstream, or the address itself.
pub(super) fn group(name: &str, context: &mut Context<'_>) -> Group {
    let Some(upstream) = context.upstreams.get(name).copied() else {
        return Group { servers: vec![(name.to_owned(), 1)], ..Group::default() };
    };
    context.report.carried(upstream);
    let mut group =
        Group { balance: Some("round-robin".into()), is_named: true, ..Group::default() };
    let mut backups = Vec::new();
    for directive in upstream.children() {
        match directive.name.as_str() {
            "server" => server(directive, &mut group, &mut backups, context),
            "least_conn" => balance(directive, "least-connections", &mut group, context),
            "ip_hash" => balance(directive, "hash:address", &mut group, context),
            "random" => balance(directive, "least-loaded", &mut group, context),
            "hash" => hash(directive, &mut group, context),
            "sticky" => sticky(directive, &mut group, context),
            "keepalive" | "keepalive_requests" | "keepalive_timeout" | "keepalive_time" => {
                context
                    .report
                    .not_needed(directive, "connections to upstreams are kept open by default");
            }
            "include" => context.report.carried(directive),
            _ => {}
        }
    }
    match group.servers.is_empty() {
        true => group.servers = backups,
        false => group.backups = backups,
    }
    if group.servers.len() + group.backups.len() == 1 {
        group.balance = None;
        group.eject = None;
    }
    group
}

fn balance(directive: &Directive, policy: &str, group: &mut Group, context: &mut Context<'_>) {
    context.report.carried(directive);
    group.balance = Some(policy.to_owned());
}

fn hash(directive: &Directive, group: &mut Group, context: &mut Context<'_>) {
    match directive.word(0) {
        "$remote_addr" | "$binary_remote_addr" => balance(directive, "hash:address", group, context),
        key => match key.strip_prefix("$http_") {
            Some(field) => {
                let policy = format!("hash:{}", super::condition::field_name(field));
                balance(directive, &policy, group, context);
            }
            None => context.report.lost(directive, format!("{key}: upstreams are chosen by a field or the address; now each gets requests in turn")),
        },
    }
}

/// `sticky cookie NAME`: requests of a client stay at a server.
fn sticky(directive: &Directive, group: &mut Group, context: &mut Context<'_>) {
    let name = directive.word(1);
    if directive.word(0) != "cookie" || name.is_empty() || name.contains('$') {
        let what = "the server is chosen without it: `sticky` of `proxy` sets its own cookie";
        return context.report.lost(directive, what);
    }
    let mut sticky = Value::table([("cookie", Value::text(name))]);
    let mut others = Vec::new();
    for word in directive.words.iter().skip(2) {
        match word.split_once('=').unwrap_or((word, "")) {
            ("expires", "max") => sticky.set("max_age", Value::text("3650d")),
            ("expires", text) if time(text).is_some_and(|time| time > 0) => {
                sticky.set("max_age", Value::text(shown_time(time(text).unwrap_or_default())));
            }
            ("samesite", kind @ ("strict" | "lax" | "none")) => {
                sticky.set("same_site", Value::text(kind));
            }
            ("secure", "") => sticky.set("secure", Value::Switch(true)),
            ("httponly", "") | ("path", "/") => {}
            _ => others.push(word.as_str()),
        }
    }
    match others.is_empty() {
        true => context.report.differs(directive, "the cookie is HttpOnly, for all paths of the host, and has another value: clients may get another server once"),
        false => context.report.lost(directive, format!("{}: the cookie is for all paths of the host", others.join(" "))),
    }
    group.sticky = Some(sticky);
}

fn server(
    directive: &Directive,
    group: &mut Group,
    backups: &mut Vec<(String, u64)>,
    context: &mut Context<'_>,
) {
    let word = |name: &str| {
        directive.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let is_there = |name: &str| directive.words.iter().any(|word| word == name);
    let weight = word("weight").and_then(|weight| weight.parse().ok()).unwrap_or(1);
    let address = address(directive);
    if is_there("down") {
        return context.report.differs(directive, "a server that is down is left out");
    }
    if is_there("backup") {
        context.report.carried(directive);
        return backups.push((address, weight));
    }
    context.report.carried(directive);
    let failures = word("max_fails").and_then(|failures| failures.parse().ok());
    let pause = word("fail_timeout").and_then(time);
    if failures.is_some() || pause.is_some() {
        let mut eject = Value::Table(Vec::new());
        eject.set("failures", Value::Number(failures.unwrap_or(1)));
        if let Some(pause) = pause.filter(|pause| *pause > 0) {
            eject.set("time", Value::text(shown_time(pause)));
        }
        group.eject = Some(eject);
    }
    let slow_start = word("slow_start").and_then(time).filter(|time| *time > 0);
    if let Some(time) = slow_start {
        group.set("slow_start", Value::text(shown_time(time)));
    }
    let connections = word("max_conns").and_then(|number| number.parse::<u64>().ok());
    if let Some(number) = connections.filter(|number| *number > 0) {
        group.set("connections", Value::Number(number));
        group.set("queue", Value::Number(0));
    }
    if slow_start.is_some() || connections.is_some() {
        let what = "`slow_start` and `connections` of `proxy` are for all its upstreams";
        context.report.differs(directive, what);
    }
    group.servers.push((address, weight));
}

/// Returns the address of a server. One whose name is resolved again and again begins with `dns+`, and one that is found by SRV
/// records with `srv+`.
fn address(directive: &Directive) -> String {
    let address = directive.word(0);
    if !directive.words.iter().any(|word| word == "resolve") {
        return address.to_owned();
    }
    match directive.words.iter().find_map(|word| word.strip_prefix("service=")) {
        // `http` is short for `_http._tcp`.
        Some(service) if service.contains('.') || service.starts_with('_') => {
            format!("srv+{service}.{address}")
        }
        Some(service) => format!("srv+_{service}._tcp.{address}"),
        None => match address.rsplit_once(':') {
            Some(_) => format!("dns+{address}"),
            None => format!("dns+{address}:80"),
        },
    }
}

/// Returns the URL of an upstream.
pub(super) fn url(scheme: &str, address: &str) -> String {
    if let Some((kind @ ("dns" | "srv"), name)) = address.split_once('+') {
        return format!("{kind}+{scheme}://{name}");
    }
    match address.strip_prefix("unix:") {
        // `unix:///run/a.sock` has one slash that counts.
        Some(path) => {
            let path = path.trim_end_matches(':');
            let plain = path.trim_start_matches('/');
            format!("unix:{}{plain}", if plain.len() < path.len() { "/" } else { "" })
        }
        None => format!("{scheme}://{address}"),
    }
}
