//! `fastcgi_pass`, `uwsgi_pass` and `scgi_pass`.

use super::assemble::Paths;
use super::flow::Rest;
use super::parse::Directive;
use super::scope::Scope;
use super::server::Builder;
use super::units::{shown_time, time};
use super::upstream::group;
use super::variables::{Constants, Place, constant, template, with_constants};
use crate::keys::Keys;
use crate::value::Value;

/// Variables that scripts get by themselves, as CGI or uWSGI have them.
const STANDARD: [&str; 24] = [
    "QUERY_STRING",
    "REQUEST_METHOD",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
    "SCRIPT_NAME",
    "REQUEST_URI",
    "DOCUMENT_URI",
    "DOCUMENT_ROOT",
    "SERVER_PROTOCOL",
    "REQUEST_SCHEME",
    "HTTPS",
    "GATEWAY_INTERFACE",
    "SERVER_SOFTWARE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "SERVER_ADDR",
    "SERVER_PORT",
    "SERVER_NAME",
    "REDIRECT_STATUS",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "AUTH_TYPE",
    "SCGI",
];

/// Values of `SCRIPT_FILENAME` that name the file of the path.
const FILES: [&str; 8] = [
    "$document_root$fastcgi_script_name",
    "$document_root/$fastcgi_script_name",
    "$request_filename",
    "$realpath_root$fastcgi_script_name",
    "$realpath_root/$fastcgi_script_name",
    "$document_root$uri",
    "$document_root$document_uri",
    "$document_root$fastcgi_script_name$fastcgi_path_info",
];

/// The root before a variable with a name of the script.
const ROOTS: [&str; 4] =
    ["$document_root$", "$document_root/$", "$realpath_root$", "$realpath_root/$"];

