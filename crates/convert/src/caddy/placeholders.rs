//! Placeholders.

use super::matcher::Named;

/// Returns a text with the placeholders of Dunlin.
///
/// # Errors
/// The first placeholder without a counterpart.
pub(super) fn template(text: &str, regexes: &[Named]) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '\\']) {
        done.push_str(&rest[..at]);
        let inner = &rest[at..];
        if let Some(escaped) = inner.strip_prefix("\\{").or_else(|| inner.strip_prefix("\\}")) {
            done.push_str(if inner.starts_with("\\{") { "%7B" } else { "%7D" });
            rest = escaped;
            continue;
        }
        let end = inner.find('}').filter(|_| inner.starts_with('{'));
        let Some(end) =
            end.filter(|end| inner[1..*end].chars().all(|c| !c.is_whitespace() && c != '"'))
        else {
            done.push_str(&inner[..1]);
            rest = &inner[1..];
            continue;
        };
        done.push_str(&placeholder(&inner[1..end], regexes)?);
        rest = &inner[end + 1..];
    }
    Ok(done + rest)
}

fn placeholder(name: &str, regexes: &[Named]) -> Result<String, String> {
    let known = match name {
        "uri" | "http.request.uri" | "http.request.orig_uri" => "{target}",
        "path" | "http.request.uri.path" | "http.request.orig_uri.path" => "{path}",
        "query" | "http.request.uri.query" | "http.request.orig_uri.query" => "{query}",
        "host" | "hostport" | "http.request.host" | "http.request.hostport" | "labels.host" => {
            "{host}"
        }
        "scheme" | "http.request.scheme" => "{scheme}",
        "method" | "http.request.method" => "{method}",
        "remote_host" | "remote" | "client_ip" | "http.request.remote.host" => "{client}",
        _ => "",
    };
    if !known.is_empty() {
        return Ok(known.to_owned());
    }
    let of = |starts: [&str; 2]| starts.into_iter().find_map(|start| name.strip_prefix(start));
    if let Some(field) = of(["header.", "http.request.header."]) {
        return Ok(format!("{{header.{field}}}"));
    }
    if let Some(cookie) = of(["cookie.", "http.request.cookie."]) {
        return Ok(format!("{{cookie.{cookie}}}"));
    }
    if let Some(key) = of(["query.", "http.request.uri.query."]) {
        return Ok(format!("{{query.{key}}}"));
    }
    if let Some(variable) = name.strip_prefix("env.") {
        return Ok(format!("{{env.{variable}}}"));
    }
    let lost = || format!("{{{name}}} has no counterpart");
    let Some(group) = of(["re.", "http.regexp."]) else { return Err(lost()) };
    let (regex, group) = match group.rsplit_once('.') {
        Some((regex, group)) => (Some(regex), group),
        None => (None, group),
    };
    let known = regexes.iter().find(|known| regex.is_none_or(|name| known.name == name));
    let known = known.ok_or_else(lost)?;
    if group == "0" {
        return Err(lost());
    }
    Ok(match &known.from {
        None => format!("{{{group}}}"),
        Some(map) => format!("{{map.{map}}}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_those_of_the_request() {
        let regexes = [Named { name: "x".into(), from: None }];
        for (text, expected) in [
            ("https://{host}{uri}", "https://{host}{target}"),
            ("/a/{re.x.1}?b={query.b}", "/a/{1}?b={query.b}"),
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("{http.request.header.X-A}", "{header.X-A}"),
        ] {
            assert_eq!(template(text, &regexes).as_deref(), Ok(expected), "{text}");
        }
        assert!(template("{file.base}", &regexes).is_err());
    }
}
