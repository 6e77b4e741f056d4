//! Servers as sites: which server has which hosts and listeners, and what several servers share.

use super::assemble::assemble;
use super::context::Context;
use super::parse::Directive;
use super::scope::Scope;
use super::server::drafts;
use super::tls;
use crate::model::{Listener, Site};
use crate::value::Value;

/// A `server`.
struct Server<'t> {
    directive: Option<&'t Directive>,
    scope: Scope<'t>,
    names: Vec<String>,
    /// Names that are expressions, without a counterpart.
    expressions: Vec<(&'t Directive, String)>,
    listens: Vec<Listen<'t>>,
}

impl Server<'_> {
    /// Returns the value of `$server_name`.
    fn first_name(&self) -> String {
        let own = self.scope.own_directive("server_name").map_or("", |names| names.word(0));
        let other = if own == "_" { "_" } else { "" };
        self.names.first().cloned().unwrap_or_else(|| other.to_owned())
    }

    /// Returns the port of its listeners, if all have the same.
    fn port(&self) -> Option<&str> {
        let mut ports = self.listens.iter().map(|listen| listen.address.rsplit(':').next());
        let first = ports.next()?.filter(|port| port.parse::<u16>().is_ok())?;
        ports.all(|port| port == Some(first)).then_some(first)
    }
}

/// A `listen`.
struct Listen<'t> {
    directive: Option<&'t Directive>,
    address: String,
    tls: bool,
    is_default: bool,
    proxy_protocol: bool,
    backlog: Option<u64>,
}

/// The servers of a site: that of requests without TLS, and that of those with TLS.
type Pair = (Option<usize>, Option<usize>);

/// Converts the servers of `http`.
pub(super) fn convert<'t>(level: &'t [Directive], scope: &Scope<'t>, context: &mut Context<'t>) {
    let mut servers = Vec::new();
    for directive in
        level.iter().filter(|directive| directive.name == "server" && directive.block.is_some())
    {
        context.report.carried(directive);
        servers.push(server(Some(directive), scope.within(directive.children()), context));
    }
    if let [first, others @ ..] = &servers[..]
        && let Some(name) = first.names.first()
        && others.iter().all(|server| server.names.first() == Some(name))
    {
        context.common.insert("server_name".to_owned(), name.clone());
    }
    convert_servers(&servers, context);
}

/// Converts the content of a `server` that stands in a file of its own.
pub(super) fn convert_single<'t>(level: &'t [Directive], context: &mut Context<'t>) {
    let server = server(None, Scope::new(level), context);
    convert_servers(&[server], context);
}

fn server<'t>(
    directive: Option<&'t Directive>,
    scope: Scope<'t>,
    context: &mut Context<'t>,
) -> Server<'t> {
    let own = scope.own();
    let has_tls = scope.is_on("ssl");
    let mut listens: Vec<Listen<'t>> = own
        .iter()
        .filter(|child| child.name == "listen")
        .filter_map(|child| listen(child, has_tls, context))
        .collect();
    if listens.is_empty() {
        listens.push(Listen {
            directive: None,
            address: ":80".into(),
            tls: has_tls,
            is_default: false,
            proxy_protocol: false,
            backlog: None,
        });
    }
    let named = own.iter().filter(|child| child.name == "server_name");
    let mut expressions = Vec::new();
    let names = named.flat_map(|child| host_names(child, &mut expressions, context)).collect();
    for child in own.iter().filter(|child| child.name.starts_with("http2")) {
        match child.name.as_str() {
            "http2_push" | "http2_push_preload" => {
                context.report.not_needed(child, "browsers no longer accept pushed responses");
            }
            _ => context.report.not_needed(
                child,
                "HTTP/2 is on at every listener with TLS, within limits of the server",
            ),
        }
    }
    if let Some(child) = scope.own_directive("ssl") {
        context.report.carried(child);
    }
    if let Some(child) = scope.get("merge_slashes").filter(|child| child.word(0) == "off") {
        context
            .report
            .lost(child, "empty segments are removed from paths before locations are compared");
    } else if let Some(child) = scope.get("merge_slashes") {
        context.report.not_needed(child, "empty segments are always removed");
    }
    Server { directive, scope, names, expressions, listens }
}

