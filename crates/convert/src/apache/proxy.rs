//! `ProxyPass` and its kin.

use super::builder::{Builder, EndKind, OF_PROXY, Pass, Php, comment, respond, simple};
use super::context::Balancer;
use super::scope::{Scope, is};
use crate::directive::Directive;
use crate::expression::Expression;
use crate::keys::Keys;
use crate::regions::{Paths, Region};
use crate::units::shown_time;
use crate::value::Value;

/// Options that are about connections and need no counterpart.
const OF_CONNECTIONS: [&str; 20] = [
    "retry",
    "keepalive",
    "enablereuse",
    "disablereuse",
    "max",
    "min",
    "ttl",
    "smax",
    "acquire",
    "flushpackets",
    "flushwait",
    "ping",
    "nocanon",
    "upgrade",
    "iobuffersize",
    "receivebuffersize",
    "responsefieldsize",
    "redirect",
    "nofailover",
    "maxattempts",
];

/// Returns the address of FastCGI workers in `proxy:unix:/run/php.sock|fcgi://localhost` or `proxy:fcgi://127.0.0.1:9000`.
pub(super) fn fastcgi_address(word: &str) -> Option<String> {
    address(word.strip_prefix("proxy:")?, "fcgi://")
}

fn address(text: &str, scheme: &str) -> Option<String> {
    if let Some((socket, url)) = text.split_once('|') {
        return (socket.starts_with("unix:") && url.starts_with(scheme)).then(|| socket.to_owned());
    }
    let rest = text.strip_prefix(scheme)?;
    let host = rest.split('/').next().unwrap_or_default();
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:9000") };
    Some(host.replacen("localhost:", "127.0.0.1:", 1))
}

