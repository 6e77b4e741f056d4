//! The keys `substitute` and `ssi`: changes of the bodies of responses.

use std::sync::Arc;

use dunlin_transform::substitute::{Pattern, Patterns};

use super::file::{Route, RouteSsi, SsiTable, SubstituteTable};
use super::handler::Handler;
use super::report::Report;
use super::spanned::{Span, Spanned};
use super::template::reject_variables;

/// The changes of the bodies of a route's responses, in the order in which they are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Transforms {
    /// Texts that are replaced.
    pub substitutions: Vec<Substitution>,
    /// The documents with server-side includes; `None` if there are none.
    pub ssi: Option<MediaTypes>,
}

/// Texts that are replaced in responses with the same media types.
#[derive(Debug, Clone)]
pub struct Substitution {
    /// The media types.
    pub types: MediaTypes,
    /// The texts.
    pub patterns: Patterns,
    listed: Vec<Pattern>,
}

/// A set of media types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaTypes(Vec<String>);

/// The maximum number of texts of a route.
const MAX_TEXTS: usize = 100;
/// The maximum length of a text that is searched for.
const MAX_LENGTH: usize = 1024;
/// The placeholders of texts.
const PLACEHOLDERS: &[&str] = &["host", "scheme"];

impl PartialEq for Substitution {
    fn eq(&self, other: &Self) -> bool {
        self.types == other.types && self.listed == other.listed
    }
}

impl MediaTypes {
    fn read(names: Option<&Vec<Spanned<String>>>, key: &str, report: Report<'_>) -> Self {
        let Some(names) = names else { return Self(vec!["text/html".into()]) };
        for Spanned { value, span } in names {
            let is_type = value.split_once('/').is_some_and(|(kind, name)| {
                !kind.is_empty() && !name.is_empty() && !value.contains([';', ' '])
            });
            if !is_type && value != "*" {
                report(span, format!("{key}: {value:?} is not a media type such as \"text/css\""));
            }
        }
        Self(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Returns `true` if a value of `Content-Type` is one of them.
    pub fn has(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|&byte| byte == b';');
        let media_type = content_type[..end.unwrap_or(content_type.len())].trim_ascii();
        let mut names = self.0.iter();
        names.any(|name| name == "*" || media_type.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl Transforms {
    /// Reads the keys of a merged route; `None` if its bodies are sent as they are.
    pub(super) fn read(route: &Route, handler: &Handler, report: Report<'_>) -> Option<Arc<Self>> {
        let substitutions = substitutions(route, report);
        let ssi = match route.ssi.as_deref() {
            None | Some(RouteSsi::Switch(false)) => None,
            Some(RouteSsi::Switch(true)) => Some(SsiTable::default()),
            Some(RouteSsi::Table(table)) => Some(table.clone()),
        };
        let ssi = ssi.map(|table| MediaTypes::read(table.types.as_ref(), "ssi", report));
        // The server's own pages have no content of the site.
        let is_own = matches!(handler, Handler::Status(_) | Handler::Readiness);
        let has_any = ssi.is_some() || !substitutions.is_empty();
        (has_any && !is_own).then(|| Arc::new(Self { substitutions, ssi }))
    }

    /// Returns `true` if bodies of this type are changed.
    pub fn concern(&self, content_type: &[u8]) -> bool {
        self.ssi.as_ref().is_some_and(|types| types.has(content_type))
            || self.substitutions.iter().any(|of| of.types.has(content_type))
    }

    /// Describes the substitutions in one line.
    pub(super) fn describe_substitutions(&self) -> String {
        let texts = self.substitutions.iter().map(|substitution| {
            let texts = substitution.listed.iter().map(|pattern| {
                let once = if pattern.once { " once" } else { "" };
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                format!("{:?} = {:?}{once}", text(&pattern.from), text(&pattern.to))
            });
            format!(
                "{} in {}",
                texts.collect::<Vec<_>>().join(", "),
                substitution.types.0.join(", ")
            )
        });
        texts.collect::<Vec<_>>().join("; ")
    }

    /// Describes the includes in one line.
    pub(super) fn describe_ssi(&self) -> String {
        self.ssi.as_ref().map_or("false".into(), |types| format!("in {}", types.0.join(", ")))
    }
}

fn substitutions(route: &Route, report: Report<'_>) -> Vec<Substitution> {
    let Some(Spanned { value, span }) = &route.substitute else { return Vec::new() };
    if value.0.len() > MAX_TEXTS {
        report(span, format!("substitute: there are more than {MAX_TEXTS} texts"));
        return Vec::new();
    }
    let mut grouped: Vec<(MediaTypes, Vec<Pattern>)> = Vec::new();
    for table in &value.0 {
        let pattern = pattern(table, span, report);
        let types = MediaTypes::read(table.types.as_ref(), "substitute", report);
        match grouped.iter_mut().find(|(other, _)| *other == types) {
            Some((_, patterns)) => patterns.push(pattern),
            None => grouped.push((types, vec![pattern])),
        }
    }
    let mut substitutions = Vec::new();
    for (types, listed) in grouped {
        match Patterns::new(listed.clone()) {
            Ok(patterns) => substitutions.push(Substitution { types, patterns, listed }),
            Err(error) => report(span, format!("substitute: {error}")),
        }
    }
    substitutions
}

fn pattern(table: &SubstituteTable, span: &Span, report: Report<'_>) -> Pattern {
    // A table of texts has no positions of its own.
    let place = |text: &Spanned<String>| text.span.clone().or_else(|| span.clone());
    let SubstituteTable { from, to, once, .. } = table;
    let mut problem = |text, what: String| report(&place(text), format!("substitute: {what}"));
    match from.len() {
        0 => problem(from, "the text that is replaced is empty".into()),
        1..=MAX_LENGTH => {}
        _ => problem(from, format!("the text that is replaced has more than {MAX_LENGTH} bytes")),
    }
    if let Err(what) = reject_variables(from, &[]) {
        problem(from, what);
    }
    if let Err(what) = reject_variables(to, PLACEHOLDERS) {
        problem(to, what);
    }
    let bytes = |text: &Spanned<String>| text.value.clone().into_bytes().into();
    Pattern { from: bytes(from), to: bytes(to), once: *once }
}
