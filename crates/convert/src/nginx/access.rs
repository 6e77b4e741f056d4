//! Access: networks, passwords, subrequests.

use std::path::Path;

use dunlin_config::Network;

use super::restriction::FOREIGN;
use super::scope::Scope;
use super::server::Builder;
use crate::keys::Keys;
use crate::value::Value;

/// The networks of all addresses.
const EVERYONE: [&str; 2] = ["0.0.0.0/0", "::/0"];

impl<'t> Builder<'_, 't> {
    pub(super) fn access(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        self.networks(scope, keys);
        let is_basic = self.password(scope, keys);
        self.subrequest(scope, is_basic, keys);
        match self.signed(scope) {
            Some(Ok(signed)) => keys.set("signed", signed),
            Some(Err(what)) => {
                if let Some(link) = scope.get("secure_link") {
                    self.context.report.lost(link, format!("every request gets 403: {what}"));
                }
                close(keys);
            }
            None => {}
        }
        for (name, what) in [
            ("auth_jwt", "every request gets 403 (needs jwt of auth)"),
            (
                "secure_link_secret",
                "every request gets 403: `signed` has the signature in the query",
            ),
        ] {
            if let Some(directive) = scope.get(name).filter(|directive| directive.word(0) != "off")
            {
                self.context.report.lost(directive, what);
                close(keys);
            }
        }
        for directive in scope.all(&FOREIGN).into_iter().filter(|foreign| foreign.word(0) != "off")
        {
            self.context.report.lost(directive, "it decides who may send requests: all get 403");
            close(keys);
        }
        if let Some(satisfy) = scope.get("satisfy") {
            match satisfy.word(0) {
                "any"
                    if keys.get("auth").is_some()
                        && (keys.get("allow").is_some() || keys.get("deny").is_some()) =>
                {
                    self.context.report.carried(satisfy);
                    any(keys);
                }
                "any" => {
                    self.context
                        .report
                        .not_needed(satisfy, "there is one condition of access only");
                }
                _ => self
                    .context
                    .report
                    .not_needed(satisfy, "all conditions of access must hold by default"),
            }
        }
        if let Some(delay) = scope.get("auth_delay") {
            self.context.report.not_needed(delay, "`attempts` of `auth` bounds wrong passwords");
        }
    }

    /// nginx takes the first rule that matches, Dunlin the smallest network.
    fn networks(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let (mut allow, mut deny): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut is_closed = false;
        for rule in scope.all(&["allow", "deny"]) {
            let network = rule.word(0);
            if is_closed {
                self.context.report.not_needed(rule, "a rule before it is for all addresses");
                continue;
            }
            if allow.iter().chain(&deny).any(|earlier| contains(earlier, network)) {
                self.context.report.not_needed(rule, "a rule before it is for its addresses");
                continue;
            }
            self.context.report.carried(rule);
            let list = if rule.name == "allow" { &mut allow } else { &mut deny };
            match network {
                "all" => {
                    is_closed = true;
                    // With `allow`, all other addresses are rejected anyway.
                    if rule.name == "deny" && allow.is_empty() {
                        deny = EVERYONE.map(str::to_owned).to_vec();
                    } else if rule.name == "allow" && !allow.is_empty() {
                        allow.extend(EVERYONE.map(str::to_owned));
                    }
                }
                "unix:" => {
                    self.context.report.differs(rule, "clients of a Unix socket have no address");
                }
                network => list.push(network.to_owned()),
            }
        }
        if !is_closed && !allow.is_empty() {
            // Without a rule for all, other addresses are allowed.
            allow.extend(EVERYONE.map(str::to_owned));
        }
        if !deny.is_empty() {
            keys.set("deny", Value::list(deny));
        }
        if !allow.is_empty() {
            keys.set("allow", Value::list(allow));
        }
    }

    /// Returns `true` if a password is needed.
    fn password(&mut self, scope: &Scope<'t>, keys: &mut Keys) -> bool {
        let Some(realm) = scope.get("auth_basic") else { return false };
        self.context.report.carried(realm);
        if realm.word(0) == "off" {
            return false;
        }
        let Some(users) = scope.get("auth_basic_user_file") else {
            self.context.report.lost(realm, "there is no file of users: every request gets 403");
            close(keys);
            return false;
        };
        let constants = self.constants(scope);
        let Some(file) =
            self.context.constant(users, users.word(0), &constants, "every request gets 403")
        else {
            close(keys);
            return false;
        };
        self.context.report.carried(users);
        let what = "the challenge states the charset of passwords, UTF-8 (RFC 7617)";
        self.context.report.differs(realm, what);
        let file = self.context.in_folder(&file);
        let is_weak = has_weak_hashes(Path::new(&file));
        let mut auth = Value::table([("basic", Value::text(file))]);
        if is_weak {
            let what = "some of its passwords are hashed without protection, or not at all: set them again with `dunlin passwd`, and remove `weak_hashes`";
            self.context.report.differs(users, what);
            auth.set("weak_hashes", Value::Switch(true));
        }
        let name = realm.word(0);
        if super::variables::has_variable(name) {
            self.context.report.differs(realm, "the realm is `Restricted`");
        } else if name != "Restricted" {
            auth.set("realm", Value::text(name));
        }
        keys.set("auth", auth);
        true
    }

    fn subrequest(&mut self, scope: &Scope<'t>, is_basic: bool, keys: &mut Keys) {
        let Some(request) = scope.get("auth_request") else { return };
        let target = request.word(0);
        if target == "off" {
            return self.context.report.carried(request);
        }
        if is_basic {
            close(keys);
            return self
                .context
                .report
                .lost(request, "a route authenticates in one way, so that every request gets 403");
        }
        if super::variables::has_variable(target) {
            close(keys);
            return self
                .context
                .report
                .lost(request, "the endpoint depends on the request: every request gets 403");
        }
        self.context.report.differs(request, "the endpoint gets the fields in `forward_fields` of the client, such as Cookie and Authorization, and no others");
        let mut auth = Value::table([("forward", Value::text(target))]);
        self.copied_fields(scope, &mut auth);
        keys.set("auth", auth);
    }
}

