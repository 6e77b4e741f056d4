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

/// The servers at a listener.
#[derive(PartialEq)]
struct View<'a> {
    /// The server of hosts that none names.
    default: usize,
    /// Each name, with the first server that has it.
    names: Vec<(&'a str, usize)>,
}

/// Listeners that have the same servers for the same hosts.
struct Group<'a> {
    tls: bool,
    addresses: Vec<&'a str>,
    view: View<'a>,
}

/// A site to be: its servers, its hosts and its listeners.
struct Part<'a> {
    pair: Pair,
    names: Vec<String>,
    is_default: bool,
    addresses: Vec<&'a str>,
}

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
    convert_servers(servers, context);
}

/// Converts the content of a `server` that stands in a file of its own.
pub(super) fn convert_single<'t>(level: &'t [Directive], context: &mut Context<'t>) {
    let server = server(None, Scope::new(level), context);
    convert_servers(vec![server], context);
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

fn convert_servers<'t>(mut servers: Vec<Server<'t>>, context: &mut Context<'t>) {
    cover(&mut servers, context);
    let servers = &servers[..];
    context.document.listens = listeners(servers);
    let groups = groups(servers);
    report_expressions(servers, &groups, context);
    let parts = parts(servers, &groups);
    let is_used =
        |at: usize| parts.iter().any(|Part { pair, .. }| [pair.0, pair.1].contains(&Some(at)));
    (0..servers.len()).filter(|at| !is_used(*at)).for_each(|at| unreached(&servers[at], context));
    let count = groups.iter().map(|group| group.addresses.len()).sum::<usize>();
    for part in parts {
        let mut listen: Vec<String> = part.addresses.iter().map(ToString::to_string).collect();
        listen.sort();
        if let Some(site) = site(servers, part, context) {
            let listen = if listen.len() == count { Vec::new() } else { listen };
            context.document.sites.push(Site { listen, ..site });
        }
    }
}

/// Replaces an address by the listener of all addresses with its port, if there is one.
fn cover(servers: &mut [Server<'_>], context: &mut Context<'_>) {
    let listens = || servers.iter().flat_map(|server| &server.listens);
    let wildcards: Vec<String> = listens()
        .filter(|listen| listen.address.starts_with(':'))
        .map(|listen| listen.address.clone())
        .collect();
    for listen in servers.iter_mut().flat_map(|server| &mut server.listens) {
        let Some((_, port)) = listen.address.rsplit_once(':') else { continue };
        let every = format!(":{port}");
        if listen.address.starts_with([':', 'u']) || !wildcards.contains(&every) {
            continue;
        }
        if let Some(directive) = listen.directive {
            context
                .report
                .differs(directive, format!("the listener {every} is for this address, too"));
        }
        listen.address = every;
    }
}

/// Returns the listeners, grouped by their servers, in the order of the configuration.
fn groups<'a>(servers: &'a [Server<'_>]) -> Vec<Group<'a>> {
    let listens = || servers.iter().flat_map(|server| &server.listens);
    let mut groups: Vec<Group<'a>> = Vec::new();
    for Listen { address, .. } in listens() {
        if groups.iter().any(|group| group.addresses.contains(&address.as_str())) {
            continue;
        }
        let tls = has_tls(servers, address);
        let view = view(servers, address);
        match groups.iter_mut().find(|group| group.tls == tls && group.view == view) {
            Some(group) => group.addresses.push(address),
            None => groups.push(Group { tls, addresses: vec![address], view }),
        }
    }
    groups
}

fn view<'a>(servers: &'a [Server<'_>], address: &str) -> View<'a> {
    let listens_here = |is_default: bool| {
        let is_it = move |listen: &Listen<'_>| {
            listen.address == address && (listen.is_default || !is_default)
        };
        let all = servers.iter().enumerate();
        all.filter(move |(_, server)| server.listens.iter().any(is_it))
    };
    let default = listens_here(true).chain(listens_here(false)).next().map_or(0, |(at, _)| at);
    let mut view = View { default, names: Vec::new() };
    for (at, server) in listens_here(false) {
        for name in &server.names {
            if view.server(name).is_none() {
                view.names.push((name, at));
            }
        }
    }
    view
}

impl View<'_> {
    /// Returns the server that has a name.
    fn server(&self, name: &str) -> Option<usize> {
        self.names.iter().find(|(other, _)| *other == name).map(|(_, at)| *at)
    }
}

fn report_expressions<'t>(servers: &[Server<'t>], groups: &[Group<'_>], context: &mut Context<'t>) {
    for (at, server) in servers.iter().enumerate() {
        let is_default = |listen: &Listen<'_>| {
            let has = |group: &&Group<'_>| group.addresses.contains(&listen.address.as_str());
            groups.iter().find(has).is_some_and(|group| group.view.default == at)
        };
        let has_others = server.listens.iter().all(is_default);
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
}