fn listen<'t>(
    directive: &'t Directive,
    has_tls: bool,
    context: &mut Context<'_>,
) -> Option<Listen<'t>> {
    let is_there = |word: &str| directive.words.iter().skip(1).any(|other| other == word);
    let Some(address) = address(directive.word(0)) else {
        context
            .report
            .lost(directive, "the address is not one of the machine: nothing is listened on there");
        return None;
    };
    if is_there("quic") {
        context.report.not_needed(
            directive,
            "listeners with TLS have HTTP/3, on the UDP port with the same number",
        );
        return None;
    }
    context.report.carried(directive);
    if is_there("http2") && !has_tls && !is_there("ssl") {
        let what = "without TLS, HTTP/1.1 is understood besides HTTP/2 at this listener";
        context.report.differs(directive, what);
    }
    let backlog = directive.words.iter().find_map(|word| word.strip_prefix("backlog="));
    Some(Listen {
        directive: Some(directive),
        address,
        tls: has_tls || is_there("ssl"),
        is_default: is_there("default_server") || is_there("default"),
        proxy_protocol: is_there("proxy_protocol"),
        backlog: backlog.and_then(|backlog| backlog.parse().ok()),
    })
}

/// Returns an address in the form of `[[listen]]`.
fn address(word: &str) -> Option<String> {
    if word.starts_with("unix:") {
        return Some(word.to_owned());
    }
    if word.parse::<u16>().is_ok() {
        return Some(format!(":{word}"));
    }
    let (host, port) = match word.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => (host, port),
        _ => (word, "80"),
    };
    match host {
        "*" | "0.0.0.0" | "[::]" => Some(format!(":{port}")),
        "localhost" => Some(format!("127.0.0.1:{port}")),
        host => {
            let plain = host.trim_start_matches('[').trim_end_matches(']');
            plain.parse::<std::net::IpAddr>().is_ok().then(|| format!("{host}:{port}"))
        }
    }
}

/// Returns the hosts of a `server_name`.
fn host_names<'t>(
    directive: &'t Directive,
    expressions: &mut Vec<(&'t Directive, String)>,
    context: &mut Context<'_>,
) -> Vec<String> {
    let mut names = Vec::new();
    for word in &directive.words {
        match word.as_str() {
            "" | "_" | "$hostname" | "--" => {}
            word if word.starts_with('~') => {
                let pattern = word.trim_start_matches('~');
                match super::expression::globs(&pattern.replace("(?<", "(").replace(".+", ".*")) {
                    Some(globs)
                        if globs
                            .iter()
                            .all(|glob| !glob.trim_start_matches("*.").contains('*')) =>
                    {
                        names.extend(globs);
                    }
                    _ => expressions.push((directive, word.to_owned())),
                }
            }
            word if word.starts_with('.') => {
                names.extend([word[1..].to_owned(), format!("*{word}")]);
            }
            word if word.contains(['/', '$']) => {
                context.report.differs(directive, format!("{word}: no request has such a host"));
            }
            word => names.push(word.to_owned()),
        }
    }
    names.iter_mut().for_each(|name| *name = name.to_ascii_lowercase());
    context.report.carried(directive);
    names
}

