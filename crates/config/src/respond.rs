//! The table `respond`: a fixed response.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use dunlin_http::semantics::status;

use super::facts::Facts;
use super::file::RespondTable;
use super::map::Maps;
use super::methods::MethodRules;
use super::pattern::Pattern;
use super::report::{Report, field_value};
use super::request_value::Piece;
use super::spanned::Spanned;
use super::template::{Template, reject_variables, with_groups};

/// A fixed response.
#[derive(Debug, Clone, PartialEq)]
pub struct Respond {
    /// The status.
    pub status: u16,
    body: Body,
    /// The media type.
    pub content_type: String,
    /// The methods of requests that get it; `None` for all.
    pub methods: Option<MethodRules>,
}

#[derive(Debug, Clone, PartialEq)]
enum Body {
    Fixed(Bytes),
    Template { template: Template, pattern: Pattern },
}

impl Respond {
    /// The response of a site that cannot decide on a request.
    pub(super) const FAILURE: Self = Self {
        status: 500,
        body: Body::Fixed(Bytes::new()),
        content_type: String::new(),
        methods: None,
    };

    /// Returns the template of the body; `None` if the body is fixed.
    pub(super) fn template(&self) -> Option<&Template> {
        match &self.body {
            Body::Fixed(_) => None,
            Body::Template { template, .. } => Some(template),
        }
    }

    /// Returns the body for a request.
    pub fn body(&self, facts: &Facts<'_>) -> Bytes {
        match &self.body {
            Body::Fixed(body) => body.clone(),
            Body::Template { template, pattern } => {
                let escape = escape_for(&self.content_type);
                let captures = pattern.captures(facts.path);
                let named = |name: &str, add: &mut dyn FnMut(Piece<'_>)| {
                    let group = || captures.group(name).unwrap_or_default();
                    add(Piece::Value(if name == "rest" { captures.rest() } else { group() }));
                };
                let mut text = Vec::new();
                let mut add = |piece: Piece<'_>| match piece {
                    Piece::Text(part) => text.extend_from_slice(part.as_bytes()),
                    // The encoding of a URL is not that of the body.
                    Piece::Value(value) | Piece::Encoded(value) => escape(value, &mut text),
                };
                template.pieces(Some(facts), &mut add, named);
                text.into()
            }
        }
    }

    /// Returns the length of the body in bytes; `None` if it depends on the request.
    pub fn length(&self) -> Option<usize> {
        match &self.body {
            Body::Fixed(body) => Some(body.len()),
            Body::Template { .. } => None,
        }
    }
}

/// Returns how values of requests are escaped in a body of that media type.
fn escape_for(content_type: &str) -> fn(&[u8], &mut Vec<u8>) {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &*kind {
        kind if kind.contains("html") || kind.contains("xml") => escape_markup,
        kind if kind.contains("json") || kind.contains("javascript") => escape_json,
        _ => |value, text| text.extend_from_slice(value),
    }
}

/// Appends a value for a text of HTML or XML, or an attribute in quotes.
fn escape_markup(value: &[u8], text: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'&' => text.extend_from_slice(b"&amp;"),
            b'<' => text.extend_from_slice(b"&lt;"),
            b'>' => text.extend_from_slice(b"&gt;"),
            b'"' => text.extend_from_slice(b"&quot;"),
            b'\'' => text.extend_from_slice(b"&#39;"),
            byte => text.push(*byte),
        }
    }
}

/// Appends a value for a JSON string, which may stand in a script of a page.
fn escape_json(value: &[u8], text: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(value).chars() {
        match character {
            '"' | '\'' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                text.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
            }
            character => text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Checks `table` and fills in its defaults; `pattern` belongs to its route.
pub(super) fn read(
    table: &Spanned<RespondTable>,
    pattern: &Pattern,
    maps: &Maps,
    report: Report<'_>,
) -> Respond {
    let code = table.status.as_deref().copied().unwrap_or(200);
    let place = table.status.as_ref().and_then(|status| status.span.clone());
    if !(200..600).contains(&code) {
        report(&place, format!("respond: {code} is not a status between 200 and 599"));
    }
    let content_type = field_value("respond", table.content_type.as_ref(), report);
    let content_type = content_type.unwrap_or_else(|| "text/plain; charset=utf-8".into());
    let fixed = table.body.as_deref().cloned().unwrap_or_default();
    if let (Some(at), Err(what)) = (&table.body, reject_variables(&fixed, &[])) {
        report(&at.span, format!("respond: {what}; write `template` in place of `body`"));
    }
    let has_body = !fixed.is_empty() || table.template.is_some() || table.base64.is_some();
    if has_body && !status::allows_content(code) {
        report(&place, format!("respond: a {code} has no body"));
    }
    let mut body = Body::Fixed(fixed.into());
    if let Some(text) = &table.base64 {
        if table.body.is_some() || table.template.is_some() {
            report(&text.span, "respond: it has one of `body`, `template` and `base64`".into());
        }
        match BASE64_STANDARD.decode(text.as_bytes()) {
            Ok(content) => body = Body::Fixed(content.into()),
            Err(error) => report(&text.span, format!("respond: base64: {error}")),
        }
    }
    if let Some(text) = &table.template {
        if table.body.is_some() {
            report(&text.span, "respond: it has either `body` or `template`".into());
        }
        let groups = pattern.capture_names();
        match Template::in_text(text, &with_groups(&["rest"], &groups), maps) {
            Ok(template) => {
                body = Body::Template { template, pattern: pattern.clone() };
            }
            Err(what) => report(&text.span, format!("respond: template: {what}")),
        }
    }
    let methods =
        table.methods.as_ref().map(|names| MethodRules::of(names, "respond: methods", report));
    Respond { status: code, body, content_type, methods }
}
