//! Secrets: the names of values that are secret, and the text of a file without them.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{LazyLock, Mutex, PoisonError};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Parts of the names of fields, parameters and variables whose values are credentials, in lower case, without separators.
const PARTS: [&str; 27] = [
    "accesskey",
    "apikey",
    "assertion",
    "authkey",
    "authorization",
    "bearer",
    "clientcert",
    "cookie",
    "credential",
    "csrf",
    "dpop",
    "hmac",
    "jwt",
    "masterkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "secwebsocketprotocol",
    "sessid",
    "sessionid",
    "signature",
    "sslcert",
    "subscriptionkey",
    "token",
    "xsrf",
];
/// Last words of such names, in lower case. Within other words they mean nothing.
const LAST_WORDS: [&str; 7] = ["auth", "otp", "pass", "pwd", "session", "sid", "sig"];
/// Keys of the configuration whose value is a secret.
const SECRET_KEYS: [&str; 3] = ["access_key", "secret", "secret_key"];
/// Tables of the configuration whose values may all be secrets.
const SECRET_TABLES: [&str; 3] = ["env", "environment", "set_request_fields"];
/// The key of the configuration with the words of a command.
const COMMAND: &str = "command";
/// The table of the configuration with fields of responses.
const FIELDS: &str = "set_fields";

/// The key of the hash that stands in place of secrets. It differs in each process, so that guesses cannot be tried.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Returns `true` if the value of a field, parameter or variable of this name is a credential. Case does not matter, nor how the
/// name separates its words.
pub fn is_secret_name(name: &[u8]) -> bool {
    let separates = |byte: &u8| matches!(byte, b'-' | b'_' | b'.' | b'[' | b']');
    let letters = name.iter().filter(|byte| !separates(byte));
    let plain: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    let has = |part: &str| plain.windows(part.len()).any(|window| window == part.as_bytes());
    let last = name.split(separates).rfind(|word| !word.is_empty()).unwrap_or_default();
    PARTS.into_iter().any(has)
        || LAST_WORDS.iter().any(|word| last.eq_ignore_ascii_case(word.as_bytes()))
}

/// Values that stand outside of the configuration, with their names.
static ELSEWHERE: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Values that are shorter may be parts of other words.
const MIN_VALUE: usize = 4;

/// Notes a value that no message shows, and the name that stands in its place.
pub(crate) fn never_show(value: &str, name: &str) {
    let mut all = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    // Messages quote values.
    let quoted = format!("{value:?}");
    for form in [value, quoted.trim_matches('"')] {
        if form.len() >= MIN_VALUE && !all.iter().any(|(other, _)| other == form) {
            all.push((form.to_owned(), name.to_owned()));
        }
    }
    // A value may be a part of another one.
    all.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
}

/// Returns the text without values that stand outside of the configuration.
pub fn masked(text: &str) -> String {
    let all = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().fold(text.to_owned(), |text, (value, name)| text.replace(value, name))
}

/// Returns what stands in place of a secret: the same for the same secret in this process.
fn hidden(secret: &str) -> String {
    format!("hidden-{:08x}", KEY.hash_one(secret) as u32)
}

/// Returns the value of a field as it may be shown.
pub(crate) fn field(name: &str, value: &str) -> String {
    if is_secret_name(name.as_bytes()) { hidden(value) } else { url(value) }
}

/// Returns the text with a hash in place of each secret of a URL.
pub(crate) fn url(text: &str) -> String {
    without_passwords(text).unwrap_or_else(|| text.to_owned())
}

/// Returns the words of a command in one line, without the values of options and variables whose names are those of credentials.
pub(crate) fn command(words: &[String]) -> String {
    let mut before = "";
    let mut shown = Vec::new();
    for word in words {
        shown.push(
            command_word(before, word, |_| "REDACTED".into()).unwrap_or_else(|| word.clone()),
        );
        before = word;
    }
    shown.join(" ")
}

/// Returns the word of a command that follows another one, without its secrets; `None` if it has none. `hide` returns what stands
/// in place of a secret.
fn command_word(before: &str, word: &str, hide: impl Fn(&str) -> String + Copy) -> Option<String> {
    let names_secret = |name: &str| is_secret_name(name.as_bytes());
    if before.starts_with('-') && !before.contains('=') && names_secret(before) && !word.is_empty()
    {
        return Some(hide(word));
    }
    // A text, such as a line for a shell, or a field with its value.
    if word.contains(char::is_whitespace) {
        return is_secret_name(word.as_bytes())
            .then(|| hide(word))
            .or_else(|| without_passwords(word));
    }
    match word.split_once('=') {
        Some((name, value)) if !name.contains("://") => {
            let shown = match names_secret(name) && !value.is_empty() {
                true => hide(value),
                false => command_word("", value, hide)?,
            };
            Some(format!("{name}={shown}"))
        }
        _ => without_passwords(word),
    }
}