impl<'t> Builder<'_, 't> {
    pub(super) fn script(
        &mut self,
        pass: &'t Directive,
        kind: &str,
        scope: &Scope<'t>,
        (paths, rest): (&Paths, &Rest<'t>),
        keys: &mut Keys,
    ) {
        let constants = self.constants(scope);
        let address = with_constants(pass.word(0), &constants);
        let Ok(address) = constant(&address, &constants) else {
            self.lost_variable(
                pass,
                pass.word(0),
                "the application depends on the request; the response is 502",
            );
            keys.set("respond", Value::table([("status", Value::Number(502))]));
            return;
        };
        let what = "X-Forwarded-For and its relatives of clients are not passed on";
        self.context.report.differs(pass, what);
        let address = match address.strip_prefix("unix:") {
            Some(path) if path.starts_with("//") => format!("unix:{}", &path[2..]),
            Some(path) if !path.starts_with('/') => {
                let what = format!(
                    "the socket is /{path}: nginx looks for it beneath the directory in which it was started, `/` for a service"
                );
                self.context.report.differs(pass, what);
                format!("unix:/{path}")
            }
            Some(_) => address,
            None => address.split_once("://").map_or(address.clone(), |(_, rest)| rest.to_owned()),
        };
        let group = group(&address, self.context);
        if !group.backups.is_empty() {
            let what = "servers with `backup` are not used: requests get 502 while the others fail";
            self.context.report.lost(pass, what);
        }
        let connect: Vec<String> =
            group.servers.iter().map(|(server, _)| connect(server, kind)).collect();
        let mut script =
            Value::table([("kind", Value::text(kind)), ("connect", Value::one_or_many(connect))]);
        script.set("authorization", Value::Switch(true));
        let file = self.variables(kind, scope, paths, &mut script);
        if file && let Some(root) = self.root(scope) {
            self.context.report.differs(pass, "the source of a script is never sent, one that does not exist gets 404 from here, and what follows a script in the path is PATH_INFO");
            script.set("root", Value::text(root.clone()));
            keys.set("root", Value::text(root));
            self.extensions(paths, &mut script);
        }
        self.script_times(kind, scope, &mut script);
        self.script_switches(kind, scope, keys, &mut script);
        self.upstream_fields(kind, scope, keys);
        keys.set("script", script);
        self.scripts_in_turn(scope, rest, file, keys);
    }

    /// `try_files` before a script, and what takes the place of a script that does not exist.
    fn scripts_in_turn(
        &mut self,
        scope: &Scope<'t>,
        rest: &Rest<'t>,
        is_file: bool,
        keys: &mut Keys,
    ) {
        let tries = scope.own_directive("try_files");
        if let Some(fallback) = rest.fallback.as_ref().filter(|_| is_file) {
            tries.iter().for_each(|tries| self.context.report.carried(tries));
            return keys.set("try", Value::list(["{path}", fallback]));
        }
        let Some(tries) = tries else { return };
        let none = Constants::new();
        let step = |word: &String| match word.as_str() {
            "$uri" | "$fastcgi_script_name" | "$document_uri" => Some("{path}".to_owned()),
            "$uri/" => Some("{path}/".to_owned()),
            word if word.starts_with(['/', '=']) => {
                template(word, Place::Path, &none, &none, |_| false).ok()
            }
            _ => None,
        };
        let steps: Option<Vec<String>> = tries.words.iter().map(step).collect();
        match steps.filter(|_| is_file) {
            Some(steps) if steps == ["{path}", "=404"] => {
                self.context.report.not_needed(tries, "a script that does not exist gets 404");
            }
            Some(steps) => {
                self.context.report.carried(tries);
                keys.set("try", Value::list(steps));
            }
            None => self
                .context
                .report
                .differs(tries, "the application gets every request of the location"),
        }
    }

    /// Sets the variables that are not standard. Returns `true` if the path names the script.
    fn variables(
        &mut self,
        kind: &str,
        scope: &Scope<'t>,
        paths: &Paths,
        script: &mut Value,
    ) -> bool {
        let constants = self.constants(scope);
        let mut env = Value::Table(Vec::new());
        let mut is_file = false;
        let name = format!("{kind}_param");
        for directive in scope.all(&[&name]) {
            let (name, value) = (directive.word(0), directive.word(1));
            if name == "SCRIPT_FILENAME" {
                is_file |= self.script_file(directive, value, scope, &mut env);
                continue;
            }
            if name == "SERVER_NAME" {
                self.context.report.differs(directive, "the name is the host of the request");
                continue;
            }
            if name == "REMOTE_USER" && value == "$remote_user" {
                let what = "only users whom the server has authenticated have a name";
                self.context.report.differs(directive, what);
                continue;
            }
            let is_other_https =
                name == "HTTPS" && !matches!(value, "$https" | "$https if_not_empty");
            if is_other_https && value.contains('$') {
                let what = "HTTPS is `on` for requests by TLS, whatever the variable is";
                self.context.report.differs(directive, what);
                continue;
            }
            if name == "DOCUMENT_ROOT"
                && scope.get("root").is_none()
                && !is_file
                && let Ok(root) = constant(value, &constants)
            {
                self.context.report.carried(directive);
                env.set(name, Value::text(root));
                continue;
            }
            if STANDARD.contains(&name) && value.contains('$')
                || name.starts_with("HTTP_")
                    && (value.is_empty() || matches!(value, "$host" | "$http_host"))
            {
                self.context.report.not_needed(directive, "scripts get it by themselves");
                continue;
            }
            if matches!(name, "GATEWAY_INTERFACE" | "REDIRECT_STATUS" | "SERVER_SOFTWARE") {
                self.context.report.not_needed(directive, "scripts get it by themselves");
                continue;
            }
            let field = name.trim_start_matches("HTTP_").replace('_', "-");
            let is_user = name == "REMOTE_USER" && self.copied(scope, value).is_some();
            if is_user || self.is_copied(scope, &field, value) && name.starts_with("HTTP_") {
                // `auth` copies it.
                self.context.report.carried(directive);
                continue;
            }
            if value.strip_prefix("$http_")
                == name.strip_prefix("HTTP_").map(str::to_ascii_lowercase).as_deref()
                && name.starts_with("HTTP_")
            {
                self.context.report.not_needed(directive, "scripts get the fields of the client");
                continue;
            }
            let text = constant(value, &constants)
                .or_else(|name| self.context.choices_template(value, &constants).ok_or(name))
                .or_else(|name| self.of_request(value, &constants).ok_or(name));
            match text {
                Ok(_) if value.contains("$proxy_add_x_forwarded_for") => {
                    let what = "the variable has the address of the client alone: proxies before this one are `trusted_proxies`";
                    self.context.report.differs(directive, what);
                    env.set(name, Value::text("{client}"));
                }
                Ok(value) => {
                    self.context.report.carried(directive);
                    env.set(name, Value::text(value));
                }
                Err(variable) => {
                    let what = format!("scripts get no {name}: {variable} depends on the request");
                    self.context.report.lost(directive, what);
                }
            }
        }
        for name in ["split_path_info", "index"] {
            if let Some(directive) = scope.get(&format!("{kind}_{name}")) {
                self.context.report.not_needed(
                    directive,
                    "the first file on the path is the script, and the rest is PATH_INFO",
                );
            }
        }
        let names = scope.all(&[&name]);
        if let Some(directive) =
            names.iter().find(|param| param.word(0) == "SCRIPT_NAME" && !is_file)
        {
            let what = "an application gets the path as PATH_INFO, and an empty SCRIPT_NAME";
            self.context.report.differs(directive, what);
        }
        let _ = paths;
        if !env.entries().is_empty() {
            script.set("env", env);
        }
        is_file
    }

    /// Returns the value of a variable that follows from the request; `None` if there is no placeholder for it.
    fn of_request(&mut self, value: &str, constants: &Constants) -> Option<String> {
        let known = |name: &str| match name {
            "proxy_add_x_forwarded_for" => Some("{client}".to_owned()),
            "http_host" => Some("{header.Host}".to_owned()),
            _ => None,
        };
        // A map would choose between routes, and its values would have to be fixed.
        let template = self.context.template(value, constants, known).ok()?;
        (!template.contains("{map.")).then_some(template)
    }

    /// Returns `true` if the variable names the file of the path.
    fn script_file(
        &mut self,
        directive: &'t Directive,
        value: &str,
        scope: &Scope<'t>,
        env: &mut Value,
    ) -> bool {
        let constants = self.constants(scope);
        if FILES.contains(&value) {
            self.context.report.carried(directive);
            return true;
        }
        match constant(value, &constants) {
            Ok(file) => {
                self.context.report.carried(directive);
                env.set("SCRIPT_FILENAME", Value::text(file));
                false
            }
            // A part of the path, or the path without what follows the script.
            Err(_) if ROOTS.iter().any(|root| value.starts_with(root)) => {
                let what = "the script is the first file on the path";
                self.context.report.differs(directive, what);
                true
            }
            // A root of its own, before the name of the script.
            Err(_) if value.ends_with("$fastcgi_script_name") && !value.starts_with('$') => {
                self.context
                    .report
                    .differs(directive, "scripts are beneath the root of the location");
                true
            }
            Err(name) => {
                self.lost_variable(directive, &name, "the script is the file of the path");
                true
            }
        }
    }

    /// Sets the extensions of scripts where the expression of the location names others than PHP's.
    fn extensions(&mut self, paths: &Paths, script: &mut Value) {
        let Paths::Regex(regex) = paths else { return };
        let known = [
            "php", "phtml", "php3", "php4", "php5", "php7", "php8", "phar", "inc", "pl", "cgi",
            "py", "fcgi",
        ];
        let named: Vec<&str> =
            known.into_iter().filter(|name| regex.matches(&format!("/x.{name}"))).collect();
        if !named.is_empty() && named != ["php"] && named.len() < known.len() {
            script.set("extensions", Value::list(named));
        }
    }

    fn script_times(&mut self, kind: &str, scope: &Scope<'t>, script: &mut Value) {
        let names = [
            ("connect_timeout", "connect_timeout"),
            ("read_timeout", "idle_timeout"),
            ("send_timeout", "idle_timeout"),
        ];
        for (name, key) in names {
            let Some(directive) = scope.get(&format!("{kind}_{name}")) else { continue };
            match time(directive.word(0)).filter(|time| *time > 0) {
                Some(time) if name == "send_timeout" && script.get(key).is_some() => {
                    let _ = time;
                    self.context.report.differs(directive, "`idle_timeout` is for both directions");
                }
                Some(time) => {
                    self.context.report.carried(directive);
                    let shown = shown_time(time);
                    if !matches!(
                        (key, shown.as_str()),
                        ("idle_timeout", "1m" | "60s") | ("connect_timeout", "5s")
                    ) {
                        script.set(key, Value::text(shown));
                    }
                }
                None => self.context.report.lost(directive, "the default time holds"),
            }
        }
    }

    fn script_switches(
        &mut self,
        kind: &str,
        scope: &Scope<'t>,
        keys: &mut Keys,
        script: &mut Value,
    ) {
        for name in [
            "keep_conn",
            "intercept_errors",
            "request_buffering",
            "buffering",
            "pass_request_body",
            "pass_request_headers",
            "catch_stderr",
            "next_upstream",
            "next_upstream_tries",
            "next_upstream_timeout",
            "limit_rate",
            "bind",
            "modifier1",
            "modifier2",
            "string",
            "ignore_headers",
        ] {
            let Some(directive) = scope.get(&format!("{kind}_{name}")) else { continue };
            let is_on = directive.word(0) == "on";
            match name {
                "keep_conn" => {
                    self.context.report.carried(directive);
                    if is_on {
                        script.set("keep_alive", Value::Switch(true));
                    }
                }
                "intercept_errors" if is_on => {
                    self.context.report.carried(directive);
                    script.set("intercept_errors", Value::Switch(true));
                }
                "request_buffering" if directive.word(0) == "off" => {
                    self.context.report.carried(directive);
                    keys.set("body", Value::text("stream"));
                }
                "buffering" => self.context.report.not_needed(directive, "responses are streamed"),
                "pass_request_body" | "pass_request_headers" if !is_on => {
                    self.context
                        .report
                        .lost(directive, "scripts get the fields and the body of the client");
                }
                "limit_rate" | "bind" | "modifier1" | "modifier2" | "string"
                    if !matches!(directive.word(0), "off" | "0") =>
                {
                    self.context.report.lost(directive, "it has no counterpart for scripts");
                }
                "ignore_headers" => self
                    .context
                    .report
                    .differs(directive, "headers of scripts take effect as they are sent"),
                "catch_stderr" => self
                    .context
                    .report
                    .lost(directive, "messages of scripts go to the log; they are no error"),
                "next_upstream" | "next_upstream_tries" | "next_upstream_timeout" => {
                    self.context.report.not_needed(
                        directive,
                        "another worker gets the request after a failure, once",
                    );
                }
                _ => self.context.report.carried(directive),
            }
        }
    }
}

/// Returns the address of a worker.
fn connect(server: &str, kind: &str) -> String {
    if let Some(path) = server.strip_prefix("unix:") {
        return format!("unix:{}", path.trim_end_matches(':'));
    }
    match server.contains(':') {
        true => server.replacen("localhost:", "127.0.0.1:", 1),
        false if kind == "fastcgi" => format!("{server}:9000"),
        false => format!("{server}:3031"),
    }
}
