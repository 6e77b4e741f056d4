//! Access: `Require` and its containers, `Order`, `Allow` and `Deny`, and passwords.

use super::builder::Builder;
use super::scope::{Scope, is};
use crate::directive::Directive;
use crate::keys::Keys;
use crate::value::Value;

/// The directives that decide about access, and their containers.
pub(super) const AUTHORIZATION: [&str; 4] = ["Require", "RequireAll", "RequireAny", "RequireNone"];
const BY_HOST: [&str; 3] = ["Order", "Allow", "Deny"];

/// Conditions that give access together.
#[derive(Debug, Clone, Default, PartialEq)]
struct Alternative {
    allow: Vec<String>,
    deny: Vec<String>,
    password: bool,
    methods: Vec<String>,
}

impl Alternative {
    fn of_networks(allow: Vec<String>) -> Self {
        Self { allow, ..Self::default() }
    }

    fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the conditions of both; `None` if no key has them.
    fn and(&self, other: &Self) -> Option<Self> {
        let one_of =
            |one: &Vec<String>, other: &Vec<String>| match (one.is_empty(), other.is_empty()) {
                (_, true) => Some(one.clone()),
                (true, _) => Some(other.clone()),
                _ => (one == other).then(|| one.clone()),
            };
        Some(Self {
            allow: one_of(&self.allow, &other.allow)?,
            deny: [self.deny.clone(), other.deny.clone()].concat(),
            password: self.password || other.password,
            methods: one_of(&self.methods, &other.methods)?,
        })
    }
}

/// Returns `true` if directives restrict access.
pub(super) fn restricts(block: &[Directive]) -> bool {
    block.iter().any(|directive| match directive.name.to_ascii_lowercase().as_str() {
        "require" => {
            !(directive.word(0).eq_ignore_ascii_case("all")
                && directive.word(1).eq_ignore_ascii_case("granted"))
        }
        "deny" | "requireall" | "requirenone" => true,
        "allow" => !directive.word(1).eq_ignore_ascii_case("all"),
        _ => restricts(directive.children()),
    })
}

