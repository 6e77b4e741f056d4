//! `proxy_pass` and `grpc_pass`.

use super::assemble::Paths;
use super::flow::Rest;
use super::parse::Directive;
use super::proxy_target::Target;
use super::scope::Scope;
use super::server::Builder;
use super::units::{shown_size, shown_time, size, time};
use super::upstream::{Group, group, url};
use super::variables::{Constants, constant, with_constants};
use crate::keys::Keys;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    pub(super) fn proxy(
        &mut self,
        pass: &'t Directive,
        kind: &str,
        scope: &Scope<'t>,
        paths: &Paths,
        rest: &Rest<'t>,
        keys: &mut Keys,
    ) {
        let replaced = self.replaced(pass, scope, paths);
        let own = Rest { replaced: replaced.clone(), ..rest.clone() };
        let rest = if replaced.is_some() { &own } else { rest };
        let Some(target) = self.target_of(pass, replaced.is_some(), scope) else {
            keys.set("respond", Value::table([("status", Value::Number(502))]));
            return;
        };
        let what = "X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host state the client of this connection: those of clients are not passed on";
        self.context.report.differs(pass, what);
        let group = group(&target.host, self.context);
        let mut proxy = Value::Table(Vec::new());
        let is_unix = group.servers.iter().any(|(server, _)| server.starts_with("unix:"));
        let base = self.path(pass, &target, paths, rest, (scope, is_unix), &mut proxy);
        let target = Target { scheme: self.scheme(kind, scope, &target), ..target };
        let is_whole = matches!(paths, Paths::Exact(_));
        to(&target, &group, &base, is_whole, &mut proxy);
        self.request_fields(kind, scope, &target, &group, &mut proxy);
        self.times(kind, scope, &mut proxy);
        self.responses(kind, scope, &mut proxy);
        self.requests(kind, scope, &mut proxy);
        self.secure(kind, scope, &target, &mut proxy);
        self.retries(kind, scope, &mut proxy);
        self.references(pass, kind, scope, paths, &mut proxy);
        self.upstream_fields(kind, scope, keys);
        let passed = scope.all(&[&format!("{kind}_pass_header")]);
        if passed.iter().any(|name| name.word(0).eq_ignore_ascii_case("server")) {
            proxy.set("pass_server_field", Value::Switch(true));
        }
        if keys.get("auth").is_some_and(|auth| auth.get("basic").is_some()) {
            proxy.set("authorization", Value::Switch(true));
        }
        keys.set("proxy", shortened(proxy));
        if rest.fallback.as_deref() == Some("=proxy") {
            self.files_first(scope, paths, keys);
        } else if let Some(tries) = scope.own_directive("try_files") {
            self.tries_before(tries, scope, paths, keys);
        }
    }

    /// Sends files that exist before the upstream gets the request.
    fn files_first(&mut self, scope: &Scope<'t>, paths: &Paths, keys: &mut Keys) {
        let _ = paths;
        let Some(root) = self.root(scope) else { return };
        keys.set("root", Value::text(root));
        keys.set("try", Value::list(["{path}", "=proxy"]));
    }

    /// `try_files` in a location with a pass: a file that exists leads to the same pass.
    fn tries_before(
        &mut self,
        tries: &'t Directive,
        scope: &Scope<'t>,
        paths: &Paths,
        keys: &mut Keys,
    ) {
        let _ = (scope, paths, keys);
        self.context.report.differs(
            tries,
            "the upstream gets every request of the location, whether there is a file or not",
        );
    }

    fn request_fields(
        &mut self,
        kind: &str,
        scope: &Scope<'t>,
        target: &Target,
        group: &Group,
        proxy: &mut Value,
    ) {
        let name = format!("{kind}_set_header");
        let all = scope.all(&[&name, "more_set_input_headers"]);
        let mut fields = Value::Table(Vec::new());
        let mut host = Some("upstream".to_owned());
        for directive in all {
            let (field, value) = (directive.word(0), directive.word(1));
            if field.eq_ignore_ascii_case("host") {
                host = self.host(directive, value, scope);
                continue;
            }
            if fields.entries().iter().any(|(other, _)| other.eq_ignore_ascii_case(field)) {
                let what = "a field is sent once: upstreams get the last value alone";
                self.context.report.differs(directive, what);
            }
            self.request_field(directive, field, value, scope, &mut fields);
        }
        let is_unix = group.servers.iter().any(|(server, _)| server.starts_with("unix:"));
        match host.as_deref() {
            // The default of nginx is the host of the URL: the name of its upstreams.
            Some("upstream") if group.is_named => proxy.set("host", Value::text(&target.host)),
            Some("upstream") if is_unix => proxy.set("host", Value::text("localhost")),
            Some(host) => proxy.set("host", Value::text(host)),
            None => {}
        }
        if !fields.entries().is_empty() {
            proxy.set("set_request_fields", fields);
        }
        self.request_of_own(kind, scope, proxy);
    }

    /// Returns the host that the upstream gets: `upstream`, another one, or that of the client.
    fn host(&mut self, directive: &'t Directive, value: &str, scope: &Scope<'t>) -> Option<String> {
        self.context.report.carried(directive);
        match value {
            "$http_host" => return None,
            "$proxy_host" | "" => return Some("upstream".to_owned()),
            _ => {}
        }
        let plain = value.replace('\\', "");
        if plain != value {
            let what = "no host has a backslash: the upstream gets the value without it";
            self.context.report.differs(directive, what);
        }
        let value = &*plain;
        if value == "$http_host" {
            return None;
        }
        let host = with_constants(value, &self.constants(scope));
        let template = self.request_template(&host);
        let is_chosen = |text: &String| {
            text.contains("{header.") || text.contains("{cookie.") || text.contains("{query")
        };
        if template.as_ref().is_none_or(is_chosen) {
            self.context
                .report
                .lost(directive, format!("{value}: the upstream gets the host of the client"));
            return None;
        }
        template
    }

    fn request_field(
        &mut self,
        directive: &'t Directive,
        field: &str,
        value: &str,
        scope: &Scope<'t>,
        fields: &mut Value,
    ) {
        let lower = field.to_ascii_lowercase();
        let by_itself = "upstreams get this field by themselves, without a setting";
        match (lower.as_str(), value) {
            ("upgrade" | "connection", value) if value != "close" => {
                self.context.report.not_needed(
                    directive,
                    "connections are kept, and WebSockets are forwarded, without a setting",
                );
                if let Some(map) = self.context.maps.get(value.trim_start_matches('$')).copied() {
                    self.context
                        .report
                        .not_needed(map, "WebSockets are forwarded without a setting");
                }
            }
            ("connection", _) => {
                self.context.report.not_needed(directive, "connections to upstreams are kept open");
            }
            ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr") => {
                self.context.report.differs(directive, "the field has the address of the client alone, also if the client sends one: proxies before this one are `trusted_proxies`");
            }
            (
                "x-forwarded-proto",
                "$scheme" | "$http_x_forwarded_proto" | "$proxy_x_forwarded_proto",
            ) => {
                self.context.report.not_needed(directive, by_itself);
            }
            (
                "x-forwarded-host",
                "$host" | "$http_host" | "$host:$server_port" | "$server_name",
            ) => {
                self.context.report.not_needed(directive, by_itself);
            }
            ("x-forwarded-proto" | "x-forwarded-host" | "x-forwarded-for", value)
                if !value.contains('$') =>
            {
                self.context.report.carried(directive);
                fields.set(field, Value::text(value));
            }
            ("accept-encoding", "$http_accept_encoding") | ("user-agent", "$http_user_agent") => {
                self.context.report.not_needed(directive, "fields of the client are passed on");
            }
            (
                "content-length" | "transfer-encoding" | "te" | "expect" | "keep-alive"
                | "proxy-connection" | "trailer",
                _,
            ) => {
                self.context
                    .report
                    .differs(directive, "the field follows from the message that is sent");
            }
            (lower, value) if value.strip_prefix("$http_") == Some(&lower.replace('-', "_")) => {
                self.context.report.not_needed(directive, "fields of the client are passed on");
            }
            _ => {
                let constants = self.constants(scope);
                match constant(value, &constants) {
                    Ok(value) => {
                        self.context.report.carried(directive);
                        fields.set(field, Value::text(value));
                    }
                    Err(name) => self.placeholder(directive, (field, value), &name, scope, fields),
                }
            }
        }
    }

    /// A field with variables of the request.
    fn placeholder(
        &mut self,
        directive: &'t Directive,
        (field, value): (&str, &str),
        name: &str,
        scope: &Scope<'t>,
        fields: &mut Value,
    ) {
        if self.is_copied(scope, field, value) {
            // `copy_to_request` of `auth` has it.
            return self.context.report.carried(directive);
        }
        if self.copied(scope, value).is_some_and(|user| self.user_field(scope) == Some(user)) {
            self.context.report.carried(directive);
            return fields.set(field, Value::text("{user}"));
        }
        let constants = self.constants(scope);
        if let Ok(template) = self.context.template(value, &constants, request_value) {
            self.context.report.carried(directive);
            return fields.set(field, Value::text(template));
        }
        let what = format!("the upstream gets no {field}: {name} has no placeholder");
        self.context.report.lost(directive, what);
    }

    /// Returns the template of a request field; `None` if a variable has no placeholder.
    fn request_template(&mut self, value: &str) -> Option<String> {
        self.context.template(value, &Constants::new(), request_value).ok()
    }

    fn times(&mut self, kind: &str, scope: &Scope<'t>, proxy: &mut Value) {
        if let Some(directive) = scope.get(&format!("{kind}_connect_timeout")) {
            self.duration(directive, "connect_timeout", proxy);
        } else {
            proxy.set("connect_timeout", Value::text("60s"));
        }
        if let Some(directive) = scope.get(&format!("{kind}_read_timeout")) {
            self.duration(directive, "first_byte_timeout", proxy);
            self.duration(directive, "idle_timeout", proxy);
            self.duration(directive, "tunnel_timeout", proxy);
        }
        if let Some(directive) = scope.get(&format!("{kind}_send_timeout")) {
            let same =
                scope.word(&format!("{kind}_read_timeout")).unwrap_or("60s") == directive.word(0);
            match same || proxy.get("idle_timeout").is_none() {
                true if proxy.get("idle_timeout").is_none() => {
                    self.duration(directive, "idle_timeout", proxy);
                }
                true => self.context.report.carried(directive),
                false => {
                    self.context.report.differs(directive, "`idle_timeout` is for both directions");
                }
            }
        }
        // The defaults.
        let is_default =
            |key: &str, time: &str, proxy: &Value| proxy.get(key) == Some(&Value::text(time));
        for (key, time) in [
            ("first_byte_timeout", "60s"),
            ("first_byte_timeout", "1m"),
            ("idle_timeout", "60s"),
            ("idle_timeout", "1m"),
            ("tunnel_timeout", "1h"),
        ] {
            if is_default(key, time, proxy) {
                remove(proxy, key);
            }
        }
        if is_default("connect_timeout", "5s", proxy)
            || scope.get(&format!("{kind}_connect_timeout")).is_none()
        {
            remove(proxy, "connect_timeout");
        }
    }

    fn duration(&mut self, directive: &'t Directive, key: &str, proxy: &mut Value) {
        match time(directive.word(0)).filter(|time| *time > 0) {
            Some(time) => {
                self.context.report.carried(directive);
                proxy.set(key, Value::text(shown_time(time)));
            }
            None => self
                .context
                .report
                .lost(directive, format!("{}: the default time holds", directive.word(0))),
        }
    }

    fn responses(&mut self, kind: &str, scope: &Scope<'t>, proxy: &mut Value) {
        if let Some(directive) = scope.get(&format!("{kind}_intercept_errors")) {
            self.context.report.carried(directive);
            if directive.word(0) == "on" {
                proxy.set("intercept_errors", Value::Switch(true));
            }
        }
        if let Some(directive) = scope.get(&format!("{kind}_buffering")) {
            match directive.word(0) {
                "off" => self.context.report.carried(directive),
                _ => self.context.report.not_needed(
                    directive,
                    "responses are streamed; `buffer` of `proxy` collects them",
                ),
            }
        }
        for name in ["headers_hash_max_size", "limit_rate", "bind", "ssl_password_file", "store"] {
            let Some(directive) = scope.get(&format!("{kind}_{name}")) else { continue };
            match (name, directive.word(0)) {
                (_, "off" | "0") => self.context.report.carried(directive),
                ("limit_rate", _) => self
                    .context
                    .report
                    .lost(directive, "responses are received as fast as the client takes them"),
                ("bind", _) => self.context.report.lost(
                    directive,
                    "the system chooses the address from which upstreams are connected to",
                ),
                ("store", _) => self
                    .context
                    .report
                    .lost(directive, "responses are not stored as files of the site"),
                _ => {}
            }
        }
        if let Some(directive) = scope.get(&format!("{kind}_ignore_headers")) {
            let ignored = &directive.words;
            match ignored.iter().all(|name| name.to_ascii_lowercase().starts_with("x-accel")) {
                true => self.context.report.differs(
                    directive,
                    "X-Accel fields other than X-Accel-Redirect have no effect",
                ),
                false if scope.word(&format!("{kind}_cache")).is_none_or(|zone| zone == "off") => {
                    self.context.report.not_needed(directive, "nothing is cached here");
                }
                false => self.context.report.lost(
                    directive,
                    "`Cache-Control`, `Expires`, `Vary` and `Set-Cookie` decide what is cached",
                ),
            }
        }
    }

    /// Returns the scheme of the upstreams, as `to` has it.
    fn scheme(&mut self, kind: &str, scope: &Scope<'t>, target: &Target) -> String {
        let version = scope.get(&format!("{kind}_http_version"));
        let is_http2 = version.is_some_and(|version| version.word(0) == "2");
        let scheme = match (target.scheme.as_str(), is_http2) {
            ("grpc", _) | ("http", true) => "h2c",
            ("grpcs", _) | ("https", true) => "h2",
            ("https", false) => "https",
            _ => "http",
        };
        if let Some(version) = version {
            match version.word(0) {
                "2" => self.context.report.carried(version),
                "1.0" => {
                    self.context.report.differs(version, "upstreams are called by HTTP/1.1");
                }
                _ => self.context.report.not_needed(
                    version,
                    "upstreams are called by HTTP/1.1, with connections that stay open",
                ),
            }
        }
        scheme.to_owned()
    }

    fn requests(&mut self, kind: &str, scope: &Scope<'t>, proxy: &mut Value) {
        if let Some(directive) = scope.get(&format!("{kind}_request_buffering")) {
            match directive.word(0) {
                "off" => {
                    self.context.report.carried(directive);
                    proxy.set("buffer", Value::table([("request", Value::text("0"))]));
                }
                _ => self.context.report.not_needed(
                    directive,
                    "bodies are streamed; `buffer` of `proxy` collects them",
                ),
            }
        }
        if let Some(directive) = scope.get("client_body_buffer_size") {
            let _ = size(directive.word(0)).map(shown_size);
            self.context.report.not_needed(directive, "bodies are streamed");
        }
    }

    fn secure(&mut self, kind: &str, scope: &Scope<'t>, target: &Target, proxy: &mut Value) {
        let is_secure = matches!(target.scheme.as_str(), "https" | "h2");
        let name = |key: &str| format!("{kind}_ssl_{key}");
        let is_verified = scope.is_on(&name("verify"));
        if let Some(directive) = scope.get(&name("verify")) {
            self.context.report.carried(directive);
        }
        if is_secure && !is_verified {
            // The default of nginx is not to verify.
            proxy.set("verify", Value::Switch(false));
            if let Some(pass) = scope.get("proxy_pass").or_else(|| scope.get("grpc_pass")) {
                self.context.report.differs(pass, "the certificate of the upstream is not verified, as with nginx: remove `verify = false` where it is valid for its host");
            }
        }
        if !is_secure {
            for key in
                ["trusted_certificate", "name", "server_name", "certificate", "certificate_key"]
            {
                if let Some(directive) = scope.get(&name(key)) {
                    self.context.report.not_needed(directive, "the upstream has no TLS");
                }
            }
            return;
        }
        if let Some(directive) = scope.get(&name("trusted_certificate")) {
            self.context.report.carried(directive);
            if is_verified {
                let file = self.context.in_folder(directive.word(0));
                proxy.set("authority", Value::text(file));
            }
        }
        if let Some(directive) = scope.get(&name("name")) {
            match directive.word(0).contains('$') {
                true => self
                    .context
                    .report
                    .differs(directive, "the certificate must be for the host of the URL"),
                false => {
                    self.context.report.carried(directive);
                    proxy.set("server_name", Value::text(directive.word(0)));
                }
            }
        }
        if let Some(directive) = scope.get(&name("server_name")) {
            self.context.report.not_needed(directive, "the handshake names the host");
        }
        if let (Some(certificate), Some(key)) =
            (scope.get(&name("certificate")), scope.get(&name("certificate_key")))
        {
            self.client_certificate([certificate, key], proxy);
        }
    }
}