/// The start of a private key or certificate in PEM form, after which a message is cut.
const PEM: &str = "-----BEGIN";

/// Returns a message as it may be shown: in one line, without the passwords of URLs, and without PEM text that stands where the
/// name of a file belongs.
pub(crate) fn message(text: &str) -> String {
    let text = &masked(text);
    let text = match text.split_once(PEM) {
        Some((before, _)) => {
            format!(
                "{before}{PEM} …: this is no name of a file; write the text into a file, and name it here"
            )
        }
        None => text.replace('\n', "\\n").replace('\r', "\\r"),
    };
    with_hidden(&text, passwords(&text))
}

/// Returns the text of a file with a hash in place of each secret, and without its comments, which may have earlier ones. A
/// text that is not TOML is left out completely.
pub(crate) fn hide(text: &str) -> String {
    let Ok(table) = DeTable::parse(text) else { return String::new() };
    let mut edits = Edits::default();
    edits.add_table(table.get_ref(), Place::Settings);
    edits.add_comments(text);
    edits.apply(text)
}

/// The place of a value.
#[derive(Clone, Copy)]
enum Place {
    /// The key is one of the configuration.
    Settings,
    /// The key is the name of a field.
    Fields,
    /// It is a secret, whatever its key.
    Secrets,
}

/// The replacements in a text.
#[derive(Default)]
struct Edits {
    /// The bytes, and what replaces them.
    found: Vec<(Range<usize>, String)>,
    /// The bytes of keys and values, in which no comment begins.
    words: Vec<Range<usize>>,
}

impl Edits {
    fn add_table(&mut self, table: &DeTable<'_>, place: Place) {
        for (key, value) in table {
            self.words.push(key.span());
            let name = &**key.get_ref();
            let place = match place {
                Place::Fields if is_secret_name(name.as_bytes()) => Place::Secrets,
                Place::Settings if SECRET_KEYS.contains(&name) || SECRET_TABLES.contains(&name) => {
                    Place::Secrets
                }
                Place::Settings if name == FIELDS => Place::Fields,
                place => place,
            };
            match value.get_ref() {
                DeValue::Array(words) if name == COMMAND && matches!(place, Place::Settings) => {
                    self.add_command(words);
                }
                _ => self.add_value(value, place),
            }
        }
    }

    fn add_command(&mut self, words: &DeArray<'_>) {
        let mut before = "";
        for word in words {
            let DeValue::String(text) = word.get_ref() else { continue };
            self.words.push(word.span());
            if let Some(shown) = command_word(before, text, hidden) {
                self.found.push((word.span(), toml::Value::String(shown).to_string()));
            }
            before = text;
        }
    }

    fn add_value(&mut self, value: &Spanned<DeValue<'_>>, place: Place) {
        match value.get_ref() {
            DeValue::Table(table) => self.add_table(table, place),
            DeValue::Array(array) => array.iter().for_each(|value| self.add_value(value, place)),
            DeValue::String(text) => {
                self.words.push(value.span());
                let secret = match place {
                    Place::Secrets => Some(hidden(text)),
                    Place::Settings | Place::Fields => without_passwords(text),
                };
                if let Some(hidden) = secret {
                    self.found.push((value.span(), toml::Value::String(hidden).to_string()));
                }
            }
            _ => {}
        }
    }

    /// Removes what follows a `#` outside of keys and values.
    fn add_comments(&mut self, text: &str) {
        self.words.sort_by_key(|word| word.start);
        let mut words = self.words.iter().peekable();
        let mut end = 0;
        for (at, _) in text.match_indices('#') {
            while let Some(word) = words.next_if(|word| word.start <= at) {
                end = end.max(word.end);
            }
            if at >= end {
                end = text[at..].find('\n').map_or(text.len(), |length| at + length);
                self.found.push((at..end, String::new()));
            }
        }
    }

    fn apply(mut self, text: &str) -> String {
        self.found.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        let mut text = text.to_owned();
        for (span, value) in self.found {
            text.replace_range(span, &value);
        }
        text
    }
}

/// Returns a URL, or a path with a query, with a hash in place of its password and of secret parameters of its query; `None` if the
/// text has neither. A text around URLs is kept.
fn without_passwords(text: &str) -> Option<String> {
    let mut secrets = passwords(text);
    secrets.extend(secret_parameters(text));
    (!secrets.is_empty()).then(|| with_hidden(text, secrets))
}

