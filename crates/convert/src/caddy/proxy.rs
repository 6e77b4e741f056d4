//! `reverse_proxy`.

use super::builder::{Builder, State};
use super::entry::Entry;
use super::files::fastcgi;
use super::handlers::position;
use super::placeholders::template;
use crate::directive::Directive;
use crate::regions::Region;
use crate::units::{shown_time, time};
use crate::value::Value;

/// Directives about connections that need no counterpart.
const NOT_NEEDED: [&str; 16] = [
    "flush_interval",
    "buffer_requests",
    "buffer_responses",
    "request_buffers",
    "response_buffers",
    "max_buffer_size",
    "lb_retries",
    "lb_try_duration",
    "lb_try_interval",
    "lb_retry_match",
    "trusted_proxies",
    "stream_timeout",
    "stream_close_delay",
    "verbose_logs",
    "fail_timeout",
    "keepalive_idle_conns",
];

impl<'t> Builder<'_, 't> {
    pub(super) fn reverse_proxy(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let directive = entry.directive;
        let _ = region;
        self.context.report.differs(
            directive,
            "the upstream gets a normalized path, and no `Accept-Encoding` that the proxy adds",
        );
        let mut upstreams: Vec<String> = entry.words.clone();
        let mut proxy = Value::Table(Vec::new());
        let mut fields: Vec<(String, String)> = state.request_fields.clone();
        let mut transport: Option<&Directive> = None;
        for child in directive.children() {
            match child.name.as_str() {
                "to" => {
                    self.context.report.carried(child);
                    upstreams.extend(child.words.clone());
                }
                "transport" => {
                    self.context.report.carried(child);
                    transport = Some(child);
                }
                "header_up" => self.header_up(child, &mut fields, &mut proxy),
                "header_down" => self.field_line(child, &child.words, state),
                "lb_policy" => self.policy(child, &mut proxy),
                name if name.starts_with("health_") || matches!(name, "fail_duration" | "max_fails" | "unhealthy_status" | "unhealthy_latency" | "unhealthy_request_count") => {
                    self.health(child, &mut proxy);
                }
                "dynamic" => self.dynamic(child, &mut upstreams),
                name if NOT_NEEDED.contains(&name) => self.context.report.not_needed(
                    child,
                    "responses are streamed, and requests without an effect are sent again to another upstream",
                ),
                "handle_response" | "replace_status" | "@" => {
                    self.context.report.lost(child, "responses of the upstream are passed on as they are");
                    lose(child.children(), self);
                }
                name if name.starts_with('@') => self.context.report.lost(child, "responses of the upstream are passed on as they are"),
                _ => self.context.report.lost(child, "it has no counterpart"),
            }
        }
        if transport.is_some_and(|transport| transport.word(0) == "fastcgi") {
            self.fastcgi_transport(&upstreams, transport, state);
            state.end = position(entry);
            return;
        }
        let mut is_tls = false;
        if let Some(transport) = transport {
            is_tls = self.transport(transport, &mut proxy);
        }
        let urls: Option<Vec<String>> = upstreams.iter().map(|text| url(text, is_tls)).collect();
        let Some(urls) = urls.filter(|urls| !urls.is_empty()) else {
            self.context
                .report
                .lost(directive, "the upstream depends on the request; the response is 502");
            state.keys.set("respond", Value::table([("status", Value::Number(502))]));
            state.end = position(entry);
            return;
        };
        let to = Value::one_or_many(urls);
        if let Some(prefix) = &state.strip {
            proxy.set("strip", Value::text(prefix.clone()));
            proxy.set("rewrite_location", Value::Switch(false));
        }
        if !fields.is_empty() {
            let table =
                fields.into_iter().map(|(name, value)| (name, Value::Text(value))).collect();
            proxy.set("set_request_fields", Value::Table(table));
        }
        let proxy = match proxy.entries().is_empty() {
            true => to,
            false => {
                let mut all = Value::table([("to", to)]);
                proxy.entries().iter().for_each(|(key, value)| all.set(key, value.clone()));
                all
            }
        };
        state.keys.set("proxy", proxy);
        if state.keys.get("body_size").is_none() {
            state.keys.set("body_size", Value::text("unlimited"));
        }
        if let Some(tries) = state.tries.as_ref().filter(|tries| tries.len() > 1) {
            let mut tries = tries.clone();
            tries.pop();
            tries.push("=proxy".into());
            if let Some(root) = &state.root {
                state.keys.set("root", Value::text(root.clone()));
                state.keys.set("try", Value::list(tries));
            }
        }
        state.end = position(entry);
    }

    fn fastcgi_transport(
        &mut self,
        upstreams: &[String],
        transport: Option<&Directive>,
        state: &mut State,
    ) {
        let connect = upstreams.iter().map(|word| fastcgi(word)).collect();
        let mut script = Value::table([
            ("kind", Value::text("fastcgi")),
            ("connect", Value::one_or_many(connect)),
        ]);
        let mut env = Value::Table(Vec::new());
        for child in transport.map(Directive::children).unwrap_or_default() {
            match child.name.as_str() {
                "root" => state.root = Some(self.context.in_folder(child.word(0))),
                "env" if !child.word(1).contains('{') => {
                    env.set(child.word(0), Value::text(child.word(1)));
                }
                "split" => {}
                _ => {
                    self.context.report.lost(child, "it has no counterpart");
                    continue;
                }
            }
            self.context.report.carried(child);
        }
        if let Some(root) = &state.root {
            script.set("root", Value::text(root.clone()));
            state.keys.set("root", Value::text(root.clone()));
        }
        if !env.entries().is_empty() {
            script.set("env", env);
        }
        state.keys.set("script", script);
    }

    /// Returns `true` if the upstreams are called by TLS.
    fn transport(&mut self, transport: &Directive, proxy: &mut Value) -> bool {
        let mut is_tls = false;
        for child in transport.children() {
            let text = child.word(0);
            let key = match child.name.as_str() {
                "tls" => {
                    is_tls = true;
                    self.context.report.carried(child);
                    continue;
                }
                "tls_insecure_skip_verify" => {
                    is_tls = true;
                    let what = "certificates of upstreams are always verified: without one that is valid, the response is 502; `authority` names who signs them";
                    self.context.report.lost(child, what);
                    continue;
                }
                "tls_server_name" => {
                    is_tls = true;
                    proxy.set("server_name", Value::text(text));
                    self.context.report.carried(child);
                    continue;
                }
                "tls_trusted_ca_certs" | "tls_trust_pool" => {
                    is_tls = true;
                    let file = child.words.last().map_or("", String::as_str);
                    proxy.set("authority", Value::text(self.context.in_folder(file)));
                    self.context.report.carried(child);
                    continue;
                }
                "tls_client_auth" if child.words.len() == 2 => {
                    is_tls = true;
                    let file = |at: usize| Value::text(self.context.in_folder(child.word(at)));
                    let files = Value::table([("certificate", file(0)), ("key", file(1))]);
                    proxy.set("client_certificate", files);
                    self.context.report.carried(child);
                    continue;
                }
                "dial_timeout" => "connect_timeout",
                "response_header_timeout" => "first_byte_timeout",
                "read_timeout" | "write_timeout" => "idle_timeout",
                "keepalive" => "keep_alive",
                "compression"
                | "max_conns_per_host"
                | "keepalive_idle_conns"
                | "keepalive_idle_conns_per_host"
                | "read_buffer"
                | "write_buffer"
                | "max_response_header"
                | "dial_fallback_delay"
                | "expect_continue_timeout"
                | "resolvers"
                | "versions"
                | "keepalive_interval" => {
                    self.context
                        .report
                        .not_needed(child, "connections to upstreams are limited by default");
                    continue;
                }
                _ => {
                    self.context.report.lost(child, "it has no counterpart");
                    continue;
                }
            };
            match time(text).filter(|time| *time > 0) {
                Some(time) => {
                    self.context.report.carried(child);
                    proxy.set(key, Value::text(shown_time(time)));
                }
                None => self.context.report.not_needed(child, "the default holds"),
            }
        }
        is_tls
    }

    fn header_up(
        &mut self,
        child: &'t Directive,
        fields: &mut Vec<(String, String)>,
        proxy: &mut Value,
    ) {
        let (name, value) = (child.word(0), child.word(1));
        if name.eq_ignore_ascii_case("host") {
            match value {
                "{upstream_hostport}"
                | "{http.reverse_proxy.upstream.hostport}"
                | "{upstream_host}" => {
                    proxy.set("host", Value::text("upstream"));
                    self.context.report.carried(child);
                }
                "{host}" | "{hostport}" | "{http.request.host}" => {
                    self.context.report.carried(child);
                }
                value => self
                    .context
                    .report
                    .lost(child, format!("{value}: the upstream gets the host of the client")),
            }
            return;
        }
        self.request_field(child, name, value, child.words.get(2), fields);
    }

    /// Sets, adds or removes a field of requests.
    pub(super) fn request_field(
        &mut self,
        directive: &'t Directive,
        name: &str,
        value: &str,
        replacement: Option<&String>,
        fields: &mut Vec<(String, String)>,
    ) {
        let lower = name.trim_start_matches(['+', '-', '?', '>']).to_ascii_lowercase();
        if replacement.is_some() {
            return self.context.report.lost(directive, "values of the client are not changed");
        }
        let by_itself = match (lower.as_str(), value) {
            ("x-real-ip", _) => false,
            (
                "x-forwarded-for",
                "{remote_host}" | "{remote}" | "{client_ip}" | "{http.request.remote.host}",
            )
            | ("x-forwarded-proto", "{scheme}" | "{http.request.scheme}")
            | (
                "x-forwarded-host",
                "{host}" | "{hostport}" | "{http.request.host}" | "{http.request.hostport}",
            ) => true,
            ("connection" | "upgrade", _) => true,
            _ => false,
        };
        if by_itself {
            return self
                .context
                .report
                .not_needed(directive, "upstreams get this field by themselves");
        }
        let plain = name.trim_start_matches(['+', '-', '?', '>']).to_owned();
        let text = match name.starts_with('-') {
            true => Some(String::new()),
            false => request_value(value),
        };
        match text {
            Some(text) => {
                self.context.report.carried(directive);
                if name.starts_with('+') {
                    self.context.report.differs(directive, "it replaces what the client sends");
                }
                fields.retain(|(other, _)| !other.eq_ignore_ascii_case(&plain));
                fields.push((plain, text));
            }
            None => self.context.report.lost(
                directive,
                format!("the upstream gets no {plain}: {value} has no placeholder"),
            ),
        }
    }

    pub(super) fn request_header(&mut self, entry: &Entry<'t>, state: &mut State) {
        let (name, value) = (
            entry.words.first().cloned().unwrap_or_default(),
            entry.words.get(1).cloned().unwrap_or_default(),
        );
        let mut fields = std::mem::take(&mut state.request_fields);
        self.request_field(entry.directive, &name, &value, entry.words.get(2), &mut fields);
        state.request_fields = fields;
    }

    fn policy(&mut self, child: &'t Directive, proxy: &mut Value) {
        let balance =
            match child.word(0) {
                "round_robin" | "weighted_round_robin" => "round-robin".to_owned(),
                "least_conn" => "least-connections".to_owned(),
                "ip_hash" | "client_ip_hash" => "hash:address".to_owned(),
                "header" => format!("hash:{}", child.word(1)),
                "cookie" => {
                    self.context.report.differs(child, "the cookie has a value of this server");
                    let name = if child.word(1).is_empty() { "lb" } else { child.word(1) };
                    return proxy.set("sticky", Value::text(name));
                }
                "random" | "random_choose" => {
                    self.context
                        .report
                        .differs(child, "of two at random, the one with fewer requests is chosen");
                    return;
                }
                other => return self.context.report.lost(
                    child,
                    format!(
                        "{other}: of two upstreams at random, the one with fewer requests is chosen"
                    ),
                ),
            };
        self.context.report.carried(child);
        proxy.set("balance", Value::text(balance));
    }

    fn health(&mut self, child: &'t Directive, proxy: &mut Value) {
        let text = child.word(0);
        let mut health = proxy.get("health").cloned().unwrap_or(Value::Table(Vec::new()));
        let shown = time(text).filter(|time| *time > 0).map(|time| Value::text(shown_time(time)));
        match (child.name.as_str(), shown) {
            ("health_uri" | "health_path", _) => health.set("path", Value::text(text)),
            ("health_interval", Some(time)) => health.set("interval", time),
            ("health_timeout", Some(time)) => health.set("timeout", time),
            ("health_status", _) if text.len() == 3 && text.parse::<u64>().is_ok() => {
                health.set("status", Value::Number(text.parse().unwrap_or(200)));
            }
            ("health_status", _) if text == "2xx" => {
                self.context.report.differs(child, "statuses from 300 to 399 are healthy, too");
            }
            ("health_fails", _) => health.set("failures", Value::Number(text.parse().unwrap_or(1))),
            ("health_passes", _) => {
                health.set("successes", Value::Number(text.parse().unwrap_or(1)));
            }
            ("fail_duration", Some(time)) => {
                let mut eject = proxy
                    .get("eject")
                    .cloned()
                    .unwrap_or(Value::table([("failures", Value::Number(1))]));
                eject.set("time", time);
                proxy.set("eject", eject);
            }
            ("max_fails", _) => {
                let mut eject = proxy.get("eject").cloned().unwrap_or(Value::Table(Vec::new()));
                eject.set("failures", Value::Number(text.parse().unwrap_or(1)));
                proxy.set("eject", eject);
            }
            _ => {
                return self
                    .context
                    .report
                    .lost(child, "the health of upstreams does not depend on it");
            }
        }
        self.context.report.carried(child);
        if health.get("path").is_some() {
            proxy.set("health", health);
        }
    }

    fn dynamic(&mut self, child: &'t Directive, upstreams: &mut Vec<String>) {
        match (child.word(0), child.word(1)) {
            ("srv", name) if !name.is_empty() => {
                self.context.report.carried(child);
                upstreams.push(format!("srv+http://{name}"));
            }
            ("a", name) if !name.is_empty() && !child.word(2).is_empty() => {
                self.context.report.carried(child);
                upstreams.push(format!("dns+http://{name}:{}", child.word(2)));
            }
            _ => self
                .context
                .report
                .lost(child, "upstreams are named by addresses, names or SRV records"),
        }
    }
}