fn convert_servers<'t>(servers: &[Server<'t>], context: &mut Context<'t>) {
    context.document.listens = listeners(servers, context);
    let default = default_pair(servers);
    for (at, server) in servers.iter().enumerate() {
        let has_others = default.is_some_and(|pair| {
            let kinds = [(pair.0, false), (pair.1, true)];
            let of_kind = |tls: bool| server.listens.iter().any(|listen| listen.tls == tls);
            kinds.into_iter().all(|(default, tls)| default == Some(at) || !of_kind(tls))
        });
        for (directive, word) in &server.expressions {
            match has_others {
                true => context.report.differs(
                    directive,
                    format!("{word}: every host gets the server that no other one names, as it is the default"),
                ),
                false => context.report.lost(
                    directive,
                    format!("{word}: hosts are names or begin with `*.`; requests for others get the default site"),
                ),
            }
        }
    }
    let mut pairs: Vec<(Pair, Vec<String>)> =
        default.map(|pair| (pair, Vec::new())).into_iter().collect();
    let mut seen: Vec<&String> = Vec::new();
    for name in servers.iter().flat_map(|server| &server.names) {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let pair = (first(servers, Some(name), false), first(servers, Some(name), true));
        match pairs.iter_mut().find(|(other, _)| *other == pair) {
            Some((_, names)) => names.push(name.clone()),
            None => pairs.push((pair, vec![name.clone()])),
        }
    }
    let is_used =
        |at: usize| pairs.iter().any(|((plain, tls), _)| *plain == Some(at) || *tls == Some(at));
    let others: Vec<usize> = (0..servers.len()).filter(|at| !is_used(*at)).collect();
    let mut sites: Vec<(Pair, Site)> = Vec::new();
    for (at, (pair, names)) in pairs.into_iter().enumerate() {
        let is_default = at == 0 && default.is_some();
        sites.extend(site(servers, pair, names, is_default, context).map(|site| (pair, site)));
    }
    let mut at_own = Vec::new();
    for at in others {
        match at_own_listeners(servers, at, context) {
            Some(site) => {
                sites.iter_mut().for_each(|(pair, other)| leave(servers, *pair, other, &site));
                at_own.push(site);
            }
            None => unreached(&servers[at], context),
        }
    }
    context.document.sites.extend(sites.into_iter().map(|(_, site)| site).chain(at_own));
}

/// Leaves the listeners of another site to it, where the servers of a site listen on none of them.
fn leave(servers: &[Server<'_>], (plain, tls): Pair, site: &mut Site, other: &Site) {
    let own = [plain, tls].into_iter().flatten();
    let mut addresses: Vec<&String> =
        own.flat_map(|at| &servers[at].listens).map(|listen| &listen.address).collect();
    addresses.sort();
    addresses.dedup();
    let shares = other.listen.iter().any(|address| addresses.contains(&address));
    if !shares && site.hosts.iter().any(|host| !host.is_empty()) {
        site.listen = addresses.into_iter().cloned().collect();
    }
}

/// Returns the site of a server whose hosts, or all hosts, another one has at other listeners; `None` if requests never get there.
fn at_own_listeners<'t>(
    servers: &[Server<'t>],
    at: usize,
    context: &mut Context<'t>,
) -> Option<Site> {
    let server = &servers[at];
    let listens = |other: &Server<'_>, address: &str| {
        other.listens.iter().any(|listen| listen.address == address)
    };
    let is_default = |address: &str| {
        let is_named = |other: &Server<'_>| {
            other.listens.iter().any(|listen| listen.is_default && listen.address == address)
        };
        let first = servers.iter().position(|other| listens(other, address));
        servers.iter().position(is_named).or(first) == Some(at)
    };
    let is_first = |address: &str| {
        let has = |name: &String| {
            servers.iter().position(|other| listens(other, address) && other.names.contains(name))
                == Some(at)
        };
        server.names.iter().any(has)
    };
    let addresses = server.listens.iter().map(|listen| listen.address.clone());
    let mut own: Vec<String> =
        addresses.filter(|address| is_default(address) || is_first(address)).collect();
    own.sort();
    own.dedup();
    let is_default = own.iter().any(|address| is_default(address));
    let has_tls = server.listens.iter().any(|listen| listen.tls);
    let pair = if has_tls { (None, Some(at)) } else { (Some(at), None) };
    (!own.is_empty()).then_some(())?;
    let site = site(servers, pair, server.names.clone(), is_default, context)?;
    Some(Site { listen: own, ..site })
}

