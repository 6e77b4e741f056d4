//! Places of rules, and their patterns: those for all paths, and those of directories, whose paths begin behind the directory.

use super::target::Groups;
use crate::expression::of_prefix;
use crate::groups::split_top;

/// Where rules stand.
pub(super) struct Place {
    /// The path of the URL that patterns begin behind; `/` for a server, whose patterns have it.
    pub(super) prefix: String,
    pub(super) is_directory: bool,
    /// `RewriteBase`, with a slash at its end.
    pub(super) base: String,
}

impl Place {
    pub(super) fn new(prefix: &str, is_directory: bool) -> Self {
        Self { prefix: prefix.to_owned(), is_directory, base: prefix.to_owned() }
    }
}

/// Returns what `$1` is if the pattern is for all paths; `None` otherwise.
pub(super) fn is_whole(pattern: &str, place: &Place) -> Option<Groups> {
    let plain = pattern.trim_start_matches('^').trim_end_matches('$');
    let is_any = matches!(plain, "" | "." | ".*" | "(.*)" | ".+" | "(.+)" | ".?" | "(.*?)");
    match (place.is_directory, plain) {
        (true, "/?(.*)") => {}
        (true, _) if is_any => {}
        (false, "/(.*)" | "/(.+)" | "/?(.*)" | "/?(.+)" | "/.*" | "/" | "/?" | "/.+") => {
            return (pattern != "^/$" && pattern != "^/?$").then_some(Groups::Path);
        }
        (false, _) if is_any && pattern != "^$" => return Some(Groups::WholePath),
        _ => return None,
    }
    if pattern == "^$" || pattern == "$" {
        return None;
    }
    Some(if place.prefix == "/" { Groups::Path } else { Groups::Rest })
}

/// Returns a pattern as an expression for whole paths.
pub(super) fn full(pattern: &str, place: &Place) -> String {
    if !place.is_directory {
        return pattern.to_owned();
    }
    let start = of_prefix(&place.prefix);
    let parts = split_top(pattern, '|');
    let has_anchor = pattern.contains('^') && !pattern.contains("[^") || pattern.starts_with('^');
    let one = |part: &str| match part.strip_prefix('^') {
        Some(rest) => rest.strip_prefix("/?").unwrap_or(rest).to_owned(),
        None if part.starts_with(".*") || part.starts_with("(.*") => part.to_owned(),
        None => format!(".*?{part}"),
    };
    match &parts[..] {
        [only] if only.starts_with('^') || only.starts_with(".*") || only.starts_with("(.*") => {
            format!("{start}{}", one(only))
        }
        // `(^a|b)`: the anchors of alternatives are those of the whole.
        [only] if has_anchor => only.replace('^', &start),
        _ if place.prefix == "/" && !has_anchor => pattern.to_owned(),
        _ => {
            let alternatives: Vec<String> = parts.iter().map(|part| one(part)).collect();
            format!("{start}(?:{})", alternatives.join("|"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_directories_are_those_of_whole_paths() {
        let of = |prefix: &str| Place::new(prefix, true);
        for (pattern, prefix, expected) in [
            ("^index\\.php$", "/", "^/index\\.php$"),
            ("^a/(.*)$", "/app/", "^/app/a/(.*)$"),
            ("\\.bak$", "/", "\\.bak$"),
            ("\\.bak$", "/app/", "^/app/(?:.*?\\.bak$)"),
            ("^a|^b$", "/", "^/(?:a|b$)"),
            ("(^|/)\\.", "/", "(^/|/)\\."),
            ("(.*)\\.html$", "/", "^/(.*)\\.html$"),
        ] {
            assert_eq!(full(pattern, &of(prefix)), expected, "{pattern}");
        }
        assert_eq!(is_whole("^(.*)$", &of("/")), Some(Groups::Path));
        assert_eq!(is_whole("^(.*)$", &of("/a/")), Some(Groups::Rest));
        assert_eq!(is_whole("^(.*)$", &Place::new("/", false)), Some(Groups::WholePath));
        assert_eq!(is_whole("^$", &of("/")), None);
    }
}
