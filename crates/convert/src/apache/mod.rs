//! Apache: from its virtual hosts and `.htaccess` files to our configuration.
//!
//! Apache merges the sections that apply to a request, and so do the routes of Dunlin. Sections become regions of paths with their
//! complete settings, and rules that end the search (rewrites, redirects, proxies) become regions that come before others
//! ([`regions`](crate::regions)).

mod access;
mod builder;
mod condition;
mod context;
mod fate;
mod fields;
mod files;
mod lifetimes;
mod logs;
mod parse;
mod proxy;
mod redirects;
mod required;
mod rewrite;
mod rule;
mod rule_effect;
mod rule_paths;
mod scope;
mod sections;
mod server;
mod sites;
mod target;
#[cfg(test)]
mod tests;
mod tls;
mod whole;

use std::path::{Path, PathBuf};

use self::context::Context;
use self::parse::Parser;
use crate::directive::{Directive, Place, SourceError};
use crate::{Conversion, repair};

/// Most directories in which `.htaccess` files are looked for.
const MAX_FOLDERS: usize = 5_000;

/// Converts the configuration in `file`, which may be a `.htaccess` file. `root` is its document root.
pub(crate) fn convert(file: &Path, root: Option<&Path>) -> Result<Conversion, SourceError> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    let is_htaccess =
        absolute.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".ht"));
    let server_root = match folder.starts_with("/etc/apache2") {
        true => PathBuf::from("/etc/apache2"),
        false => folder.clone(),
    };
    let mut parser = Parser::new(&server_root);
    let mut tree = parser.file(file)?;
    let mut context = Context::new(parser.root.clone());
    if is_htaccess {
        let root = root.unwrap_or(&folder);
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        context.htaccess_root = Some(root.to_string_lossy().into_owned());
        tree = vec![within(&folder, tree, file, &mut parser)];
    } else {
        let more = below_roots(&tree, &mut parser, &context)?;
        tree.extend(more);
    }
    sites::convert(&tree, &mut context);
    let Context { mut report, document, .. } = context;
    fate::complete(&tree, &mut report);
    fate::skipped(&parser.skipped, &mut report);
    let title = format!("Converted from {} by `dunlin convert apache`.", file.display());
    let toml = repair::repaired(document.to_toml(&title), file, &mut report);
    report.sort();
    let (files, users) = (parser.sources.files, Vec::new());
    Ok(Conversion { toml, long: None, report, files, is_empty: false, users })
}

/// Returns the section that has the directives of a `.htaccess` file.
fn within(folder: &Path, inner: Vec<Directive>, file: &Path, parser: &mut Parser) -> Directive {
    Directive {
        id: parser.next_id(),
        name: "Directory".into(),
        words: vec![folder.to_string_lossy().into_owned()],
        block: Some(inner),
        place: Place { file: file.into(), line: 1 },
    }
}

/// Reads the `.htaccess` files beneath the document roots for which a section permits them.
fn below_roots(
    tree: &[Directive],
    parser: &mut Parser,
    context: &Context,
) -> Result<Vec<Directive>, SourceError> {
    let mut permitted = Vec::new();
    each(tree, &mut |directive| {
        if scope::is(directive, "Directory") {
            let mut overrides =
                directive.children().iter().filter(|child| scope::is(child, "AllowOverride"));
            let last = overrides
                .next_back()
                .map(|overrides| !overrides.word(0).eq_ignore_ascii_case("none"));
            permitted.extend(last.map(|last| (context.in_root(directive.word(0)), last)));
        }
    });
    let mut roots = Vec::new();
    each(tree, &mut |directive| {
        if scope::is(directive, "DocumentRoot") {
            roots.push(context.in_root(directive.word(0)));
        }
    });
    roots.dedup();
    let is_permitted = |folder: &Path| {
        let folder = folder.to_string_lossy();
        let own = permitted.iter().filter(|(directory, _)| builder::is_beneath(&folder, directory));
        own.max_by_key(|(directory, _)| directory.len()).is_some_and(|(_, last)| *last)
    };
    let mut folders: Vec<PathBuf> = roots.into_iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < folders.len().min(MAX_FOLDERS) {
        let folder = folders[at].clone();
        at += 1;
        let file = folder.join(".htaccess");
        if is_permitted(&folder) && file.is_file() {
            let inner = parser.file(&file)?;
            found.push(within(&folder, inner, &file, parser));
        }
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut inner: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        inner.sort();
        folders.extend(inner);
    }
    Ok(found)
}

/// Calls `visit` for each directive.
fn each(all: &[Directive], visit: &mut impl FnMut(&Directive)) {
    for directive in all {
        visit(directive);
        each(directive.children(), visit);
    }
}