/// Returns the places of the passwords of URLs in a text (RFC 3986, section 3.2.1). A password with `?` or `#` is found, too, although
/// such a text is no URL.
fn passwords(text: &str) -> Vec<Range<usize>> {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '/' | '"' | '\'' | '`');
    let of_url = |(at, mark): (usize, &str)| {
        let start = at + mark.len();
        let authority = text[start..].split(ends).next().unwrap_or_default();
        let end = authority.rfind('@')?;
        let colon = authority[..end].find(':')?;
        Some(start + colon + 1..start + end).filter(|password| !password.is_empty())
    };
    text.match_indices("://").filter_map(of_url).collect()
}

/// Returns the places of the secret parameters in the query of a URL or path.
fn secret_parameters(text: &str) -> Vec<Range<usize>> {
    let mut secrets = Vec::new();
    if !text.contains("://") && !text.starts_with('/') && !text.starts_with("unix:") {
        return secrets;
    }
    let mut start = text.find('?').map_or(text.len(), |mark| mark + 1);
    while start < text.len() {
        let end = text[start..].find('&').map_or(text.len(), |length| start + length);
        if let Some(sign) = text[start..end].find('=')
            && is_secret_name(&text.as_bytes()[start..start + sign])
            && start + sign + 1 < end
        {
            secrets.push(start + sign + 1..end);
        }
        start = end + 1;
    }
    secrets
}