impl<'t> Builder<'_, 't> {
    /// Reads what the server and its sections pass on.
    pub(super) fn proxies(&mut self) {
        self.balancers();
        let mut order = OF_PROXY;
        for directive in self.server.clone().all(&["ProxyPass", "ProxyPassMatch"]) {
            order += 1;
            self.proxy_pass(directive, None, order);
        }
        let sections: Vec<_> = self
            .sections
            .iter()
            .map(|section| (section.level, section.paths.clone(), section.when.clone()))
            .collect();
        // The last section that applies has the pass.
        for (level, paths, when) in sections.into_iter().rev() {
            for directive in level
                .iter()
                .filter(|directive| is(directive, "ProxyPass") || is(directive, "ProxyPassMatch"))
            {
                order += 1;
                self.proxy_pass(directive, Some((paths.clone(), when.clone())), order);
            }
        }
    }

    /// `<Proxy balancer://NAME>`
    fn balancers(&mut self) {
        for section in self.server.clone().all(&["Proxy"]) {
            let Some(name) = section.word(0).strip_prefix("balancer://") else { continue };
            self.context.report.carried(section);
            let mut balancer = Balancer::default();
            for directive in section.children() {
                if is(directive, "BalancerMember") {
                    self.context.report.carried(directive);
                    let options = options(&directive.words[1..]);
                    let number = |name: &str| {
                        options.iter().find(|(key, _)| key == name).map(|(_, value)| value)
                    };
                    let weight = number("loadfactor").and_then(|value| value.parse::<f64>().ok());
                    if number("status").is_some_and(|status| status.contains('H')) {
                        self.context.report.lost(
                            directive,
                            "there is no spare upstream: it gets its share of the requests",
                        );
                    }
                    let weight = weight.map_or(1, |weight| {
                        (weight.clamp(0.01, 10.0) * if weight.fract() == 0.0 { 1.0 } else { 100.0 })
                            as u64
                    });
                    balancer.members.push((directive.word(0).to_owned(), weight.max(1)));
                } else if is(directive, "ProxySet") {
                    self.proxy_set(directive, &mut balancer);
                }
            }
            self.context.balancers.insert(name.trim_end_matches('/').to_owned(), balancer);
        }
    }

    fn proxy_set(&mut self, directive: &'t Directive, balancer: &mut Balancer) {
        for (key, value) in options(&directive.words) {
            match (key.as_str(), value.as_str()) {
                ("lbmethod", "byrequests" | "bytraffic" | "heartbeat") => {
                    balancer.balance = Some("round-robin".into());
                    self.context.report.carried(directive);
                }
                ("lbmethod", "bybusyness") => {
                    balancer.balance = Some("least-connections".into());
                    self.context.report.carried(directive);
                }
                ("stickysession", _) => {
                    self.context.report.lost(
                        directive,
                        "`sticky` keeps clients at an upstream by a cookie of this server",
                    );
                }
                (key, _) if OF_CONNECTIONS.contains(&key) || key == "timeout" => {
                    self.context.report.not_needed(
                        directive,
                        "connections to upstreams are kept and tried again without a setting",
                    );
                }
                (key, _) => {
                    self.context.report.lost(directive, format!("{key} has no counterpart"));
                }
            }
        }
    }

    fn proxy_pass(
        &mut self,
        directive: &'t Directive,
        within: Option<(Vec<Paths>, Option<Value>)>,
        order: usize,
    ) {
        let is_expression = is(directive, "ProxyPassMatch");
        let is_path = directive.word(0).starts_with(['/', '^', '(']) || within.is_none();
        let (path, rest) = match is_path {
            true => (directive.words.first().cloned(), directive.words.get(1..)),
            false => (None, Some(&directive.words[..])),
        };
        let rest = rest.unwrap_or_default();
        let url = rest.first().cloned().unwrap_or_default();
        let when = within.as_ref().and_then(|(_, when)| when.clone());
        let found = match path {
            Some(pattern) if is_expression => self.by_expression(directive, &pattern, &url),
            Some(path) => Some(
                of_path(&path)
                    .into_iter()
                    .map(|paths| (paths, path.clone(), url.clone(), false))
                    .collect(),
            ),
            None => {
                let paths = within.map(|(paths, _)| paths).unwrap_or_default();
                let shortest = paths.iter().filter_map(text).min_by_key(String::len);
                let prefix = shortest.unwrap_or_else(|| "/".to_owned());
                Some(
                    paths
                        .into_iter()
                        .map(|paths| (paths, prefix.clone(), url.clone(), false))
                        .collect(),
                )
            }
        };
        let Some(found) = found else { return };
        self.context.report.carried(directive);
        for (paths, prefix, url, is_whole) in found {
            let region = Region { comment: comment(directive), paths, when: when.clone() };
            let kind = match url.as_str() {
                "!" => EndKind::Pass,
                _ => {
                    let options = options(rest.get(1..).unwrap_or_default());
                    EndKind::Proxy(Pass { directive, prefix, url, options, is_whole })
                }
            };
            self.end(order, region, kind);
        }
    }

    /// Returns the paths of an expression, with the prefix that the URL replaces.
    fn by_expression(
        &mut self,
        directive: &'t Directive,
        pattern: &str,
        url: &str,
    ) -> Option<Vec<(Paths, String, String, bool)>> {
        let expression = match Expression::new(pattern, false) {
            Ok(expression) => expression,
            Err(what) => {
                self.context.report.lost(directive, format!("{what}: its paths are not passed on"));
                return None;
            }
        };
        if let Some(connect) = address(url, "fcgi://")
            && expression.matches("/x.php")
        {
            let extensions = vec!["php".to_owned()];
            self.context.report.carried(directive);
            self.php.push(Php {
                directive: Some(directive),
                within: None,
                connect: Some(connect),
                extensions,
            });
            return None;
        }
        let paths = simple(expression);
        let plain = url.trim_end_matches("$1").trim_end_matches("$0");
        Some(match (url.contains('$'), &paths) {
            (false, _) => vec![(paths, "/".into(), url.to_owned(), true)],
            (true, Paths::Pattern(before, _)) if !plain.contains('$') => {
                let before = before.clone();
                vec![(paths, before, plain.to_owned(), false)]
            }
            (true, Paths::All) if !plain.contains('$') => {
                vec![(paths, "/".into(), plain.to_owned(), false)]
            }
            (true, Paths::Regex(_))
                if url.ends_with("$1")
                    && pattern.starts_with("^(/")
                    && plain.matches('/').count() <= 3 =>
            {
                // The group is the whole path.
                vec![(paths, "/".into(), plain.to_owned(), true)]
            }
            _ => {
                self.context.report.lost(
                    directive,
                    "the URL depends on groups of the expression: its paths get 502",
                );
                let mut keys = Keys::default();
                keys.set("respond", respond(502));
                let region = Region { comment: comment(directive), paths, when: None };
                self.end(OF_PROXY, region, EndKind::Fixed(keys));
                return None;
            }
        })
    }

    /// Sets the keys of a pass.
    pub(super) fn pass(
        &mut self,
        pass: &Pass<'t>,
        paths: &Paths,
        scope: &Scope<'t>,
        keys: &mut Keys,
    ) {
        for (scheme, kind) in [("fcgi://", "fastcgi"), ("scgi://", "scgi"), ("uwsgi://", "uwsgi")] {
            if let Some(connect) = address(&pass.url, scheme) {
                let mut script =
                    Value::table([("kind", Value::text(kind)), ("connect", Value::text(connect))]);
                self.script_settings(scope, &mut script);
                keys.set("script", script);
                return;
            }
        }
        let Some(upstreams) = self.upstreams(pass) else {
            self.context.report.lost(
                pass.directive,
                format!("{}: there is no such protocol; the response is 502", pass.url),
            );
            keys.set("respond", respond(502));
            return;
        };
        self.context.report.differs(
            pass.directive,
            "the upstream gets no `X-Forwarded-Server`, and a path in its normal form",
        );
        if pass.prefix.len() > 1 && pass.prefix.ends_with('/') {
            self.context.report.differs(
                pass.directive,
                "its path without the slash at its end is redirected to it",
            );
        }
        let is_unix = upstreams.members.iter().any(|(url, _)| url.starts_with("unix:"));
        let mut proxy = Value::Table(Vec::new());
        let prefix = pass.prefix.trim_end_matches('/').to_owned();
        let base = upstreams.members.first().map(|(url, _)| path_of(url)).unwrap_or_default();
        let base = base.trim_end_matches('/').to_owned();
        let is_same = pass.is_whole || prefix == base;
        let servers: Vec<Value> = upstreams
            .members
            .iter()
            .map(|(url, weight)| {
                let server = url.strip_suffix(path_of(url)).unwrap_or(url);
                let url = match is_same || is_unix || base.is_empty() {
                    true => server.to_owned(),
                    false => format!("{server}{base}/"),
                };
                match weight {
                    1 => Value::text(url),
                    weight => Value::table([
                        ("url", Value::text(url)),
                        ("weight", Value::Number(*weight)),
                    ]),
                }
            })
            .collect();
        proxy.set(
            "to",
            match &servers[..] {
                [Value::Text(only)] => Value::text(only),
                _ => Value::List(servers),
            },
        );
        if let Some(balance) = upstreams.balance {
            proxy.set("balance", Value::text(balance));
        }
        if !is_same && !prefix.is_empty() {
            proxy.set("strip", Value::text(prefix));
        }
        let _ = paths;
        self.proxy_settings(pass, scope, is_unix, &mut proxy);
        let short = match proxy.entries() {
            [(_, to)] => to.clone(),
            _ => proxy,
        };
        keys.set("proxy", short);
    }

    fn upstreams(&mut self, pass: &Pass<'t>) -> Option<Balancer> {
        if let Some(rest) = pass.url.strip_prefix("balancer://") {
            let (name, path) = rest.split_once('/').map_or((rest, ""), |(name, path)| (name, path));
            let known = self.context.balancers.get(name)?.clone();
            let member = |(url, weight): &(String, u64)| {
                let url = upstream(url)?;
                let path = path.trim_end_matches('/');
                let url = if path.is_empty() {
                    url
                } else {
                    format!("{}/{path}", url.trim_end_matches('/'))
                };
                Some((url, *weight))
            };
            let members = known.members.iter().map(member).collect::<Option<Vec<_>>>()?;
            return (!members.is_empty()).then_some(Balancer { members, ..known });
        }
        Some(Balancer { members: vec![(upstream(&pass.url)?, 1)], balance: None })
    }

    fn proxy_settings(
        &mut self,
        pass: &Pass<'t>,
        scope: &Scope<'t>,
        is_unix: bool,
        proxy: &mut Value,
    ) {
        if let Some(directive) = scope.get("ProxyPreserveHost") {
            self.context.report.carried(directive);
        }
        if !scope.is_on("ProxyPreserveHost") && !is_unix {
            proxy.set("host", Value::text("upstream"));
        }
        let reverse: Vec<_> = scope.all(&["ProxyPassReverse"]).collect();
        reverse.iter().for_each(|directive| self.context.report.carried(directive));
        if reverse.is_empty() && proxy.get("strip").is_some() {
            proxy.set("rewrite_location", Value::Switch(false));
        }
        for directive in scope.all(&["ProxyPassReverseCookiePath"]) {
            self.context
                .report
                .not_needed(directive, "paths of cookies get the prefix of the route back");
        }
        if scope.is_on("ProxyErrorOverride") {
            proxy.set("intercept_errors", Value::Switch(true));
        }
        scope
            .get("ProxyErrorOverride")
            .iter()
            .for_each(|directive| self.context.report.carried(directive));
        let fields = self.request_fields(scope);
        if !fields.entries().is_empty() {
            proxy.set("set_request_fields", fields);
        }
        let mut time = scope.get("ProxyTimeout").map(|directive| {
            self.context.report.carried(directive);
            directive.word(0).to_owned()
        });
        for (key, value) in &pass.options {
            match key.as_str() {
                "timeout" => time = Some(value.clone()),
                "connectiontimeout" => {
                    if let Ok(seconds) = value.parse::<u64>() {
                        proxy.set(
                            "connect_timeout",
                            Value::text(shown_time(seconds.clamp(1, 86_400) * 1000)),
                        );
                    }
                }
                "stickysession" | "lbmethod" => {
                    self.context
                        .report
                        .lost(pass.directive, format!("{key} has no counterpart at a pass"));
                }
                key if OF_CONNECTIONS.contains(&key) => {}
                key => {
                    self.context.report.lost(pass.directive, format!("{key} has no counterpart"));
                }
            }
        }
        if let Some(seconds) =
            time.and_then(|time| time.parse::<u64>().ok()).filter(|time| *time != 60 && *time > 0)
        {
            let time = shown_time(seconds.min(86_400 * 365) * 1000);
            proxy.set("first_byte_timeout", Value::text(time.clone()));
            proxy.set("idle_timeout", Value::text(time));
        }
        self.upstream_tls(scope, proxy);
    }

    fn upstream_tls(&mut self, scope: &Scope<'t>, proxy: &mut Value) {
        if let Some(directive) = scope.get("SSLProxyCACertificateFile") {
            self.context.report.carried(directive);
            proxy.set("authority", Value::text(self.context.in_root(directive.word(0))));
        }
        let is_https = proxy.get("to").is_some_and(|to| to.to_string().contains("\"https://"));
        let is_verified =
            scope.word("SSLProxyVerify").is_some_and(|word| word.eq_ignore_ascii_case("require"));
        if is_https && !is_verified {
            let at = scope.get("SSLProxyVerify").or(scope.get("SSLProxyEngine"));
            if let Some(at) = at {
                self.context.report.differs(at, "certificates of upstreams are always verified; `authority` names who signs them");
            }
        }
        for name in [
            "SSLProxyEngine",
            "SSLProxyVerify",
            "SSLProxyCheckPeerCN",
            "SSLProxyCheckPeerName",
            "SSLProxyCheckPeerExpire",
        ] {
            if let Some(directive) = scope.get(name) {
                self.context
                    .report
                    .not_needed(directive, "certificates of upstreams are always verified");
            }
        }
    }

    /// Returns the fields that `RequestHeader` sets or removes.
    pub(super) fn request_fields(&mut self, scope: &Scope<'t>) -> Value {
        let mut fields = Value::Table(Vec::new());
        for directive in scope.all(&["RequestHeader"]) {
            let (action, name) = (directive.word(0).to_ascii_lowercase(), directive.word(1));
            let name = name.trim_end_matches(':');
            let condition = directive.words.get(3).is_some_and(|word| word != "early");
            if condition {
                self.context
                    .report
                    .lost(directive, format!("the upstream gets no {name} under a condition"));
                continue;
            }
            match action.as_str() {
                "unset" => {
                    self.context.report.carried(directive);
                    if !name.eq_ignore_ascii_case("proxy") {
                        fields.set(name, Value::text(""));
                    }
                }
                "set" | "add" | "append" | "setifempty" | "merge" => {
                    match request_value(directive.word(2)) {
                        Some(value) => {
                            self.context.report.carried(directive);
                            if action != "set" {
                                self.context
                                    .report
                                    .differs(directive, "it replaces what the client sends");
                            }
                            fields.set(name, Value::text(value));
                        }
                        None => self.context.report.lost(
                            directive,
                            format!("the upstream gets no {name}: its value has no counterpart"),
                        ),
                    }
                }
                _ => self
                    .context
                    .report
                    .lost(directive, format!("{action}: values of {name} are not changed")),
            }
        }
        fields
    }
}

