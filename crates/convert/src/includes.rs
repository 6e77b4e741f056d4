//! Names of files with `*`, `?` and `[…]`, as in `include`.

use std::path::{Path, PathBuf};

/// Returns `true` if the name stands for any number of files.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// Returns the files that a pattern names, in lexical order.
pub(crate) fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        if !is_pattern(&name) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        found = found.iter().flat_map(|folder| children(folder, &name)).collect();
    }
    found.retain(|path| path.is_file());
    found
}

fn children(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let at = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(at) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_shown = |name: &String| !name.starts_with('.') || pattern.starts_with('.');
    let pattern: Vec<char> = pattern.chars().collect();
    let is_match = |name: &String| matches(&pattern, &name.chars().collect::<Vec<_>>());
    let mut names: Vec<String> = names.filter(is_shown).filter(is_match).collect();
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn matches(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        (['*', rest @ ..], _) => {
            matches(rest, name)
                || name.split_first().is_some_and(|(_, name)| matches(pattern, name))
        }
        (['?', rest @ ..], [_, name @ ..]) => matches(rest, name),
        (['[', rest @ ..], [c, name @ ..]) => match rest.iter().position(|&c| c == ']') {
            Some(end) => is_in_set(&rest[..end], *c) && matches(&rest[end + 1..], name),
            None => *c == '[' && matches(rest, name),
        },
        ([a, rest @ ..], [b, name @ ..]) => a == b && matches(rest, name),
        _ => false,
    }
}

fn is_in_set(set: &[char], c: char) -> bool {
    let (set, is_negated) = match set {
        ['!' | '^', rest @ ..] => (rest, true),
        _ => (set, false),
    };
    let mut at = 0;
    let mut is_found = false;
    while at < set.len() {
        let is_range = set.get(at + 1) == Some(&'-') && at + 2 < set.len();
        let last = if is_range { set[at + 2] } else { set[at] };
        is_found |= (set[at]..=last).contains(&c);
        at += if is_range { 3 } else { 1 };
    }
    is_found != is_negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        let is_match = |pattern: &str, name: &str| {
            matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
        };
        for (pattern, name) in
            [("*.conf", "a.conf"), ("*", "a"), ("a?c", "abc"), ("[a-c]*", "bx"), ("[!x]", "y")]
        {
            assert!(is_match(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.conf", "a.conf~"), ("a?", "a"), ("[a-c]", "d"), ("[!x]", "x")] {
            assert!(!is_match(pattern, name), "{pattern} {name}");
        }
    }
}
