//! URLs as users write them: without a scheme, as paths of a list, with a user and a password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use url::Url;

/// Returns the URL with a scheme, which is http if it has none.
#[must_use]
pub fn absolute(url: String) -> String {
    if url.contains("://") { url } else { format!("http://{url}") }
}

/// `path` on the server of `base`.
#[must_use]
pub fn on_server(base: &str, path: &str) -> String {
    let start = base.find("://").map_or(0, |at| at + 3);
    let end = base[start..].find('/').map_or(base.len(), |at| start + at);
    format!("{}{path}", &base[..end])
}

/// Returns what may be a URL, for a message: without a user and a password.
#[must_use]
pub fn shown(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let rest = &text[start..];
    // An unescaped slash in a password would end the authority, so that the last `@` of all counts.
    match rest.rfind('@') {
        Some(at) => format!("{}…{}", &text[..start], &rest[at..]),
        None => text.to_owned(),
    }
}

/// Returns the URLs of a list, one per line; lines that begin with `#` are comments. `base` names the server of those that
/// are paths.
///
/// # Errors
/// A line is no URL, or there is none. The message begins with the number of the line.
pub fn listed(text: &str, base: Option<&str>) -> Result<Vec<String>, String> {
    let mut urls = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("{number}: {}: {why}", shown(line));
        if line.contains(char::is_whitespace) {
            return Err(wrong("is no URL, since it has a space"));
        }
        let url = match (base, line.starts_with('/')) {
            (_, false) => absolute(line.to_owned()),
            (Some(base), true) => absolute(on_server(base, line)),
            (None, true) => return Err(wrong("a path needs a URL to be taken against")),
        };
        Url::parse(&url).map_err(|error| wrong(&error.to_string()))?;
        urls.push(url);
    }
    if urls.is_empty() { Err(" there is no URL".to_owned()) } else { Ok(urls) }
}

/// Takes user and password out of URLs. Returns the value of the `Authorization` field that has them.
///
/// # Errors
/// The URLs have different ones.
pub fn without_password(urls: Vec<String>) -> Result<(Vec<String>, Option<String>), String> {
    let mut found: Option<String> = None;
    let mut plain = Vec::with_capacity(urls.len());
    for text in urls {
        // What is no URL is reported with the other errors of a plan.
        let Some(mut url) = Url::parse(&text).ok().filter(has_password) else {
            plain.push(text);
            continue;
        };
        let decoded = |part: &str| percent_decode_str(part).collect::<Vec<u8>>();
        let (user, password) =
            (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let value = format!("Basic {}", STANDARD.encode([&user[..], b":", &password].concat()));
        if found.as_ref().is_some_and(|known| *known != value) {
            return Err("the URLs have different users or passwords".to_owned());
        }
        found = Some(value);
        // Cannot fail: a URL with a user has a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        plain.push(url.to_string());
    }
    Ok((plain, found))
}

fn has_password(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_urls_and_paths_and_its_errors_have_the_line() {
        let urls = listed("# a list\n/a\n\nhttp://other/b\nhost/c\n", Some("host:1/x"));
        assert_eq!(urls.unwrap(), ["http://host:1/a", "http://other/b", "http://host/c"]);
        assert!(listed("/a", None).unwrap_err().starts_with("1: /a: a path needs a URL"));
        assert!(listed("/a\nPOST /b\n", Some("h")).unwrap_err().starts_with("2: POST /b:"));
        assert!(listed("# only a comment\n", Some("h")).unwrap_err().contains("no URL"));
    }

    #[test]
    fn a_password_becomes_a_field_and_is_not_in_the_url() {
        let urls = |all: &[&str]| without_password(all.iter().map(|&url| url.to_owned()).collect());
        let (plain, field) = urls(&["http://user:p%40w@host/a"]).unwrap();
        assert_eq!(
            (plain[0].as_str(), field.as_deref()),
            ("http://host/a", Some("Basic dXNlcjpwQHc="))
        );
        let (plain, field) = urls(&["http://host/a", "not a url"]).unwrap();
        assert_eq!((plain[0].as_str(), field), ("http://host/a", None));
        assert!(urls(&["http://a:b@host/", "http://c:d@host/"]).is_err());
        for wrong in
            ["http://user:secret@[bad/", "user:secret@h ost/", "http://u:se/cr@et@h:99999/x"]
        {
            assert!(!shown(wrong).contains("se"), "{}", shown(wrong));
            assert!(!listed(wrong, None).unwrap_err().contains("se"));
        }
        assert_eq!(shown("http://h/a"), "http://h/a");
    }
}
