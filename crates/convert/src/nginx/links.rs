//! Links that are signed (`secure_link`), and the pages that link (`valid_referers`).

use super::condition::{Condition, terms};
use super::context::Context;
use super::expression::Expression;
use super::parse::Directive;
use super::restriction::restricts;
use super::scope::Scope;
use super::server::Builder;
use super::variables::{Part, parts};
use crate::keys::Keys;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Returns the key `signed` of a level; `None` if there is no `secure_link`.
    ///
    /// # Errors
    /// The reason for which there is no such key.
    pub(super) fn signed(&mut self, scope: &Scope<'t>) -> Option<Result<Value, String>> {
        let link = scope.get("secure_link")?;
        let Some(text) = scope.get("secure_link_md5") else {
            return Some(Err("there is no `secure_link_md5`".to_owned()));
        };
        let read = signed(link.word(0), text.word(0));
        if read.is_ok() {
            self.context.report.differs(link, "a request without a valid signature gets 403, an expired one 410, whatever the location does with the variable");
            self.context.report.carried(text);
        }
        Some(read)
    }

    /// `signed` rejects requests by itself. Returns `true` if the condition of an `if` is about that alone.
    pub(super) fn is_signature(&mut self, directive: &'t Directive, scope: &Scope<'t>) -> bool {
        let words = terms(&directive.words);
        let is_invalid =
            matches!(words[..], ["$secure_link", "="] | ["$secure_link", "=", "" | "0"]);
        is_invalid && restricts(directive.children()) && matches!(self.signed(scope), Some(Ok(_)))
    }

    /// Sets the key in settings of requests that come after such a condition.
    pub(super) fn sign(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        if let Some(Ok(signed)) = self.signed(scope) {
            keys.set("signed", signed);
        }
    }
}

impl Context<'_> {
    /// Returns the condition of an `if` about `$invalid_referer`; `None` for others.
    pub(super) fn referer_condition(
        &mut self,
        words: &[String],
        scope: &Scope<'_>,
    ) -> Option<Condition> {
        let is_invalid = match terms(words)[..] {
            ["$invalid_referer"] | ["$invalid_referer", "=", "1"] => true,
            ["$invalid_referer", "="] | ["$invalid_referer", "=", ""] => false,
            _ => return None,
        };
        let Some(directive) = scope.get("valid_referers") else {
            return Some(Condition::Fixed(!is_invalid));
        };
        let (regexes, pages): (Vec<&String>, Vec<&String>) =
            directive.words.iter().partition(|word| word.starts_with('~'));
        let mut alternatives = Vec::new();
        for regex in regexes {
            let expression = Expression::new(regex.trim_start_matches(['~', '*']), true).ok()?;
            if expression.except.is_some() {
                return None;
            }
            let text = expression.text.trim_start_matches("(?i)");
            alternatives.push(match text.strip_prefix('^') {
                Some(text) if !text.contains('|') => format!("(?:{text})"),
                Some(_) => return None,
                None => format!(".*(?:{text})"),
            });
        }
        let mut pages: Vec<String> = pages.into_iter().map(|page| without_port(page)).collect();
        pages.dedup();
        if pages.is_empty() && alternatives.is_empty() || !is_invalid && !alternatives.is_empty() {
            return None;
        }
        self.report.carried(directive);
        let mut when = Value::Table(Vec::new());
        if !alternatives.is_empty() {
            let text = format!("(?i)^https?://(?:{})", alternatives.join("|"));
            let map = self.test("{header.Referer}".to_owned(), &text);
            when.set("map", Value::Table(vec![(map, Value::Switch(false))]));
        }
        if !pages.is_empty() {
            let valid = Value::table([("referer", Value::one_or_many(pages))]);
            match is_invalid {
                true => when.set("not", valid),
                false => when = valid,
            }
        }
        Some(Condition::When(when))
    }
}

impl<'t> Builder<'_, 't> {
    /// Returns the placeholder of `$invalid_referer`: a map that is `1` for pages that may not link. `None` if an expression has
    /// no counterpart.
    pub(super) fn invalid_referer(&mut self, scope: &Scope<'t>) -> Option<String> {
        let directive = scope.get("valid_referers")?;
        let names = self.constants(scope).remove("server_name");
        let has = |name: &str| directive.words.iter().any(|word| word == name);
        let mut entries = Vec::new();
        if !has("none") {
            entries.push((String::new(), "1".to_owned()));
        }
        for word in &directive.words {
            let pattern = match word.as_str() {
                "none" | "blocked" => continue,
                "server_names" => pages(names.as_ref()?),
                word if word.starts_with('~') => {
                    let expression = Expression::new(word.trim_start_matches('~'), true).ok()?;
                    expression.except.is_none().then_some(())?;
                    let text = expression.text.trim_start_matches("(?i)");
                    match text.strip_prefix('^') {
                        Some(text) => format!("(?:{text})"),
                        None => format!("(?s:.*)(?:{text})"),
                    }
                }
                word => pages(word),
            };
            entries.push((format!("~(?i)^https?://{pattern}"), String::new()));
        }
        entries.push(("~(?i)^https?://".to_owned(), "1".to_owned()));
        if !has("blocked") {
            entries.push(("~(?s).".to_owned(), "1".to_owned()));
        }
        self.context.report.carried(directive);
        let name = self.context.made("invalid_referer", "{header.Referer}", entries);
        Some(format!("{{map.{name}}}"))
    }
}