/// Returns the sites. The usual listeners with and without TLS have sites in common; others have their own, unless the same server
/// has the same hosts there.
fn parts<'a>(servers: &[Server<'_>], groups: &'a [Group<'a>]) -> Vec<Part<'a>> {
    let usual = |tls: bool| {
        let port = if tls { ":443" } else { ":80" };
        let of_kind = || groups.iter().enumerate().filter(|(_, group)| group.tls == tls);
        let has_port = |(_, group): &(usize, &Group<'_>)| group.addresses.contains(&port);
        of_kind().find(has_port).or_else(|| of_kind().next()).map(|(at, _)| at)
    };
    let (plain, tls) = (usual(false), usual(true));
    let mut parts = common_parts(servers, plain.map(|at| &groups[at]), tls.map(|at| &groups[at]));
    let is_other = |at: &usize| ![plain, tls].contains(&Some(*at));
    for group in (0..groups.len()).filter(is_other).map(|at| &groups[at]) {
        let View { default, names } = &group.view;
        let mut own = vec![(*default, Vec::new(), true)];
        for (name, at) in names {
            match own.iter_mut().find(|(other, ..)| other == at) {
                Some((_, names, _)) => names.push((*name).to_owned()),
                None => own.push((*at, vec![(*name).to_owned()], false)),
            }
        }
        for (at, names, is_default) in own {
            let is_same = |part: &&mut Part<'_>| {
                let server = if group.tls { part.pair.1 } else { part.pair.0 };
                server == Some(at)
                    && part.is_default == is_default
                    && (is_default || part.names == names)
            };
            match parts.iter_mut().find(is_same) {
                Some(part) => part.addresses.extend(&group.addresses),
                None => {
                    let pair = if group.tls { (None, Some(at)) } else { (Some(at), None) };
                    let addresses = group.addresses.clone();
                    parts.push(Part { pair, names, is_default, addresses });
                }
            }
        }
    }
    parts
}

/// Returns the sites that listeners without and with TLS have in common. The first one is that of hosts that no server names.
fn common_parts<'a>(
    servers: &[Server<'_>],
    plain: Option<&'a Group<'a>>,
    tls: Option<&'a Group<'a>>,
) -> Vec<Part<'a>> {
    let addresses =
        |group: Option<&Group<'a>>| group.map_or(&[][..], |group| &group.addresses).to_vec();
    let all = [addresses(plain), addresses(tls)].concat();
    let default = |group: Option<&Group<'_>>| group.map(|group| group.view.default);
    let pair = (default(plain), default(tls));
    if pair == (None, None) {
        return Vec::new();
    }
    let mut parts =
        vec![Part { pair, names: Vec::new(), is_default: true, addresses: all.clone() }];
    let is_usual = plain.is_some_and(|group| group.addresses.contains(&":80"));
    let mut seen: Vec<&String> = Vec::new();
    for name in servers.iter().flat_map(|server| &server.names) {
        let server = |group: Option<&Group<'_>>| group.and_then(|group| group.view.server(name));
        let pair = (server(plain), server(tls));
        if seen.contains(&name) || pair == (None, None) {
            continue;
        }
        seen.push(name);
        match parts.iter_mut().find(|part| part.pair == pair) {
            // The site of every other host need not name its own.
            Some(part) if part.is_default => {}
            Some(part) => part.names.push(name.clone()),
            None => {
                // What listens beside the usual port may not be meant for the public.
                let is_hidden = pair.1.is_none() && !is_usual;
                let addresses = if is_hidden { addresses(plain) } else { all.clone() };
                parts.push(Part { pair, names: vec![name.clone()], is_default: false, addresses });
            }
        }
    }
    parts
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

fn listeners(servers: &[Server<'_>]) -> Vec<Listener> {
    let mut all: Vec<Listener> = Vec::new();
    let listens = || servers.iter().flat_map(|server| &server.listens);
    for listen in listens() {
        let mut keys = Vec::new();
        if has_tls(servers, &listen.address) {
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

fn site<'t>(servers: &[Server<'t>], part: Part<'_>, context: &mut Context<'t>) -> Option<Site> {
    let Part { pair: (plain, tls), names, is_default, addresses } = part;
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
    } else if plain.is_none() && !addresses.iter().all(|address| has_tls(servers, address)) {
        served_everywhere(main, context);
    }
    let comment = match main.directive {
        Some(directive) => format!("{}: server", directive.place.short()),
        None => "server".to_owned(),
    };
    let every = (is_default && !names.is_empty()).then(|| "*".to_owned());
    let hosts = names.into_iter().chain(every).collect();
    let mut site = assemble(made);
    site.comment = comment;
    site.hosts = hosts;
    site.tls = tls::table(&main.scope, context).filter(|_| tls.is_some());
    Some(site)
}

/// Returns `true` if the listener of an address is one with TLS.
fn has_tls(servers: &[Server<'_>], address: &str) -> bool {
    let mut listens = servers.iter().flat_map(|server| &server.listens);
    listens.any(|listen| listen.address == address && listen.tls)
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
