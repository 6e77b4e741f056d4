//! Servers: the main one, its settings, and virtual hosts.

use super::builder::comment;
use super::context::Context;
use super::scope::{Scope, is};
use super::server::site;
use super::{logs, tls};
use crate::directive::Directive;
use crate::model::{Listener, Site};
use crate::units::{shown_size, shown_time};
use crate::value::Value;

/// A virtual host.
struct Host<'t> {
    directive: &'t Directive,
    addresses: Vec<String>,
    names: Vec<String>,
    scope: Scope<'t>,
}

/// Converts the tree of a whole configuration, of a file of `sites-available`, or of a `.htaccess` file.
pub(super) fn convert(tree: &[Directive], context: &mut Context) {
    global(tree, context);
    logs::formats(tree, context);
    let hosts: Vec<Host<'_>> = tree
        .iter()
        .filter(|directive| is(directive, "VirtualHost"))
        .map(|directive| host(directive, tree, context))
        .collect();
    let mut listens = listens(tree, context);
    let has_listens = !listens.is_empty();
    let mut hosts = hosts;
    for host in &mut hosts {
        for address in &mut host.addresses {
            *address = listener(address, host.directive, &mut listens, has_listens, context);
        }
        host.addresses.dedup();
    }
    let main = Scope::new(vec![tree]);
    let is_free = |address: &&String| !hosts.iter().any(|host| host.addresses.contains(address));
    let free: Vec<String> = listens.iter().filter(is_free).cloned().collect();
    let has_main = main.get("DocumentRoot").is_some()
        || main.get("ProxyPass").is_some()
        || context.htaccess_root.is_some();
    let is_one = hosts.iter().all(|host| host.addresses == listens);
    sites_of(&hosts, is_one && free.is_empty(), tree, context);
    if hosts.is_empty() || has_main && !free.is_empty() {
        let mut made = site(vec![tree], context);
        made.comment = match tree.first() {
            Some(first) => format!("{}: the main server", first.place.short()),
            None => "the main server".to_owned(),
        };
        if !hosts.is_empty() {
            made.listen = free;
        }
        made.tls = tls::table(&main, context);
        if let Some(log) = logs::access_log(&main, context) {
            context.document.set("server", "access_log", log);
        }
        context.document.sites.push(made);
    }
    listeners(&listens, &hosts, &main, context);
}

fn sites_of<'t>(hosts: &[Host<'t>], is_one: bool, tree: &'t [Directive], context: &mut Context) {
    let mut seen: Vec<(&String, &String)> = Vec::new();
    let mut defaults: Vec<&String> = Vec::new();
    for host in hosts {
        let is_default = host.addresses.iter().any(|address| !defaults.contains(&address));
        let mut names: Vec<String> = Vec::new();
        for name in &host.names {
            let is_new = host.addresses.iter().any(|address| !seen.contains(&(address, name)));
            if is_new {
                names.push(name.clone());
            }
        }
        if !is_default && names.is_empty() {
            let what = "another host has its names at its addresses: requests never get here";
            context.report.lost(host.directive, what);
            mark(host.directive.children(), context);
            continue;
        }
        for address in &host.addresses {
            seen.extend(host.names.iter().map(|name| (address, name)));
            defaults.push(address);
        }
        logs::formats(host.directive.children(), context);
        let mut made: Site = site(vec![tree, host.directive.children()], context);
        made.comment = comment(host.directive);
        made.hosts = if is_default { Vec::new() } else { names };
        made.listen = if is_one { Vec::new() } else { host.addresses.clone() };
        made.tls = tls::table(&host.scope, context);
        if let Some(log) = logs::access_log(&host.scope, context) {
            let known = context.document.tables.iter().find(|(name, _)| name == "server");
            let known = known
                .and_then(|(_, entries)| entries.iter().find(|(key, _)| key == "access_log"))
                .map(|(_, log)| log.clone());
            match known {
                None => context.document.set("server", "access_log", log),
                Some(known) if known == log => {}
                Some(_) => made.keys.set("access_log", log),
            }
        }
        context.document.sites.push(made);
        context.is_closed = false;
    }
}