/// Returns a value with the placeholders of `set_request_fields`.
fn request_value(text: &str) -> Option<String> {
    Some(match text {
        "%{REQUEST_SCHEME}s" | "%{REQUEST_SCHEME}e" => "{scheme}".into(),
        "%{HTTP_HOST}s" | "%{HTTP_HOST}e" => "{host}".into(),
        "%{REMOTE_ADDR}s" | "%{REMOTE_ADDR}e" | "expr=%{REMOTE_ADDR}" => "{client}".into(),
        "%{REMOTE_USER}s" | "%{REMOTE_USER}e" | "expr=%{REMOTE_USER}" => "{user}".into(),
        "expr=%{REQUEST_SCHEME}" => "{scheme}".into(),
        "expr=%{HTTP_HOST}" => "{host}".into(),
        text if text.contains("%{") || text.starts_with("expr=") || text.contains(['{', '}']) => {
            return None;
        }
        text => text.replace("%%", "%"),
    })
}

/// Returns the URL of an upstream; `None` for another protocol.
fn upstream(url: &str) -> Option<String> {
    if let Some((socket, rest)) = url.split_once('|') {
        return (socket.starts_with("unix:") && rest.starts_with("http"))
            .then(|| socket.to_owned());
    }
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "http" | "ws" => "http",
        "https" | "wss" => "https",
        "h2c" => "h2c",
        "h2" => "h2",
        _ => return None,
    };
    Some(format!("{scheme}://{rest}"))
}

/// Returns the path of a URL.
fn path_of(url: &str) -> &str {
    let Some(at) = url.find("://") else { return "" };
    url[at + 3..].find('/').map_or("", |slash| &url[at + 3 + slash..])
}

fn options(words: &[String]) -> Vec<(String, String)> {
    words
        .iter()
        .map(|word| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key.to_ascii_lowercase(), value.to_owned())
        })
        .collect()
}

fn of_path(path: &str) -> Vec<Paths> {
    match path {
        "/" => vec![Paths::All],
        path if path.ends_with('/') => vec![Paths::beneath(path)],
        path => vec![Paths::Exact(path.to_owned()), Paths::beneath(&format!("{path}/"))],
    }
}

fn text(paths: &Paths) -> Option<String> {
    match paths {
        Paths::All => Some("/".into()),
        Paths::Exact(path) => Some(path.clone()),
        Paths::Pattern(before, behind) if behind.is_empty() => Some(before.clone()),
        _ => None,
    }
}
