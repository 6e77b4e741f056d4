//! The key `signed`: links that are valid with a signature only.

use super::file::{LinkAlgorithm, Route, Secret, SignedTable};
use super::report::Report;
use super::spanned::Spanned;
use super::template::Template;

/// The rules of signed links.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedRules {
    /// The secret.
    pub secret: Secret,
    /// How links are signed.
    pub algorithm: LinkAlgorithm,
    /// Parameter of the query with the signature.
    pub signature: String,
    /// Parameter of the query with the time of expiry; `None` if links do not expire.
    pub expires: Option<String>,
    /// The text that is signed.
    pub text: Template,
}

impl SignedRules {
    /// Checks the key `signed` of a route; `None` if it is absent or faulty.
    pub(crate) fn read(route: &Route, report: Report<'_>) -> Option<Self> {
        let at = route.signed.as_ref()?;
        let SignedTable { secret, algorithm, signature, expires, text } = &at.value;
        let algorithm = algorithm.as_deref().copied().unwrap_or_default();
        let is_md5 = algorithm == LinkAlgorithm::Md5;
        if secret.reveal().is_empty() {
            report(&secret.span, "signed: the secret is empty, so that everyone could sign".into());
        }
        for (key, name) in [("signature", signature), ("expires", expires)] {
            if let Some(name) = name.as_ref().filter(|name| !is_parameter(name)) {
                let what = format!(
                    "signed: {key}: {:?} is not the name of a parameter of the query, of letters, digits, \"-\", \"_\" and \".\"",
                    name.value
                );
                report(&name.span, what);
            }
        }
        let name = at.value.signature_name();
        if let Some(same) = expires.as_ref().filter(|expires| expires.value == name) {
            let what = format!("signed: {name:?} cannot be both `signature` and `expires`");
            report(&same.span, what);
        }
        let default = if expires.is_some() { "{expires} {path}" } else { "{path}" };
        let default = if is_md5 { format!("{default} {{secret}}") } else { default.into() };
        let shown =
            text.clone().unwrap_or_else(|| Spanned { value: default, span: at.span.clone() });
        let mut known = vec!["path", "client", "host"];
        known.extend(expires.is_some().then_some("expires"));
        known.extend(is_md5.then_some("secret"));
        let mut fault = |what: String| report(&shown.span, format!("signed: text: {what}"));
        let text = Template::parse(&shown, &known).map_err(&mut fault).ok()?;
        let mut needed = vec!["path"];
        needed.extend(expires.is_some().then_some("expires"));
        needed.extend(is_md5.then_some("secret"));
        for name in needed {
            if !shown.contains(&format!("{{{name}}}")) {
                let what = match name {
                    "path" => "it lacks {path}, so that a link would open every path",
                    "expires" => "it lacks {expires}, so that everyone could change the time",
                    _ => "it lacks {secret}, so that everyone could sign",
                };
                fault(what.into());
            }
        }
        let (secret, signature) = (secret.value.clone(), name.to_owned());
        let expires = expires.as_ref().map(|name| name.value.clone());
        Some(Self { secret, algorithm, signature, expires, text })
    }

    /// Describes the rules.
    pub(crate) fn describe(&self) -> String {
        let Self { algorithm, signature, expires, text, .. } = self;
        let algorithm = match algorithm {
            LinkAlgorithm::HmacSha256 => "hmac-sha256",
            LinkAlgorithm::Md5 => "md5",
        };
        let until =
            expires.as_ref().map_or("without expiry".into(), |name| format!("until {name}"));
        // The text of the file may have a secret from elsewhere in it.
        format!("{algorithm} in {signature}, {until}, of {:?}", text.to_string())
    }
}

/// Returns `true` if the name is that of a parameter of a query, which needs no encoding.
pub(crate) fn is_parameter(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}