/// Returns the expression for the pages of a name: a host, whose first or last label may be `*`, and the start of a path.
fn pages(page: &str) -> String {
    let page = without_port(page);
    let (host, path) = page.find('/').map_or((&*page, ""), |slash| page.split_at(slash));
    let host = match (host.strip_prefix("*."), host.strip_suffix(".*")) {
        (Some(name), _) => format!("[^/:?#]+\\.{}", regex::escape(name)),
        (None, Some(name)) => format!("{}\\.[^/:?#]+", regex::escape(name)),
        _ => regex::escape(host),
    };
    match path {
        "" => format!("{host}(?:[:/?#]|$)"),
        path => format!("{host}(?::[0-9]+)?{}", regex::escape(path)),
    }
}

/// nginx does not compare ports.
fn without_port(page: &str) -> String {
    let (host, path) = page.find('/').map_or((page, ""), |slash| page.split_at(slash));
    let host = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    format!("{host}{path}")
}

/// Returns the key `signed` for `secure_link` and the text of `secure_link_md5`.
fn signed(link: &str, text: &str) -> Result<Value, String> {
    let (signature, expires) = match link.split_once(',') {
        Some((signature, expires)) => (signature, Some(expires)),
        None => (link, None),
    };
    let parameter = |word: &str| {
        word.strip_prefix("$arg_")
            .filter(|name| !name.is_empty() && !name.contains('$'))
            .map(str::to_owned)
            .ok_or_else(|| format!("{word} is not a parameter of the query"))
    };
    let signature = parameter(signature)?;
    let expires = expires.map(parameter).transpose()?;
    let mut signed = String::new();
    let secret = secret(text).ok_or("its text has no secret")?;
    let mut is_known = false;
    for part in parts(text) {
        match part {
            Part::Text(text) if text.contains(['{', '}']) => return Err("a brace".to_owned()),
            Part::Text(text) if !is_known && text.trim() == secret => {
                is_known = true;
                signed.push_str(&text.replacen(&secret, "{secret}", 1));
            }
            Part::Text(text) => signed.push_str(text),
            Part::Variable(name) => signed.push_str(match name {
                "uri" | "document_uri" => "{path}",
                "remote_addr" => "{client}",
                "host" => "{host}",
                "secure_link_expires" if expires.is_some() => "{expires}",
                name if expires.as_deref() == name.strip_prefix("arg_") && expires.is_some() => {
                    "{expires}"
                }
                name => return Err(format!("${name} is in its text")),
            }),
        }
    }
    let needed = ["{path}", "{secret}"].into_iter().chain(expires.as_ref().map(|_| "{expires}"));
    for name in needed {
        if !signed.contains(name) {
            return Err(format!("its text has no {name}"));
        }
    }
    let mut table = Value::table([
        ("secret", Value::text(secret)),
        ("algorithm", Value::text("md5")),
        ("signature", Value::text(signature)),
    ]);
    if let Some(expires) = expires {
        table.set("expires", Value::text(expires));
    }
    table.set("text", Value::text(signed));
    Ok(table)
}

/// Returns the longest text without variables.
fn secret(text: &str) -> Option<String> {
    let texts = parts(text).into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.trim().to_owned()),
        Part::Variable(_) => None,
    });
    texts.max_by_key(String::len).filter(|secret| !secret.is_empty())
}

#[cfg(test)]
mod tests {
    use super::signed;

    #[test]
    fn signed_links_have_the_text_of_nginx() {
        let table = signed("$arg_md5,$arg_expires", "$secure_link_expires$uri$remote_addr secret");
        let expected = "{ secret = \"secret\", algorithm = \"md5\", signature = \"md5\", expires = \"expires\", text = \"{expires}{path}{client} {secret}\" }";
        assert_eq!(table.unwrap().to_string(), expected);
        let table = signed("$arg_st", "word$uri").unwrap().to_string();
        assert!(table.ends_with("text = \"{secret}{path}\" }"), "{table}");
        for (link, text) in [
            ("$cookie_a", "$uri s"),
            ("$arg_a,$arg_b", "$uri s"),
            ("$arg_a", "$uri"),
            ("$arg_a", "s"),
            ("$arg_a", "$uri$http_x s"),
        ] {
            assert!(signed(link, text).is_err(), "{link} {text}");
        }
    }
}
