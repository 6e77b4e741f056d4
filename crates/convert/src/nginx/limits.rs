//! Limits of requests, of concurrency and of bandwidth.

use super::parse::Directive;
use super::scope::Scope;
use super::server::Builder;
use super::units::{shown_size, size};
use crate::keys::Keys;
use crate::value::Value;

/// Returns the name of the zone that a directive defines.
pub(super) fn zone_name(directive: &Directive) -> String {
    let zone =
        directive.words.iter().find_map(|word| word.strip_prefix("zone=")).unwrap_or_default();
    zone.split(':').next().unwrap_or_default().to_owned()
}

impl<'t> Builder<'_, 't> {
    pub(super) fn limits(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut limits: Vec<Value> = Vec::new();
        for limit in scope.all(&["limit_req"]) {
            limits.extend(self.request_limit(limit, scope));
        }
        match limits.len() {
            0 => {}
            1 => limits.into_iter().for_each(|limit| keys.set("limit", limit)),
            _ => keys.set("limit", Value::List(limits)),
        }
        self.throttle(scope, keys);
    }

    fn request_limit(&mut self, limit: &'t Directive, scope: &Scope<'t>) -> Option<Value> {
        let name =
            limit.words.iter().find_map(|word| word.strip_prefix("zone=")).unwrap_or_default();
        let Some(zone) = self.context.request_zones.get(name).copied() else {
            self.context
                .report
                .lost(limit, format!("there is no zone {name}: requests are not limited"));
            return None;
        };
        let rate = zone.words.iter().find_map(|word| word.strip_prefix("rate="))?;
        let (number, unit) = rate.split_once("r/")?;
        let Some(by) = self.group(zone, zone.word(0)) else {
            self.context.report.lost(
                limit,
                "its zone counts by a value that limits do not know: requests are not limited",
            );
            return None;
        };
        let burst: u64 = limit
            .words
            .iter()
            .find_map(|word| word.strip_prefix("burst=")?.parse().ok())
            .unwrap_or(0);
        let mut value = Value::table([
            ("requests", Value::text(format!("{number}/{unit}"))),
            ("burst", Value::Number(burst + 1)),
        ]);
        if by != "address" {
            value.set("by", Value::text(by));
        }
        if scope.is_on("limit_req_dry_run") {
            value.set("dry_run", Value::Switch(true));
        }
        self.context.report.carried(zone);
        let is_delayed = burst > 0 && !limit.words.iter().any(|word| word == "nodelay");
        match is_delayed {
            false => self.context.report.carried(limit),
            true => {
                let what = "requests within the burst are served at once";
                self.context.report.differs(limit, what);
            }
        }
        let status = self.status_of_rejected("limit_req_status", scope);
        if status != 429 {
            value.set("status", Value::Number(status));
        }
        if let Some(directive) = scope.get("limit_req_dry_run") {
            self.context.report.carried(directive);
        }
        Some(value)
    }

    /// Returns the status of requests beyond a limit.
    fn status_of_rejected(&mut self, name: &str, scope: &Scope<'t>) -> u64 {
        let Some(directive) = scope.get(name) else { return 503 };
        self.context.report.carried(directive);
        directive.word(0).parse().unwrap_or(503)
    }

    /// Returns the groups in which a zone counts.
    fn group(&mut self, zone: &Directive, key: &str) -> Option<String> {
        match key {
            "$binary_remote_addr" | "$remote_addr" => Some("address".to_owned()),
            "$http_x_forwarded_for" => {
                let what = "requests count by the address of the client: proxies before this one are `trusted_proxies`";
                self.context.report.differs(zone, what);
                Some("address".to_owned())
            }
            "$server_name" | "$host" => {
                self.context.report.differs(zone, "all requests of a route count together");
                Some("route".to_owned())
            }
            "$remote_user" => Some("user".to_owned()),
            key => {
                let name = key.strip_prefix("$http_")?;
                Some(format!("header:{}", super::condition::field_name(name)))
            }
        }
    }

    fn throttle(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut throttle = Value::Table(Vec::new());
        for limit in scope.all(&["limit_conn"]) {
            let (name, number) = (limit.word(0), limit.word(1).parse::<u64>().unwrap_or(0));
            let Some(zone) = self.context.connection_zones.get(name).copied() else {
                self.context
                    .report
                    .lost(limit, format!("there is no zone {name}: requests are not limited"));
                continue;
            };
            match zone.word(0) {
                "$binary_remote_addr" | "$remote_addr" => {
                    throttle.set("max_per_client", Value::Number(number));
                }
                "$server_name" | "$host" => throttle.set("max_concurrent", Value::Number(number)),
                key => {
                    self.context
                        .report
                        .lost(limit, format!("{key} counts no clients: requests are not limited"));
                    continue;
                }
            }
            self.context.report.carried(zone);
            self.context.report.differs(
                limit,
                "requests in progress count, and not those whose head is incomplete",
            );
        }
        if let Some(rate) = scope.get("limit_rate") {
            match size(rate.word(0)) {
                Some(0) => self.context.report.carried(rate),
                Some(bytes) => {
                    self.context.report.carried(rate);
                    throttle.set("per_connection", Value::text(format!("{}/s", shown_size(bytes))));
                }
                None => self
                    .context
                    .report
                    .lost(rate, "the rate depends on the request: it is not limited"),
            }
        }
        if let Some(after) = scope.get("limit_rate_after") {
            self.context.report.lost(after, "the rate is limited from the first byte on");
        }
        let is_limited = throttle.entries().iter().any(|(key, _)| key.starts_with("max_"));
        let status = self.status_of_rejected("limit_conn_status", scope);
        if is_limited && status != 503 {
            throttle.set("status", Value::Number(status));
        }
        if let Some(directive) = scope.get("limit_conn_dry_run") {
            self.context.report.carried(directive);
            if is_limited && directive.word(0) == "on" {
                throttle.set("dry_run", Value::Switch(true));
            }
        }
        if !throttle.entries().is_empty() {
            let per_client = throttle.get("max_per_client").is_some();
            if per_client && throttle.get("max_concurrent").is_none() {
                // A bound for all clients is needed beside that of one.
                throttle.set("max_concurrent", Value::Number(65_536));
            }
            if throttle.get("max_concurrent").is_some() {
                throttle.set("queue", Value::Number(0));
            }
            keys.set("throttle", throttle);
        }
    }
}