fn mark(all: &[Directive], context: &mut Context) {
    for directive in all {
        context.report.not_needed(directive, "its host is lost");
        mark(directive.children(), context);
    }
}

fn host<'t>(directive: &'t Directive, tree: &'t [Directive], context: &mut Context) -> Host<'t> {
    context.report.carried(directive);
    let scope = Scope::new(vec![tree, directive.children()]);
    let mut names = Vec::new();
    for child in directive.children() {
        let is_name = is(child, "ServerName");
        if !is_name && !is(child, "ServerAlias") {
            continue;
        }
        context.report.carried(child);
        for word in &child.words {
            let plain = word.split_once("://").map_or(word.as_str(), |(_, rest)| rest);
            let plain = plain.split(':').next().unwrap_or_default().to_ascii_lowercase();
            let inner = plain.strip_prefix("*.").unwrap_or(&plain);
            if inner.contains(['*', '?', '$']) || inner.is_empty() {
                let what = format!(
                    "{word}: hosts are names or begin with `*.`; requests for others get the default site"
                );
                context.report.lost(child, what);
            } else if !names.contains(&plain) {
                names.push(plain);
            }
        }
    }
    let addresses = directive.words.iter().map(|word| address(word)).collect();
    Host { directive, addresses, names, scope }
}

/// Returns an address in the form of `[[listen]]`.
fn address(word: &str) -> String {
    let word = word.split_once("://").map_or(word, |(_, rest)| rest);
    if word.parse::<u16>().is_ok() {
        return format!(":{word}");
    }
    let (host, port) = match word.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, port),
        Some((host, "*")) => (host, "80"),
        _ => (word, "80"),
    };
    match host {
        "*" | "_default_" | "0.0.0.0" | "[::]" => format!(":{port}"),
        "localhost" => format!("127.0.0.1:{port}"),
        host => match host.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
            Ok(_) => format!("{host}:{port}"),
            // The name of the machine.
            Err(_) => format!(":{port}"),
        },
    }
}

