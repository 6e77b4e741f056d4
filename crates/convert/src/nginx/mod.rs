//! nginx: from its configuration to ours.
//!
//! nginx picks one location for a request and nothing else; Dunlin merges the settings of all routes that match. So each
//! location gets its complete settings first, with what it inherits from `server` and `http` ([`location`]), and then the keys
//! that differ from what it would inherit here ([`assemble`]).

mod access;
mod assemble;
mod assigned;
mod assignments;
mod bodies;
#[cfg(test)]
mod carried_tests;
mod chosen;
mod client_certificate;
mod closed;
mod condition;
mod conditional;
mod context;
mod copied;
mod directives;
mod error_pages;
mod fields;
mod file_condition;
mod files;
mod fixed;
mod flow;
mod geo;
mod http;
mod lexer;
mod limits;
mod links;
#[cfg(test)]
mod listener_tests;
mod listing;
mod location;
mod logs;
mod map_condition;
mod maps;
mod nested;
mod own_request;
mod parse;
mod proxy;
mod proxy_target;
mod references;
mod reserved;
mod response_cache;
mod restriction;
mod retries;
mod rewrite;
mod scope;
mod script;
mod server;
mod sites;
mod stock;
#[cfg(test)]
mod tests;
mod tls;
mod tries;
mod types;
mod upstream;
#[cfg(test)]
mod variable_tests;
mod variables;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use self::context::Context;
use self::directives::{Fate, fate};
use self::parse::{Directive, Parser};
use crate::compact::compacted;
use crate::directive::SourceError;
use crate::report::Report;
use crate::{Conversion, expression, repair, units};

/// The directory to which Debian's nginx has relative paths relative.
const DEBIAN_PREFIX: &str = "/usr/share/nginx";

/// Converts the configuration in `file`.
pub(crate) fn convert(file: &Path, prefix: Option<&Path>) -> Result<Conversion, SourceError> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    let mut parser = Parser::new(&folder);
    let mut tree = parser.file(file)?;
    reserved::rename(&mut tree);
    let mut context = Context::new(folder.clone(), prefix_of(prefix, &folder));
    http::convert(&tree, &mut context);
    let Context { mut report, document, .. } = context;
    let is_empty = document.sites.is_empty();
    if let Some(http) = tree.iter().find(|directive| directive.name == "http" && is_empty) {
        report.differs(http, "it has no server: nothing is served until there is a [[site]]");
    }
    stated_stock(&tree, &parser.stock, &mut report);
    complete(&tree, &mut report);
    let title = format!("Converted from {} by `dunlin convert nginx`.", file.display());
    let long = repair::repaired(document.to_toml(&title), file, &mut report);
    // A file that several servers include is one.
    let files: BTreeSet<&PathBuf> = parser.sources.files.iter().collect();
    let toml = compacted(long.clone(), files.into_iter().map(|file| lines(file)).sum());
    report.sort();
    let long = Some(long).filter(|long| *long != toml);
    let (files, users) = (parser.sources.files, Vec::new());
    Ok(Conversion { toml, long, report, files, is_empty, users })
}

/// Reports the files that are not here, and are read as they come with nginx.
fn stated_stock(all: &[Directive], stock: &[usize], report: &mut Report) {
    for directive in all {
        if stock.contains(&directive.id) {
            report.differs(directive, "the file is not here: it is read as it comes with nginx");
        }
        stated_stock(directive.children(), stock, report);
    }
}

/// Files that come with nginx: no site has them.
const STOCK: [&str; 6] =
    ["mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params", "proxy_params"];

/// Returns the number of lines that a person has written.
fn lines(file: &Path) -> usize {
    let is_stock = file.file_name().is_some_and(|name| STOCK.iter().any(|stock| name == *stock));
    let text = if is_stock { None } else { std::fs::read_to_string(file).ok() };
    text.map_or(0, |text| text.trim_end().lines().count())
}

fn prefix_of(prefix: Option<&Path>, folder: &Path) -> PathBuf {
    match prefix {
        Some(prefix) => std::path::absolute(prefix).unwrap_or_else(|_| prefix.to_owned()),
        None if folder.starts_with("/etc/nginx") => PathBuf::from(DEBIAN_PREFIX),
        None => folder.to_owned(),
    }
}

/// The contexts whose entries are no directives.
const TABLES: [&str; 6] = ["map", "geo", "split_clients", "types", "charset_map", "match"];

/// Judges each directive that the conversion has not: it is in force nowhere, has no counterpart, or is unknown.
fn complete(all: &[Directive], report: &mut Report) {
    for directive in all {
        let is_judged = report.has(directive);
        match fate(&directive.name) {
            _ if is_judged => {}
            Some(Fate::Read) if directive.block.is_some() => report.carried(directive),
            Some(Fate::Read) => {
                report.not_needed(
                    directive,
                    "it applies nowhere: no location uses it, or each overrides it",
                );
            }
            Some(Fate::NotNeeded(why)) => report.not_needed(directive, why),
            Some(Fate::Lost(what)) => report.lost(directive, what),
            None => report.lost(directive, "the directive is unknown: it is of no standard module"),
        }
        let is_foreign = matches!(fate(&directive.name), None | Some(Fate::Lost(_)));
        // A block that is lost is lost with all that is in it.
        if !TABLES.contains(&&*directive.name) && !is_foreign {
            complete(directive.children(), report);
        }
    }
}
