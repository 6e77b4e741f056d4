//! Secrets in the text of a file.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys whose value is a secret.
const SECRET_KEYS: [&str; 1] = ["secret_key"];

/// The beginning of what stands in place of a secret. It is valid within a URL, so that the text remains a valid
/// configuration.
const HIDDEN: &str = "hidden-";

/// Returns the text with a hash in place of each secret: the values of secret keys, and the passwords of URLs. A text
/// that is not TOML is left out completely.
pub(crate) fn hide(text: &str) -> String {
    let Ok(table) = DeTable::parse(text) else { return String::new() };
    let mut found = Vec::new();
    find_in_table(table.get_ref(), &mut found);
    found.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = text.to_owned();
    for (span, value) in found {
        text.replace_range(span, &toml::Value::String(value).to_string());
    }
    text
}

/// The bytes of each value with a secret, and what replaces it.
type Found = Vec<(Range<usize>, String)>;

fn find_in_table(table: &DeTable<'_>, found: &mut Found) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::String(secret) if SECRET_KEYS.contains(&&**key.get_ref()) => {
                found.push((value.span(), hash(secret)));
            }
            _ => find(value, found),
        }
    }
}

fn find(value: &Spanned<DeValue<'_>>, found: &mut Found) {
    match value.get_ref() {
        DeValue::Table(table) => find_in_table(table, found),
        DeValue::Array(array) => array.iter().for_each(|value| find(value, found)),
        DeValue::String(text) => {
            if let Some(hidden) = without_passwords(text) {
                found.push((value.span(), hidden));
            }
        }
        _ => {}
    }
}

/// Returns a URL with a hash in place of its password (RFC 3986, section 3.2.1) and of its parameter `pass`; `None` if
/// the text has neither.
fn without_passwords(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let at = rest[..authority_end].rfind('@');
    let password = at.and_then(|at| Some(rest[..at].find(':')? + 1..at));
    let parameter = ["?pass=", "&pass="].iter().find_map(|name| {
        let start = rest.find(name)? + name.len();
        Some(start..rest[start..].find('&').map_or(rest.len(), |length| start + length))
    });
    let mut secrets: Vec<Range<usize>> = [password, parameter].into_iter().flatten().collect();
    secrets.retain(|secret| !secret.is_empty());
    if secrets.is_empty() {
        return None;
    }
    let mut hidden = rest.to_owned();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.start));
    for secret in secrets {
        hidden.replace_range(secret.clone(), &hash(&rest[secret]));
    }
    Some(format!("{scheme}://{hidden}"))
}

/// Returns what stands in place of a secret: the same for the same secret, and for what `hash` returned before.
fn hash(secret: &str) -> String {
    if secret.starts_with(HIDDEN) {
        return secret.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    secret.hash(&mut hasher);
    format!("{HIDDEN}{:08x}", hasher.finish() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_wherever_they_stand() {
        let one = "store.s3 = { secret_key = \"one\", access_key = 'a' }\n[store.az]\nsecret_key = '''two'''\n# end\n";
        let hidden = hide(one);
        assert!(!hidden.contains("one") && !hidden.contains("two"), "{hidden}");
        assert!(hidden.contains("access_key = 'a'") && hidden.ends_with("\n# end\n"), "{hidden}");
        assert_eq!((hide(one), hide(&hidden)), (hidden.clone(), hidden.clone()));
        assert_ne!(hide(&one.replace("one", "other")), hidden);
        assert!(toml::from_str::<toml::Table>(&hidden).is_ok());
        assert_eq!(hide("secret_key = [broken"), "");
    }

    #[test]
    fn passwords_of_urls_are_replaced() {
        let text = "[shared]\nurl = [\"rediss://u:word@a:1/0\", 'redis://:wo@rd@b', \"redis+unix:///s?db=1&pass=word&x=1\"]\n";
        let hidden = hide(text);
        assert!(!hidden.contains("word") && !hidden.contains("wo@rd"), "{hidden}");
        for kept in [
            "rediss://u:hidden-",
            "@a:1/0\"",
            "redis://:hidden-",
            "@b\"",
            "db=1&pass=hidden-",
            "&x=1\"",
        ] {
            assert!(hidden.contains(kept), "{kept} in {hidden}");
        }
        assert_eq!(hide(&hidden), hidden);
        let without = "url = \"redis://user@host:1/a:b\"\nto = 'http://[::1]:80/x@y'\nproxy = 'http://h:1/?u=a@b'\n";
        assert_eq!(hide(without), without);
    }
}
