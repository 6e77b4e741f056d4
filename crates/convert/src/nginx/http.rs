//! The main context and `http`: settings of the whole server, and the sites.

use super::context::Context;
use super::parse::Directive;
use super::scope::Scope;
use super::units::{shown_size, shown_time, size, time};
use super::{limits, sites};
use crate::value::Value;

/// Directives of `http`, `server` or `location` by which a file without `http` is recognized.
const OF_SERVER: [&str; 5] = ["location", "root", "server_name", "proxy_pass", "return"];

/// Converts the tree of a whole file, of a file of `conf.d`, or of the content of a `server`.
pub(super) fn convert<'t>(tree: &'t [Directive], context: &mut Context<'t>) {
    let is_there = |name: &str| tree.iter().any(|directive| directive.name == name);
    main_context(tree, context);
    if is_there("http") {
        for http in tree.iter().filter(|directive| directive.name == "http") {
            context.report.carried(http);
            http_context(http.children(), context);
        }
    } else if is_there("server") || !OF_SERVER.iter().any(|name| is_there(name)) {
        http_context(tree, context);
    } else {
        gather(tree, context);
        sites::convert_single(tree, context);
    }
}

fn main_context(tree: &[Directive], context: &mut Context<'_>) {
    for directive in tree {
        let word = directive.word(0);
        match directive.name.as_str() {
            "user" => {
                // The user of Debian's package; without root, it cannot be chosen.
                let what = "the server stays the user that starts it; write `user` into [server] for a start by root";
                context.report.not_needed(directive, what);
            }
            "pid" => context.report.not_needed(
                directive,
                "systemd and `dunlin reload` need no file; `pid_file` of [server] writes one",
            ),
            "error_log" => error_log(directive, context),
            "worker_processes" => match word.parse::<u64>() {
                Ok(number) if number > 0 => {
                    context.report.carried(directive);
                    context.document.set("server", "threads", Value::Number(number));
                }
                _ => context.report.not_needed(directive, "there is a worker for each processor"),
            },
            "worker_rlimit_nofile" => {
                context
                    .report
                    .not_needed(directive, "the server raises its limit to what the system allows");
            }
            "worker_rlimit_core" => {
                context.report.not_needed(directive, "see `core` in [server.limits]");
            }
            "events" => {
                context.report.carried(directive);
                for child in
                    directive.children().iter().filter(|child| child.name == "worker_connections")
                {
                    let what = "connections are bounded by half of the descriptor limit; `connections` of [server] sets another number";
                    context.report.not_needed(child, what);
                }
            }
            "include" => context.report.carried(directive),
            _ => {}
        }
    }
}

fn error_log(directive: &Directive, context: &mut Context<'_>) {
    let level = match directive.word(1) {
        "debug" => "debug",
        "info" | "notice" => "info",
        "warn" => "warn",
        _ => "error",
    };
    let path = directive.word(0);
    if path == "off" || path.starts_with("syslog:") || path.starts_with("memory:") {
        let what = "messages go to standard error; nothing of a response changes";
        return context.report.not_needed(directive, what);
    }
    context.report.carried(directive);
    context.document.set("server.error_log", "level", Value::text(level));
    if path != "stderr" && path != "/dev/stderr" {
        let path = context.in_prefix(path);
        context.document.set("server.error_log", "path", Value::text(path));
    }
}

/// Registers what other directives name: upstreams, maps, zones, formats of logs.
fn gather<'t>(level: &'t [Directive], context: &mut Context<'t>) {
    for directive in level {
        let word = directive.word(0);
        match directive.name.as_str() {
            "include" => context.report.carried(directive),
            "upstream" => drop(context.upstreams.insert(word, directive)),
            "map" | "split_clients" => {
                context.maps.insert(directive.word(1).trim_start_matches('$'), directive);
            }
            "geo" => {
                let name = directive.words.last().map_or("", String::as_str);
                context.maps.insert(name.trim_start_matches('$'), directive);
            }
            "limit_req_zone" | "limit_conn_zone" => {
                let name = limits::zone_name(directive);
                let zones = match directive.name.as_str() {
                    "limit_req_zone" => &mut context.request_zones,
                    _ => &mut context.connection_zones,
                };
                zones.insert(name, directive);
            }
            "log_format" => drop(context.log_formats.insert(word, directive)),
            name if name.ends_with("_cache_path") => {
                let zone = directive.words.iter().find_map(|word| word.strip_prefix("keys_zone="));
                let zone = zone.unwrap_or_default().split(':').next().unwrap_or_default();
                context.cache_paths.insert(zone.to_owned(), directive);
            }
            _ => {}
        }
    }
}

fn http_context<'t>(level: &'t [Directive], context: &mut Context<'t>) {
    gather(level, context);
    clients(level, context);
    clients_of_servers(level, context);
    connections(level, context);
    let scope = Scope::new(level);
    sites::convert(level, &scope, context);
    maps(level, context);
}

/// Maps that only switch `Connection` to `upgrade`, as WebSockets need it, are not needed.
fn maps(level: &[Directive], context: &mut Context<'_>) {
    for directive in level {
        let is_upgrade = directive.name == "map" && directive.word(0) == "$http_upgrade";
        match directive.name.as_str() {
            _ if context.report.has(directive) => {}
            "map" if is_upgrade => {
                context.report.not_needed(directive, "WebSockets are forwarded without a setting");
            }
            "map" | "geo" | "split_clients" => {
                context
                    .report
                    .not_needed(directive, "no setting that is carried over uses its variable");
            }
            _ => {}
        }
    }
}