fn lose(all: &[Directive], builder: &mut Builder<'_, '_>) {
    for directive in all {
        builder.context.report.not_needed(directive, "it is in a part that is lost");
        lose(directive.children(), builder);
    }
}

/// Returns a value with the placeholders of `set_request_fields`.
fn request_value(text: &str) -> Option<String> {
    let text = template(text, &[]).ok()?;
    let known = [
        "{client}", "{host}", "{port}", "{scheme}", "{target}", "{path}", "{query}", "{user}",
        "{env.",
    ];
    let mut rest = text.as_str();
    while let Some(at) = rest.find('{') {
        if !known.iter().any(|name| rest[at..].starts_with(name)) {
            return None;
        }
        rest = &rest[at + 1..];
    }
    Some(text)
}

/// Returns the URL of an upstream; `None` if it depends on the request.
pub(super) fn url(text: &str, is_tls: bool) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix/").or_else(|| text.strip_prefix("unix+h2c/")) {
        return Some(format!("unix:{path}"));
    }
    if text.contains("{http")
        || text.contains("{re")
        || text.contains("{header")
        || text.contains("{host")
        || text.contains("{query")
    {
        return None;
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_owned(), rest),
        None if text.ends_with(":443") || is_tls => ("https".to_owned(), text),
        None => ("http".to_owned(), text),
    };
    let rest = rest.trim_end_matches('/');
    let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.to_owned() };
    let rest = match rest.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if rest == "localhost" => "127.0.0.1".to_owned(),
        None => rest,
    };
    let scheme = match scheme.as_str() {
        "http" if is_tls => "https",
        "http" => "http",
        "https" => "https",
        "h2c" => "h2c",
        "srv+http" => "srv+http",
        "dns+http" => "dns+http",
        _ => return None,
    };
    Some(format!("{scheme}://{rest}"))
}