/// Returns the first server with that name, or the default server, at listeners with or without TLS.
fn first(servers: &[Server<'_>], name: Option<&String>, tls: bool) -> Option<usize> {
    let listens = |server: &Server<'_>| server.listens.iter().any(|listen| listen.tls == tls);
    let has_name = |server: &Server<'_>| name.is_none_or(|name| server.names.contains(name));
    servers.iter().position(|server| listens(server) && has_name(server))
}

/// Returns the servers of requests for hosts that no server names: those of the first listener of each kind.
fn default_pair(servers: &[Server<'_>]) -> Option<Pair> {
    let default = |tls: bool| {
        let first = first(servers, None, tls)?;
        let own = |listen: &&Listen<'_>| listen.tls == tls;
        let address = &servers[first].listens.iter().find(own)?.address;
        let is_default = |server: &Server<'_>| {
            server.listens.iter().any(|listen| listen.is_default && listen.address == *address)
        };
        Some(servers.iter().position(is_default).unwrap_or(first))
    };
    match (default(false), default(true)) {
        (None, None) => None,
        pair => Some(pair),
    }
}

/// A server whose names and listeners others have: nginx warns of it, and requests never get there.
fn unreached(server: &Server<'_>, context: &mut Context<'_>) {
    let Some(directive) = server.directive else { return };
    let what = "another server has its hosts at its listeners: requests never get here";
    context.report.differs(directive, what);
    mark(directive.children(), context);
}

fn mark(all: &[Directive], context: &mut Context<'_>) {
    for directive in all {
        if !context.report.has(directive) {
            context.report.not_needed(directive, "requests never get to its server");
        }
        mark(directive.children(), context);
    }
}

fn listeners(servers: &[Server<'_>], context: &mut Context<'_>) -> Vec<Listener> {
    let mut all: Vec<Listener> = Vec::new();
    let listens = || servers.iter().flat_map(|server| &server.listens);
    let is_wildcard =
        |port: &str| listens().any(|listen| listen.address.strip_prefix(':') == Some(port));
    for listen in listens() {
        let port = listen.address.rsplit(':').next().unwrap_or_default();
        let is_covered = !listen.address.starts_with([':', 'u']) && is_wildcard(port);
        if is_covered {
            if let Some(directive) = listen.directive {
                context
                    .report
                    .differs(directive, format!("the listener :{port} is for this address, too"));
            }
            continue;
        }
        let tls = listens().any(|other| other.address == listen.address && other.tls);
        let mut keys = Vec::new();
        if tls {
            keys.push(("tls".to_owned(), Value::Switch(true)));
        }
        if listen.proxy_protocol {
            keys.push(("proxy_protocol".to_owned(), Value::Switch(true)));
        }
        if let Some(backlog) = listen.backlog.filter(|backlog| *backlog <= 65_535) {
            keys.push(("backlog".to_owned(), Value::Number(backlog)));
        }
        if !all.iter().any(|other| other.address == listen.address) {
            all.push(Listener { address: listen.address.clone(), keys });
        }
    }
    // The listener of a configuration without any.
    let is_default = |listener: &Listener| listener.address == ":80" && listener.keys.is_empty();
    if matches!(&all[..], [only] if is_default(only)) { Vec::new() } else { all }
}

fn site<'t>(
    servers: &[Server<'t>],
    (plain, tls): Pair,
    names: Vec<String>,
    is_default: bool,
    context: &mut Context<'t>,
) -> Option<Site> {
    let main = &servers[tls.or(plain)?];
    let server_name = main.first_name();
    let mut made = drafts(&main.scope, (&server_name, main.port()), context);
    // Requests without TLS that another server has.
    if let (Some(plain), Some(tls)) = (plain, tls)
        && plain != tls
    {
        let other = &servers[plain];
        let server_name = other.first_name();
        let without_tls = drafts(&other.scope, (&server_name, other.port()), context);
        made = made.with_plain(without_tls, context, other.directive);
    } else if plain.is_none()
        && servers.iter().any(|server| server.listens.iter().any(|listen| !listen.tls))
    {
        served_everywhere(main, context);
    }
    let comment = match main.directive {
        Some(directive) => format!("{}: server", directive.place.short()),
        None => "server".to_owned(),
    };
    let hosts = if is_default { Vec::new() } else { names };
    let mut site = assemble(made);
    site.comment = comment;
    site.hosts = hosts;
    site.tls = tls::table(&main.scope, context).filter(|_| tls.is_some());
    Some(site)
}

/// A server that nginx has at some listeners only.
fn served_everywhere(server: &Server<'_>, context: &mut Context<'_>) {
    if let Some(directive) = server.listens.iter().find_map(|listen| listen.directive) {
        context.report.differs(
            directive,
            "the site is served without TLS, too, at the listeners of the others",
        );
    }
}
