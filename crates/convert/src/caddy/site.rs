//! Sites, their addresses and listeners.

use std::collections::BTreeMap;

use super::address::{Address, read};
use super::builder::Builder;
use super::context::Context;
use super::entry::{Level, comment, entries, number, regions};
use super::{errors, logs, tls};
use crate::directive::Directive;
use crate::model::{Listener, Site};
use crate::regions::routes;
use crate::value::Value;

/// Converts the sites of a file.
pub(super) fn convert(all: &[&Directive], context: &mut Context) {
    let mut listeners: BTreeMap<String, bool> = BTreeMap::new();
    let mut made: Vec<(Site, Vec<String>)> = Vec::new();
    // A file with one site needs no braces.
    let is_bare = all.len() > 1 && all.iter().all(|directive| directive.block.is_none());
    for directive in all {
        let level: Vec<&Directive> = if is_bare { all[1..].to_vec() } else { Vec::new() };
        let addresses = addresses(directive, context);
        if !addresses.is_empty() || is_bare {
            made.push(one(directive, &addresses, &level, &mut listeners, context));
        }
        if is_bare {
            break;
        }
    }
    let every: Vec<String> = listeners.keys().cloned().collect();
    for (mut site, mut listens) in made {
        listens.sort();
        if listens != every {
            site.listen = listens;
        }
        context.document.sites.push(site);
    }
    let listeners: Vec<Listener> = listeners
        .into_iter()
        .map(|(address, tls)| {
            let keys = if tls { vec![("tls".to_owned(), Value::Switch(true))] } else { Vec::new() };
            Listener { address, keys }
        })
        .collect();
    let is_default = |listener: &Listener| listener.address == ":80" && listener.keys.is_empty();
    if !matches!(&listeners[..], [only] if is_default(only)) {
        context.document.listens = listeners;
    }
}

fn addresses(directive: &Directive, context: &mut Context) -> Vec<Address> {
    let mut all = Vec::new();
    let words = [&directive.name].into_iter().chain(&directive.words);
    let words = words.flat_map(|word| word.split(',')).filter(|word| !word.is_empty());
    for word in words {
        match read(word) {
            Some(address) => {
                if !matches!(address.path.as_str(), "" | "/") {
                    context.report.lost(directive, format!("{word}: the site is for all paths"));
                }
                all.push(address);
            }
            None => context
                .report
                .lost(directive, format!("{word}: it is no address; nothing is served there")),
        }
    }
    if !all.is_empty() {
        context.report.differs(directive, "paths are compared with their case, hosts that no site has get 421, and where a route begins behind a slash, the path without it is redirected");
    }
    all
}

fn one(
    directive: &Directive,
    addresses: &[Address],
    bare: &[&Directive],
    listeners: &mut BTreeMap<String, bool>,
    context: &mut Context,
) -> (Site, Vec<String>) {
    let (http, https, has_certificates) =
        (context.http_port, context.https_port, context.has_certificates);
    let children = directive.children();
    let is_encrypted = |address: &Address| address.is_encrypted(http, https, has_certificates);
    let has_tls = addresses.iter().any(is_encrypted);
    let binds: Vec<String> = children
        .iter()
        .filter(|child| child.name == "bind")
        .flat_map(|child| child.words.clone())
        .collect();
    for child in children.iter().filter(|child| child.name == "bind") {
        context.report.carried(child);
    }
    let mut listens = Vec::new();
    let mut listen = |port: u16, tls: bool| {
        let all = if binds.is_empty() { vec![String::new()] } else { binds.clone() };
        for host in all {
            let host = match host.as_str() {
                "0.0.0.0" | "[::]" | "::" => String::new(),
                "localhost" => "127.0.0.1".to_owned(),
                host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
                host => host.to_owned(),
            };
            let address = match host.strip_prefix("unix/") {
                Some(path) => format!("unix:{path}"),
                None => format!("{host}:{port}"),
            };
            let known = listeners.entry(address.clone()).or_insert(tls);
            *known |= tls;
            if !listens.contains(&address) {
                listens.push(address);
            }
        }
    };
    for address in addresses {
        let tls = is_encrypted(address);
        listen(address.port.unwrap_or(if tls { https } else { http }), tls);
        if tls && address.scheme.is_none() && address.port.is_none() && context.redirects {
            listen(http, false);
        }
    }
    if addresses.is_empty() {
        listen(http, false);
    }
    let site = match bare.is_empty() {
        true => body(children, context),
        false => {
            context
                .report
                .lost(directive, "a site without braces: write them around its directives");
            Site::default()
        }
    };
    let mut site = Site { comment: comment(directive), ..site };
    let mut hosts: Vec<String> =
        addresses.iter().filter_map(|address| address.host.clone()).collect();
    hosts.dedup();
    if addresses.iter().any(|address| address.host.is_none()) {
        hosts.clear();
    }
    site.hosts = hosts;
    if has_tls {
        site.tls = tls::table(directive, addresses, context);
        let is_public = addresses.iter().any(|address| {
            is_encrypted(address) && address.scheme.is_none() && address.port.is_none()
        });
        if is_public && context.redirects && site.tls.is_some() {
            site.keys.set("redirect_https", Value::Switch(true));
        }
    } else {
        tls::without(directive, context);
    }
    if let Some(log) = logs::access_log(children, context) {
        site.keys.set("access_log", log);
    }
    (site, listens)
}

fn body(children: &[Directive], context: &mut Context) -> Site {
    let mut all = entries(children, &Level::new(), true, context);
    number(&mut all, &mut 0);
    let mut found = Vec::new();
    regions(&all, None, &mut found);
    let mut builder =
        Builder { context, entries: all, pages: Vec::new(), error_pages: Value::Table(Vec::new()) };
    errors::read(children, &mut builder);
    let (keys, mut routes) = routes(&found, |region| builder.settings(region));
    let mut pages = builder.pages;
    pages.append(&mut routes);
    Site { keys, routes: pages, ..Site::default() }
}