/// Sets the upstreams.
fn to(target: &Target, group: &Group, base: &str, is_whole: bool, proxy: &mut Value) {
    let scheme = &target.scheme;
    let slash = if base.is_empty() || is_whole || base.ends_with('/') { "" } else { "/" };
    let base = format!("{base}{slash}");
    let written = |(server, weight): &(String, u64), is_backup: bool| {
        let url = url(scheme, server);
        let url = if url.starts_with("unix:") { url } else { format!("{url}{base}") };
        let mut all = Value::table([("url", Value::text(url.clone()))]);
        if *weight != 1 {
            all.set("weight", Value::Number((*weight).clamp(1, 1000)));
        }
        if is_backup {
            all.set("backup", Value::Switch(true));
        }
        if all.entries().len() == 1 { Value::text(url) } else { all }
    };
    let mut servers: Vec<Value> = group
        .servers
        .iter()
        .map(|server| written(server, false))
        .chain(group.backups.iter().map(|server| written(server, true)))
        .collect();
    servers.dedup();
    let to = match &servers[..] {
        [Value::Text(only)] => Value::text(only),
        _ => Value::List(servers),
    };
    let mut all = Value::table([("to", to)]);
    if let Some(balance) = &group.balance {
        all.set("balance", Value::text(balance));
    }
    if let Some(eject) = &group.eject {
        all.set("eject", eject.clone());
    }
    for (key, value) in &group.more {
        all.set(key, value.clone());
    }
    if let Some(sticky) = &group.sticky {
        all.set("sticky", sticky.clone());
    }
    for (key, value) in proxy.entries() {
        all.set(key, value.clone());
    }
    *proxy = all;
}

/// Returns the short form of a table that has upstreams alone.
fn shortened(proxy: Value) -> Value {
    match proxy.entries() {
        [(key, to)] if key == "to" => to.clone(),
        _ => proxy,
    }
}

fn remove(table: &mut Value, key: &str) {
    if let Value::Table(entries) = table {
        entries.retain(|(name, _)| name != key);
    }
}

/// Returns the placeholder of a value that the proxy knows.
fn request_value(name: &str) -> Option<String> {
    let value = match name {
        "proxy_add_x_forwarded_for" => "{client}",
        "http_host" => "{header.Host}",
        "server_port" => "{port}",
        "remote_user" => "{user}",
        "ssl_early_data" => "{early}",
        "request_id" => "{request_id}",
        _ => return None,
    };
    Some(value.to_owned())
}