/// Clients behind a proxy, where all servers that do more than redirect have the same proxies.
fn clients_of_servers(level: &[Directive], context: &mut Context<'_>) {
    const NAMES: [&str; 3] = ["set_real_ip_from", "real_ip_header", "real_ip_recursive"];
    let has = |block: &[Directive]| block.iter().any(|child| NAMES.contains(&&*child.name));
    let is_server = |child: &&Directive| child.name == "server" && child.block.is_some();
    let redirects = |child: &&Directive| child.children().iter().any(|own| own.name == "return");
    let servers: Vec<&[Directive]> = level
        .iter()
        .filter(is_server)
        .filter(|server| !redirects(server))
        .map(Directive::children)
        .collect();
    let Some(first) = servers.first().filter(|first| has(first) && !has(level)) else { return };
    let own = |block: &&[Directive]| -> Vec<(String, Vec<String>)> {
        let own = block.iter().filter(|child| NAMES.contains(&&*child.name));
        own.map(|child| (child.name.clone(), child.words.clone())).collect()
    };
    if servers.iter().all(|server| own(server) == own(first)) {
        servers.iter().for_each(|server| clients(server, context));
    }
}

/// Clients behind a proxy.
fn clients(level: &[Directive], context: &mut Context<'_>) {
    let mut networks = Vec::new();
    for directive in level {
        let word = directive.word(0);
        match directive.name.as_str() {
            "set_real_ip_from" if word == "unix:" => {
                context.report.not_needed(
                    directive,
                    "clients of a Unix socket are trusted where any proxy is",
                );
            }
            "set_real_ip_from" => {
                context.report.carried(directive);
                networks.push(word.to_owned());
            }
            "real_ip_header" if word == "proxy_protocol" => {
                context
                    .report
                    .not_needed(directive, "a listener with `proxy_protocol` names the client");
            }
            "real_ip_header" if !level.iter().any(|other| other.name == "set_real_ip_from") => {
                context
                    .report
                    .not_needed(directive, "no proxy is trusted, so that no field names a client");
            }
            "real_ip_header" => {
                context.report.carried(directive);
                if !word.eq_ignore_ascii_case("X-Forwarded-For") {
                    context.document.set("server", "forwarded_field", Value::text(word));
                }
            }
            "real_ip_recursive" if word == "on" => context.report.carried(directive),
            "real_ip_recursive" => {
                context.report.differs(directive, "the last address that is not that of a trusted proxy is the client, as with `on`");
            }
            _ => {}
        }
    }
    if !networks.is_empty() {
        let has_field = level.iter().any(|directive| directive.name == "real_ip_header");
        if !has_field {
            // The default of nginx.
            context.document.set("server", "forwarded_field", Value::text("X-Real-IP"));
        }
        context.document.set("server", "trusted_proxies", Value::list(networks));
    }
}

/// Times and sizes of connections, which hold for the whole server.
fn connections(level: &[Directive], context: &mut Context<'_>) {
    for directive in level {
        let word = directive.word(0);
        let key = match directive.name.as_str() {
            "client_header_timeout" => "head_timeout",
            "client_body_timeout" => "body_timeout",
            "send_timeout" => "send_timeout",
            "keepalive_timeout" => "idle_timeout",
            "keepalive_requests" => "requests",
            "large_client_header_buffers" => "head_size",
            "server_tokens" => {
                context.report.not_needed(
                    directive,
                    "`Server` has no version; `server_field = false` in [server] leaves it out",
                );
                continue;
            }
            "resolver" => {
                resolver(directive, context);
                continue;
            }
            "resolver_timeout" => {
                context
                    .report
                    .not_needed(directive, "names are resolved beside requests, which do not wait");
                continue;
            }
            _ => continue,
        };
        let value = match key {
            "requests" => word.parse().ok().map(Value::Number),
            "head_size" => size(directive.word(1))
                .map(|bytes| bytes.clamp(8 << 10, 65_535))
                .map(|bytes| Value::text(shown_size(bytes))),
            _ if word == "0" && key == "idle_timeout" => {
                context.document.set("server.http1", "connection", Value::text("close"));
                context.report.carried(directive);
                continue;
            }
            _ => time(word).filter(|time| *time > 0).map(|time| Value::text(shown_time(time))),
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

fn resolver(directive: &Directive, context: &mut Context<'_>) {
    let address = |word: &String| -> Option<String> {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        match word.rsplit_once(':') {
            _ if word.contains('=') => None,
            Some((host, port)) if is_port(port) && !host.is_empty() => {
                Some(format!("{host}:{port}"))
            }
            _ => Some(format!("{word}:53")),
        }
    };
    let servers: Vec<String> = directive.words.iter().filter_map(address).collect();
    let is_address = |server: &String| server.parse::<std::net::SocketAddr>().is_ok();
    if !servers.is_empty() && servers.iter().all(is_address) {
        context.report.carried(directive);
        context.document.set("server", "resolver", Value::list(servers));
    } else {
        context
            .report
            .not_needed(directive, "the name servers of the system resolve the names of upstreams");
    }
}