fn listens(tree: &[Directive], context: &mut Context) -> Vec<String> {
    let mut all = Vec::new();
    for directive in tree.iter().filter(|directive| is(directive, "Listen")) {
        context.report.carried(directive);
        let address = address(directive.word(0));
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let is_covered = |address: &String, all: &[String]| {
        let port = address.rsplit(':').next().unwrap_or_default();
        !address.starts_with(':') && all.contains(&format!(":{port}"))
    };
    let known = all.clone();
    all.retain(|address| !is_covered(address, &known));
    all
}

/// Returns the listener of an address; adds one if there are none.
fn listener(
    address: &str,
    directive: &Directive,
    listens: &mut Vec<String>,
    has_listens: bool,
    context: &mut Context,
) -> String {
    let port = address.rsplit(':').next().unwrap_or_default();
    let every = format!(":{port}");
    if listens.iter().any(|listen| listen == address) {
        return address.to_owned();
    }
    if listens.contains(&every) {
        context.report.differs(
            directive,
            format!("requests for other addresses of the listener {every} get here, too"),
        );
        return every;
    }
    let same_port = listens.iter().find(|listen| listen.ends_with(&every)).cloned();
    match same_port {
        Some(listen) if has_listens && address.starts_with(':') => listen,
        _ => {
            listens.push(address.to_owned());
            address.to_owned()
        }
    }
}

fn listeners(listens: &[String], hosts: &[Host<'_>], main: &Scope<'_>, context: &mut Context) {
    let has_tls = |address: &String| {
        let of_hosts = hosts
            .iter()
            .any(|host| host.addresses.contains(address) && host.scope.is_on("SSLEngine"));
        of_hosts || hosts.is_empty() && main.is_on("SSLEngine")
    };
    let all: Vec<Listener> = listens
        .iter()
        .map(|address| {
            let keys = if has_tls(address) {
                vec![("tls".to_owned(), Value::Switch(true))]
            } else {
                Vec::new()
            };
            Listener { address: address.clone(), keys }
        })
        .collect();
    // The listener of a configuration without any.
    let is_default = |listener: &Listener| listener.address == ":80" && listener.keys.is_empty();
    if !matches!(&all[..], [only] if is_default(only)) {
        context.document.listens = all;
    }
}

/// Settings of the whole server.
fn global(tree: &[Directive], context: &mut Context) {
    for directive in tree {
        let word = directive.word(0);
        let seconds = |word: &str| {
            word.parse::<u64>()
                .ok()
                .filter(|time| *time > 0)
                .map(|time| Value::text(shown_time(time.min(86_400 * 365) * 1000)))
        };
        let (key, value) = match directive.name.to_ascii_lowercase().as_str() {
            "timeout" => {
                if let Some(time) = seconds(word) {
                    context.document.set("server.http1", "send_timeout", time.clone());
                    ("body_timeout", Some(time))
                } else {
                    ("body_timeout", None)
                }
            }
            "keepalive" => {
                context.report.carried(directive);
                if word.eq_ignore_ascii_case("off") {
                    context.document.set("server.http1", "connection", Value::text("close"));
                }
                continue;
            }
            "keepalivetimeout" => ("idle_timeout", seconds(word.trim_end_matches("ms"))),
            "maxkeepaliverequests" => ("requests", word.parse().ok().map(Value::Number)),
            "limitrequestline" => (
                "target_size",
                word.parse()
                    .ok()
                    .map(|size: u64| Value::text(shown_size(size.clamp(256, 32 << 10)))),
            ),
            "limitrequestfields" => (
                "fields",
                word.parse().ok().map(|number: u64| {
                    Value::Number(if number == 0 { 254 } else { number.min(254) })
                }),
            ),
            "errorlog" => {
                logs::error_log(directive, context);
                continue;
            }
            "loglevel" => {
                level(directive, context);
                continue;
            }
            "remoteipheader" => {
                context.report.carried(directive);
                context.document.set("server", "forwarded_field", Value::text(word));
                continue;
            }
            "remoteipinternalproxy" | "remoteiptrustedproxy" => {
                proxies(directive, context);
                continue;
            }
            _ => continue,
        };
        match value {
            Some(value) => {
                context.report.carried(directive);
                context.document.set("server.http1", key, value);
            }
            None => context.report.not_needed(directive, "the default of the server holds"),
        }
    }
}

fn proxies(directive: &Directive, context: &mut Context) {
    let networks: Vec<String> =
        directive.words.iter().filter_map(|word| super::access::network(word)).collect();
    if networks.len() != directive.words.len() {
        context.report.lost(directive, "names of proxies are not looked up: they are not trusted");
    }
    context.report.carried(directive);
    let known = context.document.tables.iter().find(|(name, _)| name == "server");
    let known =
        known.and_then(|(_, entries)| entries.iter().find(|(key, _)| key == "trusted_proxies"));
    let mut all = match known {
        Some((_, Value::List(known))) => known.clone(),
        _ => Vec::new(),
    };
    all.extend(networks.into_iter().map(Value::text));
    context.document.set("server", "trusted_proxies", Value::List(all));
}

fn level(directive: &Directive, context: &mut Context) {
    let word = directive.word(0).to_ascii_lowercase();
    let level = match word.as_str() {
        "emerg" | "alert" | "crit" | "error" => "error",
        "warn" => "warn",
        "notice" | "info" => "info",
        "debug" => "debug",
        word if word.starts_with("trace") => "trace",
        _ => return context.report.not_needed(directive, "levels are those of the whole server"),
    };
    context.report.carried(directive);
    if level != "info" {
        context.document.set("server.error_log", "level", Value::text(level));
    }
}
