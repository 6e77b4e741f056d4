//! Named groups whose names placeholders have: `(?<path>.*)` gets another name, in the expression and wherever it is used.

use super::parse::Directive;

/// The names of placeholders that a group can have with nginx.
const RESERVED: [&str; 7] = ["path", "query", "raw_query", "rest", "target", "method", "client"];

/// Renames the groups in all directives.
pub(super) fn rename(tree: &mut [Directive]) {
    for name in RESERVED {
        if names_group(tree, name) {
            let new = format!("{name}_group");
            replace(tree, name, &new);
        }
    }
}

/// Returns `true` if an expression has a group of that name.
fn names_group(tree: &[Directive], name: &str) -> bool {
    let groups = [format!("(?<{name}>"), format!("(?P<{name}>")];
    tree.iter().any(|directive| {
        let mut words = directive.words.iter().chain([&directive.name]);
        words.any(|word| groups.iter().any(|group| word.contains(group)))
            || names_group(directive.children(), name)
    })
}

fn replace(tree: &mut [Directive], name: &str, new: &str) {
    for directive in tree {
        let words = directive.words.iter_mut().chain([&mut directive.name]);
        words.for_each(|word| *word = renamed(word, name, new));
        if let Some(block) = &mut directive.block {
            replace(block, name, new);
        }
    }
}

/// Returns a word with the new name in its groups and variables.
fn renamed(word: &str, name: &str, new: &str) -> String {
    let mut text = word
        .replace(&format!("(?<{name}>"), &format!("(?<{new}>"))
        .replace(&format!("(?P<{name}>"), &format!("(?P<{new}>"))
        .replace(&format!("${{{name}}}"), &format!("${{{new}}}"));
    let variable = format!("${name}");
    let mut from = 0;
    while let Some(at) = text[from..].find(&variable).map(|at| at + from) {
        let end = at + variable.len();
        let is_longer = text[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        from = if is_longer { end } else { at + 1 + new.len() };
        if !is_longer {
            text.replace_range(at..end, &format!("${new}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::renamed;

    #[test]
    fn groups_and_variables_are_renamed() {
        for (word, expected) in [
            ("^/a(?<path>.*)$", "^/a(?<p>.*)$"),
            ("/b$path/${path}.html?$path", "/b$p/${p}.html?$p"),
            ("$path_info/path", "$path_info/path"),
        ] {
            assert_eq!(renamed(word, "path", "p"), expected);
        }
    }
}