/// Returns the text with a hash in place of each secret. Secrets that overlap have one.
fn with_hidden(text: &str, mut secrets: Vec<Range<usize>>) -> String {
    secrets.sort_by_key(|secret| secret.start);
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    let mut secrets = secrets.into_iter().peekable();
    while let Some(mut secret) = secrets.next() {
        while let Some(next) = secrets.next_if(|next| next.start < secret.end) {
            secret.end = secret.end.max(next.end);
        }
        shown.push_str(&text[at..secret.start]);
        shown.push_str(&hidden(&text[secret.clone()]));
        at = secret.end;
    }
    shown + &text[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_neither_passwords_of_urls_nor_keys() {
        let shown = message(
            "proxy: \"http://u:s3cr3t@[bad\" is none such as \"http://a\" or \"h2c://b:1\"",
        );
        assert!(
            !shown.contains("s3cr3t") && shown.starts_with("proxy: \"http://u:hidden-"),
            "{shown}"
        );
        assert!(
            shown.ends_with("@[bad\" is none such as \"http://a\" or \"h2c://b:1\""),
            "{shown}"
        );
        let shown = message("two: http://a:s3cr3t@b and redis://:s3cr3t@c/0");
        assert!(!shown.contains("s3cr3t") && shown.contains("@b and redis://:hidden-"), "{shown}");
        let shown = message("key /etc/-----BEGIN PRIVATE KEY-----\nMIGHAgEA: No such file");
        assert!(shown.starts_with("key /etc/-----BEGIN …: this is no name of a file"), "{shown}");
        assert!(!shown.contains("MIGH"));
        assert_eq!(message("a\nb http://h:80/x@y"), "a\\nb http://h:80/x@y");
        assert_eq!(message("http://h/?token=a is none"), "http://h/?token=a is none");
        for odd in ["redis://:s3#cr3t@h", "redis://:s3?cr3t@h/", "http://h?token=s3:cr3t@c"] {
            for shown in [message(odd), url(odd)] {
                assert!(!shown.contains("cr3t") && shown.contains("hidden-"), "{shown}");
            }
        }
        let two = url("curl http://a:s3cr3t@b/ http://c:s3cr3t@d/?x=1&token=s3cr3t");
        assert!(!two.contains("s3cr3t") && two.matches("hidden-").count() == 3, "{two}");
    }

    #[test]
    fn names_of_credentials_are_recognized_in_every_spelling() {
        for name in [
            "Authorization",
            "PROXY-AUTHORIZATION",
            "Set-Cookie",
            "X-Vault-Token",
            "Private-Token",
            "x-amz-security-token",
            "X_Api_Key",
            "X-ApiKey",
            "Client-Cert",
            "X-Forwarded-Client-Cert",
            "Sec-WebSocket-Protocol",
            "X-Hub-Signature-256",
            "DB_PASSWORD",
            "X.Secret",
            "X-CSRF",
            "X-Goog-IAP-JWT-Assertion",
            "X-AccessKey",
            "x_auth_key",
            "X-PrivateKey",
            "X-ARR-ClientCert",
            "X-SSL-Cert",
            "Ocp-Apim-Subscription-Key",
            "X-Parse-Master-Key",
            "X-Shopify-Hmac-Sha256",
            "X-Auth",
            "Auth",
            "X-Session",
            "X-Session-Id",
            "PHPSESSID",
            "sid",
            "DB_PASS",
            "X-Pwd",
            "X-GitHub-OTP",
            "sig",
            "user[pass]",
            "user[password]",
            "AWSAccessKeyId",
        ] {
            assert!(is_secret_name(name.as_bytes()), "{name}");
        }
        for name in [
            "Accept",
            "Host",
            "X-Forwarded-For",
            "WWW-Authenticate",
            "ETag",
            "Key",
            "Sec-WebSocket-Key",
            "X-Auth-Request-User",
            "X-Pass-Through",
            "author",
            "design",
            "",
            "-",
        ] {
            assert!(!is_secret_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn commands_are_shown_without_the_values_of_secret_options() {
        for (before, shown) in [
            (
                &["a", "-b", "--port=80", "x=y", "/srv/token/run"][..],
                "a -b --port=80 x=y /srv/token/run",
            ),
            (&["a", "--token", "S3", "b"], "a --token REDACTED b"),
            (&["a", "--token=S3", "-password", "S3"], "a --token=REDACTED -password REDACTED"),
            (&["env", "DB_PASSWORD=S3", "b"], "env DB_PASSWORD=REDACTED b"),
            (&["a", "-e", "PGPASSWORD=S3=4"], "a -e PGPASSWORD=REDACTED"),
            (
                &["java", "-Dapi.secret=S3", "--set=api_key=S3"],
                "java -Dapi.secret=REDACTED --set=api_key=REDACTED",
            ),
            (&["sh", "-c", "DB_PASSWORD=S3 exec b"], "sh -c REDACTED"),
            (&["a", "-H", "Authorization: Bearer S3"], "a -H REDACTED"),
            (&["a", "redis://u:pw@h/", "--db=redis://u:pw@h/"], "URLS"),
            (&["a", "--token=", "--secret", ""], "a --token= --secret "),
            (&["--token"], "--token"),
            (&[], ""),
        ] {
            let words: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
            let text = command(&words);
            if shown == "URLS" {
                assert!(!text.contains("pw@") && text.contains("redis://u:hidden-"), "{text}");
            } else {
                assert_eq!(text, shown);
            }
            let file = hide(&format!("[[site.route]]\nscript = {{ command = {words:?} }}\n"));
            assert!(!file.contains("S3") && !file.contains("pw@"), "{file}");
            assert!(file.parse::<toml::Table>().is_ok(), "{file}");
        }
    }

    #[test]
    fn secrets_are_replaced_wherever_they_stand() {
        let one = "store.s3 = { secret_key = \"one\", access_key = 'one-id', credentials = 'a' }\n\
                   [store.az]\nsecret_key = '''two'''\n";
        let hidden = hide(one);
        assert!(!hidden.contains("one") && !hidden.contains("two"), "{hidden}");
        assert!(hidden.contains("credentials = 'a'"), "{hidden}");
        assert_eq!(hide(one), hidden);
        assert_ne!(hide(&one.replace("one", "other")), hidden);
        assert!(toml::from_str::<toml::Table>(&hidden).is_ok());
        assert_eq!(hide("secret_key = [broken"), "");
        // Nothing is taken for what stands in place of a secret.
        assert!(!hide("secret_key = 'hidden-12345678'").contains("12345678"));
    }

    #[test]
    fn fields_variables_and_comments_of_a_route_are_replaced() {
        let text = r##"
[[site.route]]
path = "/*"                         # secret = "FORMER"
set_fields = { X-Kind = "SHOWN # 1", X-Api-Token = "HIDDEN", "Set-Cookie" = "a=HIDDEN" }
auth.forward = "http://auth.test/?user=SHOWN&token=HIDDEN&sig=HIDDEN"
# redis://u:FORMER@host
[site.route.proxy]
to = "http://a.test"
sticky = { cookie = "SHOWN", secret = "HIDDEN-HIDDEN-HIDDEN" }
set_request_fields = { Authorization = "Bearer HIDDEN", X-Origin-Verify = "HIDDEN" }
[site.route.script]
environment.KEY = 'HIDDEN'
env = { DB_PASSWORD = "HIDDEN", DB = """HIDDEN
# HIDDEN""" } # FORMER"##;
        let hidden = hide(text);
        assert!(!hidden.contains("HIDDEN") && !hidden.contains("FORMER"), "{hidden}");
        assert_eq!(hidden.matches("SHOWN").count(), 3, "{hidden}");
        assert!(toml::from_str::<toml::Table>(&hidden).is_ok(), "{hidden}");
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
        let without = "url = \"redis://user@host:1/a:b\"\nto = 'http://[::1]:80/x@y'\nproxy = 'http://h:1/?u=a@b'\n";
        assert_eq!(hide(without), without);
    }
}
