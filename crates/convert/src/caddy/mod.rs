//! Caddy: from Caddyfiles to our configuration.
//!
//! Caddy runs the directives of a site in an order of its own, each for the requests that its matcher matches, until one responds.
//! So each matcher is a region of paths, whose complete settings follow from running the directives that match all of its requests
//! ([`regions`](crate::regions)).

mod address;
mod auth;
mod builder;
mod context;
mod entry;
mod errors;
mod fate;
mod fields;
mod files;
mod global;
mod handlers;
mod logs;
mod matcher;
mod parse;
mod placeholders;
mod proxy;
mod site;
#[cfg(test)]
mod tests;
mod tls;

use std::path::Path;

use self::context::Context;
use self::parse::Parser;
use crate::directive::SourceError;
use crate::{Conversion, repair};

/// Converts the Caddyfile `file`. `users` is the file that has the users of `basic_auth` afterwards.
pub(crate) fn convert(file: &Path, users: Option<&Path>) -> Result<Conversion, SourceError> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    let mut parser = Parser::new();
    let tree = parser.file(file)?;
    let mut context = Context::new(folder, users);
    global::convert(&tree, &mut context);
    let sites: Vec<_> = tree.iter().filter(|directive| !directive.name.is_empty()).collect();
    site::convert(&sites, &mut context);
    let Context { mut report, document, users, .. } = context;
    fate::complete(&tree, &mut report);
    let title = format!("Converted from {} by `dunlin convert caddy`.", file.display());
    let toml = repair::repaired(document.to_toml(&title), file, &mut report);
    report.sort();
    Ok(Conversion { toml, long: None, report, files: parser.files, is_empty: false, users })
}