impl<'t> Builder<'_, 't> {
    /// Sets the keys of access that are in force.
    pub(super) fn access(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let required = scope.innermost(&AUTHORIZATION);
        let by_host = scope.innermost(&BY_HOST);
        let mut alternatives = None;
        if !required.is_empty() {
            alternatives = Some(self.any(&required, scope));
        }
        if !by_host.is_empty() {
            let networks = self.by_host(&by_host);
            let satisfies_any =
                scope.word("Satisfy").is_some_and(|word| word.eq_ignore_ascii_case("any"));
            alternatives = Some(match alternatives {
                None => networks,
                Some(own) if satisfies_any => [networks, own].concat(),
                Some(own) => all(vec![networks, own]),
            });
        }
        for satisfy in scope.all(&["Satisfy"]) {
            self.context.report.carried(satisfy);
        }
        let Some(alternatives) = alternatives else { return };
        let first = required.first().or(by_host.first()).copied();
        self.restrict(alternatives, first, scope, keys);
    }

    fn restrict(
        &mut self,
        mut alternatives: Vec<Alternative>,
        first: Option<&'t Directive>,
        scope: &Scope<'t>,
        keys: &mut Keys,
    ) {
        if alternatives.iter().any(Alternative::is_open) {
            return;
        }
        let auth = match alternatives.iter().any(|one| one.password) {
            true => self.password(scope, first),
            false => None,
        };
        if auth.is_none() {
            alternatives.retain(|one| !one.password);
        }
        // Networks of which one allows access are one list.
        let is_plain = |one: &Alternative| {
            !one.allow.is_empty() && *one == Alternative::of_networks(one.allow.clone())
        };
        let networks: Vec<String> = alternatives
            .iter()
            .filter(|one| is_plain(one))
            .flat_map(|one| one.allow.clone())
            .collect();
        alternatives.retain(|one| !is_plain(one));
        if !networks.is_empty() {
            alternatives.insert(0, Alternative::of_networks(networks));
        }
        match &alternatives[..] {
            [] => keys.close(),
            [only] => {
                if !only.methods.is_empty() {
                    keys.set("methods", Value::list(only.methods.clone()));
                }
                table(only, auth.as_ref()).entries().iter().for_each(|(key, value)| {
                    let key = match key.as_str() {
                        "allow" => "allow",
                        "deny" => "deny",
                        _ => "auth",
                    };
                    keys.set(key, value.clone());
                });
            }
            several => {
                if several.iter().any(|one| !one.methods.is_empty())
                    && let Some(first) = first
                {
                    self.context.report.lost(
                        first,
                        "a method is a condition of a route, not one of several: it gives no access",
                    );
                }
                let usable = several.iter().filter(|one| one.methods.is_empty());
                let list: Vec<Value> = usable.map(|one| table(one, auth.as_ref())).collect();
                match list.is_empty() {
                    true => keys.close(),
                    false => keys.set("any", Value::List(list)),
                }
            }
        }
    }

    /// Returns the alternatives of which one must hold. A `not` among them makes no alternative.
    fn any(&mut self, directives: &[&'t Directive], scope: &Scope<'t>) -> Vec<Alternative> {
        directives.iter().flat_map(|directive| self.one(directive, scope)).collect()
    }

    fn children(directive: &'t Directive) -> Vec<&'t Directive> {
        let is_part = |child: &&Directive| AUTHORIZATION.iter().any(|name| is(child, name));
        directive.children().iter().filter(is_part).collect()
    }

    fn one(&mut self, directive: &'t Directive, scope: &Scope<'t>) -> Vec<Alternative> {
        if is(directive, "RequireAny") {
            self.context.report.carried(directive);
            return self.any(&Self::children(directive), scope);
        }
        if is(directive, "RequireAll") {
            self.context.report.carried(directive);
            let parts = Self::children(directive);
            return all(parts.into_iter().map(|part| self.one(part, scope)).collect());
        }
        if is(directive, "RequireNone") {
            self.context.report.carried(directive);
            let parts = Self::children(directive);
            return all(parts.into_iter().map(|part| self.negated(part, &part.words)).collect());
        }
        match directive.word(0).eq_ignore_ascii_case("not") {
            true => self.negated(directive, &directive.words[1..]),
            false => self.positive(directive),
        }
    }

    fn positive(&mut self, directive: &'t Directive) -> Vec<Alternative> {
        let rest = directive.words.get(1..).unwrap_or_default();
        let report = &mut self.context.report;
        let found = match directive.word(0).to_ascii_lowercase().as_str() {
            "all" if directive.word(1).eq_ignore_ascii_case("granted") => {
                vec![Alternative::default()]
            }
            "all" => Vec::new(),
            "local" => vec![Alternative::of_networks(vec!["127.0.0.0/8".into(), "::1".into()])],
            "ip" => match rest.iter().map(|word| network(word)).collect::<Option<Vec<_>>>() {
                Some(networks) if !networks.is_empty() => vec![Alternative::of_networks(networks)],
                _ => {
                    report.lost(directive, "it names no network: it gives no access");
                    return Vec::new();
                }
            },
            "valid-user" => vec![Alternative { password: true, ..Alternative::default() }],
            "method" => {
                report.differs(directive, "other methods get 405");
                let methods = rest.iter().map(|word| word.to_ascii_uppercase()).collect();
                return vec![Alternative { methods, ..Alternative::default() }];
            }
            kind => {
                let what = match kind {
                    "user" | "group" | "file-owner" | "file-group" => {
                        "`auth` allows all users of its file"
                    }
                    "host" | "forward-dns" => "names of clients are not looked up",
                    _ => "there is no such condition of access",
                };
                report.lost(directive, format!("{what}: it gives no access, and where nothing else does, every request gets 403"));
                return Vec::new();
            }
        };
        report.carried(directive);
        found
    }

    /// Returns what holds where the words do not.
    fn negated(&mut self, directive: &'t Directive, words: &'t [String]) -> Vec<Alternative> {
        let first = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
        let networks = words.get(1..).unwrap_or_default().iter().map(|word| network(word));
        match (first.as_str(), networks.collect::<Option<Vec<_>>>()) {
            ("ip", Some(deny)) if !deny.is_empty() => {
                self.context.report.carried(directive);
                vec![Alternative { deny, ..Alternative::default() }]
            }
            ("all", _) => {
                self.context.report.carried(directive);
                match words.get(1).is_some_and(|word| word.eq_ignore_ascii_case("denied")) {
                    true => vec![Alternative::default()],
                    false => Vec::new(),
                }
            }
            _ => {
                let what = "what it excludes is not known here: every request gets 403";
                self.context.report.lost(directive, what);
                Vec::new()
            }
        }
    }

    /// `Order`, `Allow` and `Deny` of Apache 2.2.
    fn by_host(&mut self, directives: &[&'t Directive]) -> Vec<Alternative> {
        let mut is_allow_last = false;
        let (mut allow, mut deny) = (Vec::new(), Vec::new());
        let (mut allows_all, mut denies_all) = (false, false);
        for directive in directives {
            if is(directive, "Order") {
                let order = directive.words.join("").to_ascii_lowercase();
                is_allow_last = order.starts_with("deny");
                self.context.report.carried(directive);
                continue;
            }
            let is_allow = is(directive, "Allow");
            for word in directive.words.iter().skip(1) {
                let is_all = word.eq_ignore_ascii_case("all");
                match (is_all, network(word)) {
                    (true, _) if is_allow => allows_all = true,
                    (true, _) => denies_all = true,
                    (_, Some(network)) if is_allow => allow.push(network),
                    (_, Some(network)) => deny.push(network),
                    (_, None) if is_allow => {
                        let what = format!("{word}: names and variables give no access");
                        self.context.report.lost(directive, what);
                    }
                    (_, None) => {
                        let what = format!("{word}: it is no network: every request gets 403");
                        self.context.report.lost(directive, what);
                        denies_all = true;
                        is_allow_last = false;
                    }
                }
            }
            self.context.report.carried(directive);
        }
        match is_allow_last {
            // Who is allowed comes in, although denied; who is neither comes in, too.
            true if allows_all || !denies_all && deny.is_empty() => vec![Alternative::default()],
            true if denies_all && allow.is_empty() => Vec::new(),
            true if denies_all => vec![Alternative::of_networks(allow)],
            true => vec![
                Alternative { deny, ..Alternative::default() },
                Alternative::of_networks(allow),
            ]
            .into_iter()
            .filter(|one| !one.is_open())
            .collect(),
            // Who is denied does not come in, although allowed; who is neither does not, either.
            false if denies_all => Vec::new(),
            false if allows_all && deny.is_empty() => vec![Alternative::default()],
            false if allows_all => vec![Alternative { deny, ..Alternative::default() }],
            false if allow.is_empty() => Vec::new(),
            false if deny.is_empty() => vec![Alternative::of_networks(allow)],
            false => vec![Alternative { allow, deny, ..Alternative::default() }],
        }
    }

    /// Returns the table `auth`; `None` if requests cannot be authenticated.
    fn password(&mut self, scope: &Scope<'t>, first: Option<&'t Directive>) -> Option<Value> {
        let kind = scope.get("AuthType");
        let is_basic = kind.is_some_and(|kind| kind.word(0).eq_ignore_ascii_case("basic"));
        let provider = scope.get("AuthBasicProvider");
        let is_file = provider.is_none_or(|provider| {
            provider.words.iter().any(|word| word.eq_ignore_ascii_case("file"))
        });
        let users = scope.get("AuthUserFile");
        let (true, true, Some(users)) = (is_basic, is_file, users) else {
            let at = provider.filter(|_| is_basic).or(kind).or(first);
            if let Some(at) = at {
                let what = "users have passwords in files (`AuthType Basic`, `AuthUserFile`): every request that needs one gets 403";
                self.context.report.lost(at, what);
            }
            return None;
        };
        for directive in [kind, provider, Some(users), scope.get("AuthName")].into_iter().flatten()
        {
            self.context.report.carried(directive);
        }
        let mut auth = Value::table([("basic", Value::text(self.context.in_root(users.word(0))))]);
        if let Some(realm) = scope.word("AuthName").filter(|realm| *realm != "Restricted") {
            auth.set("realm", Value::text(realm));
        }
        Some(auth)
    }
}

fn table(one: &Alternative, auth: Option<&Value>) -> Value {
    let mut table = Value::Table(Vec::new());
    if !one.deny.is_empty() {
        table.set("deny", Value::list(one.deny.clone()));
    }
    if !one.allow.is_empty() {
        table.set("allow", Value::list(one.allow.clone()));
    }
    if let Some(auth) = auth.filter(|_| one.password) {
        table.set("auth", auth.clone());
    }
    table
}

/// Returns the alternatives of conditions that must all hold.
fn all(parts: Vec<Vec<Alternative>>) -> Vec<Alternative> {
    let start = vec![Alternative::default()];
    parts.into_iter().fold(start, |known, part| {
        known.iter().flat_map(|one| part.iter().filter_map(|other| one.and(other))).collect()
    })
}

/// Returns a network in our form: `10`, `10.1`, `10.1.0.0/255.255.0.0`, `10.1.0.0/16`, `::1`.
pub(super) fn network(word: &str) -> Option<String> {
    if word.parse::<dunlin_config::Network>().is_ok() {
        return Some(word.to_owned());
    }
    let (address, mask) = match word.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (word, None),
    };
    let parts: Vec<u8> = address
        .trim_end_matches('.')
        .split('.')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    if parts.is_empty() || parts.len() > 4 {
        return None;
    }
    let bits = match mask {
        None => 8 * parts.len() as u32,
        Some(mask) => {
            let mask: std::net::Ipv4Addr = mask.parse().ok()?;
            let bits = u32::from(mask);
            (bits.leading_ones() == bits.count_ones()).then(|| bits.leading_ones())?
        }
    };
    let part = |at: usize| parts.get(at).copied().unwrap_or(0);
    let network = format!("{}.{}.{}.{}/{bits}", part(0), part(1), part(2), part(3));
    network.parse::<dunlin_config::Network>().is_ok().then_some(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_apache_are_completed() {
        for (text, expected) in [
            ("10", Some("10.0.0.0/8")),
            ("10.1.", Some("10.1.0.0/16")),
            ("192.168.0.0/255.255.0.0", Some("192.168.0.0/16")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("::1", Some("::1")),
            ("example.com", None),
            ("1.2.3.4.5", None),
        ] {
            assert_eq!(network(text).as_deref(), expected, "{text}");
        }
    }
}
