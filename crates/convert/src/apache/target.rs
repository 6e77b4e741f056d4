//! What a rule leads to, with its placeholders.

/// What the references of a substitution stand for.
pub(super) struct References<'a> {
    /// Groups of the pattern: a prefix of its path that `$0` and `$1` of an expression for all paths stand for.
    pub(super) groups: Groups,
    /// Groups of the last condition that matched; `None` where they are not known.
    pub(super) conditions: &'a [Option<String>],
    /// The value of `%{ENV:BASE}`.
    pub(super) base: &'a str,
}

/// What `$1` of a pattern is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Groups {
    /// Groups of the expression.
    Expression,
    /// What the `*` of the pattern matches.
    Rest,
    /// The whole path, after the slash at its begin.
    Path,
    /// The whole path, with the slash.
    WholePath,
}

/// Returns a substitution with the placeholders of Dunlin.
///
/// # Errors
/// What has no counterpart.
pub(super) fn target(text: &str, references: &References<'_>) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let next = rest[c.len_utf8()..].chars().next();
        match (c, next) {
            ('\\', Some(next)) => {
                done.push(next);
                rest = &rest[1 + next.len_utf8()..];
                continue;
            }
            ('$', Some(digit)) if digit.is_ascii_digit() => {
                group(digit, references.groups, &mut done)?;
                rest = &rest[2..];
                continue;
            }
            ('%', Some(digit)) if digit.is_ascii_digit() => {
                let at = digit.to_digit(10).map_or(0, |digit| digit as usize);
                let known = references.conditions.get(at).cloned().flatten();
                done.push_str(&known.ok_or_else(|| format!("%{digit} has no counterpart"))?);
                rest = &rest[2..];
                continue;
            }
            ('%', Some('{')) => {
                let end = rest.find('}').ok_or("a `%{` has no end")?;
                done.push_str(&variable(&rest[2..end], references)?);
                rest = &rest[end + 1..];
                continue;
            }
            ('$', Some('{')) => return Err("maps of `RewriteMap` are not read".into()),
            ('{', _) => done.push_str("%7B"),
            ('}', _) => done.push_str("%7D"),
            (c, _) => done.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    // A path begins with one slash.
    Ok(done.replace("/{path}", "{path}"))
}

fn group(digit: char, groups: Groups, done: &mut String) -> Result<(), String> {
    match (groups, digit) {
        (Groups::Expression, '0') => return Err("$0 has no counterpart".into()),
        (Groups::Expression, digit) => done.push_str(&format!("{{{digit}}}")),
        (Groups::Rest, _) => done.push_str("{rest}"),
        (Groups::WholePath, _) => done.push_str("{path}"),
        (Groups::Path, _) if done.ends_with('/') => done.push_str("{path}"),
        (Groups::Path, _) => done.push_str("{rest}"),
    }
    Ok(())
}

fn variable(name: &str, references: &References<'_>) -> Result<String, String> {
    let upper = name.to_ascii_uppercase();
    Ok(match upper.as_str() {
        "HTTP_HOST" | "SERVER_NAME" | "HTTP:HOST" => "{host}".into(),
        "REQUEST_URI" | "REQUEST_FILENAME" => "{path}".into(),
        "QUERY_STRING" => "{query}".into(),
        "REQUEST_SCHEME" => "{scheme}".into(),
        "REQUEST_METHOD" => "{method}".into(),
        "REMOTE_ADDR" => "{client}".into(),
        "DOCUMENT_ROOT" => String::new(),
        "ENV:BASE" | "ENV:REWRITEBASE" => references.base.to_owned(),
        _ if upper.starts_with("HTTP:") => format!("{{header.{}}}", &name[5..]),
        _ => return Err(format!("%{{{name}}} has no counterpart")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_placeholders() {
        let of = |text: &str, groups: Groups| {
            let conditions = [None, Some("{map.host_1}".to_owned())];
            target(text, &References { groups, conditions: &conditions, base: "/app" })
        };
        for (text, groups, expected) in [
            ("/a?b=$1&c=$2", Groups::Expression, "/a?b={1}&c={2}"),
            ("https://%{HTTP_HOST}%{REQUEST_URI}", Groups::Path, "https://{host}{path}"),
            ("https://x.test/$1", Groups::Path, "https://x.test{path}"),
            ("/index.php?q=$1", Groups::Path, "/index.php?q={rest}"),
            ("https://%1%{REQUEST_URI}", Groups::Path, "https://{map.host_1}{path}"),
            ("%{ENV:BASE}/$1", Groups::Rest, "/app/{rest}"),
        ] {
            assert_eq!(of(text, groups).as_deref(), Ok(expected), "{text}");
        }
        assert!(
            of("%2", Groups::Path).is_err() && of("${lower:%{HTTP_HOST}}", Groups::Path).is_err()
        );
    }
}