/// Rejects every request: where what restricts access is lost, nothing is open instead.
fn close(keys: &mut Keys) {
    keys.remove("allow");
    keys.set("deny", Value::list(EVERYONE));
}

/// Turns conditions of access into those of which one must hold.
fn any(keys: &mut Keys) {
    let mut networks = Value::Table(Vec::new());
    for key in ["allow", "deny"] {
        if let Some(value) = keys.remove(key) {
            networks.set(key, value);
        }
    }
    let auth = keys.remove("auth").map(|auth| Value::table([("auth", auth)]));
    keys.set("any", Value::List([Some(networks), auth].into_iter().flatten().collect()));
}

/// Returns `true` if each address of the network `inner` is in `outer`.
fn contains(outer: &str, inner: &str) -> bool {
    let address = inner.split('/').next().unwrap_or_default().parse();
    let networks = (outer.parse::<Network>(), inner.parse::<Network>());
    match (networks, address) {
        ((Ok(outer), Ok(inner)), Ok(address)) => {
            outer.prefix() <= inner.prefix() && outer.contains(address)
        }
        _ => false,
    }
}

/// Returns `true` if a file of users has a password that only nginx and old versions of Apache accept, or a line that is no user's.
fn has_weak_hashes(file: &Path) -> bool {
    const STRONG: [&str; 8] = ["$apr1$", "$2y$", "$2b$", "$2a$", "$2x$", "$5$", "$6$", "$argon2"];
    let is_weak = |line: &str| {
        let hash = line.split_once(':').map_or("", |(_, hash)| hash);
        !line.starts_with('#') && !STRONG.iter().any(|start| hash.starts_with(start))
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::trim_end).filter(|line| !line.is_empty()).any(is_weak)
}
