//! The keys `set_fields`, `remove_fields` and `set_request_fields`: fields that a route sets or removes.

use std::borrow::Cow;
use std::sync::Arc;

use dunlin_http::semantics::{host, is_field_value, is_token};

use super::facts::Facts;
use super::file::{Route, StatusRange};
use super::map::{Map, Maps};
use super::report::{Report, field_value};
use super::request_value::{Piece, RequestValue};
use super::response_value::{self, ResponseValue};
use super::secrets::is_secret_name;
use super::spanned::Spanned;
use super::template::{Segment, Template, names_values, reject_variables};

/// A response field that a route sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldToSet {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
    /// The statuses of the responses that get it; empty for all.
    pub status: Vec<StatusRange>,
    /// Only responses without the field get it.
    pub absent: bool,
}

impl FieldToSet {
    /// Returns `true` if the responses decide whether they get it.
    pub fn is_conditional(&self) -> bool {
        self.absent || !self.status.is_empty()
    }

    /// Returns `true` if a response with this status can get it.
    pub fn concerns(&self, status: u16) -> bool {
        is_in(&self.status, status)
    }

    /// Describes it in one line, with `value` in place of the value.
    pub(super) fn describe(&self, value: &str) -> String {
        let mut text = format!("{} = {value:?}", self.name);
        let ranges = self.status.iter().map(|StatusRange { first, last }| match first == last {
            true => first.to_string(),
            false => format!("{}xx", first / 100),
        });
        if !self.status.is_empty() {
            text.push_str(&format!(" for {}", ranges.collect::<Vec<_>>().join(", ")));
        }
        text.push_str(if self.absent { " if absent" } else { "" });
        text
    }
}

/// A part of the value of a response field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldPart {
    /// What is known with the request.
    Text(Vec<u8>),
    /// What is known with the response.
    Value(ResponseValue),
    /// The value of a map for a text that is known with the response.
    Mapped(ResponseMap, Vec<FieldPart>),
}

/// A map whose text is known with the response.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseMap(Arc<Map>);

impl ResponseMap {
    /// Returns the value for a text.
    pub fn value(&self, text: &[u8]) -> Vec<u8> {
        self.0.value_of(text)
    }
}

/// A response field whose value depends on the request, or on the response.
#[derive(Debug, Clone, PartialEq)]
pub struct ComputedField {
    /// The name.
    pub name: String,
    value: Template,
    /// The statuses of the responses that get it; empty for all.
    status: Vec<StatusRange>,
}

/// A response field of one request, whose value may need the response.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingField {
    /// The name.
    pub name: String,
    /// The parts of the value.
    pub parts: Vec<FieldPart>,
    status: Vec<StatusRange>,
}

impl PendingField {
    /// Returns `true` if a response with this status gets it.
    pub fn concerns(&self, status: u16) -> bool {
        is_in(&self.status, status)
    }
}

fn is_in(ranges: &[StatusRange], status: u16) -> bool {
    let has = |range: &StatusRange| (range.first..=range.last).contains(&status);
    ranges.is_empty() || ranges.iter().any(has)
}

impl ComputedField {
    /// Reads the fields of the key `set_fields` whose values name values of requests.
    pub(super) fn read(route: &Route, maps: &Maps, report: Report<'_>) -> Vec<Self> {
        let (mut fields, maps) = (Vec::new(), &maps.for_fields());
        for (name, field) in route.set_fields.iter().flat_map(|fields| &fields.value) {
            let known = response_value::names(&field.value.value);
            if !is_computed(&field.value.value) || may_set_in(route, name).is_err() {
                continue;
            }
            let is_vary = name.eq_ignore_ascii_case("vary");
            if field.absent || is_vary {
                let what = match is_vary {
                    true => {
                        "set_fields: Vary names fields of requests, without placeholders".to_owned()
                    }
                    false => format!(
                        "set_fields: {} has placeholders, which fields with `absent` cannot have",
                        name.value
                    ),
                };
                report(&field.span, what);
                continue;
            }
            let status = field.status.iter().flatten().map(|status| status.value).collect();
            match Template::in_text(&field.value.value, &known, maps) {
                Ok(value) => fields.push(Self { name: name.value.clone(), value, status }),
                Err(what) => report(&field.span, format!("set_fields: {what}")),
            }
        }
        fields
    }

    pub(super) fn template(&self) -> &Template {
        &self.value
    }

    /// Describes it in one line.
    pub(super) fn describe(&self) -> String {
        format!("{} = \"{}\"", self.name, self.value)
    }

    /// Returns the field for a request.
    pub fn of_request(&self, facts: &Facts<'_>) -> PendingField {
        let (name, status) = (self.name.clone(), self.status.clone());
        PendingField { name, parts: self.parts(facts), status }
    }

    fn parts(&self, facts: &Facts<'_>) -> Vec<FieldPart> {
        parts_of(&self.value, facts)
    }
}

/// Returns the parts of a value for a request.
fn parts_of(template: &Template, facts: &Facts<'_>) -> Vec<FieldPart> {
    let mut parts = Vec::new();
    for segment in template.segments() {
        match segment {
            Segment::Text(text) => add_text(Piece::Text(text), &mut parts),
            Segment::Named(name) => parts.extend(ResponseValue::parse(name).map(FieldPart::Value)),
            Segment::Value(RequestValue::Map(map)) if map.is_of_response() => {
                let from = parts_of(map.from(), facts);
                parts.push(FieldPart::Mapped(ResponseMap(Arc::clone(map)), from));
            }
            Segment::Value(value) => {
                value.pieces(facts, &mut |piece| add_text(piece, &mut parts));
            }
        }
    }
    parts
}

fn add_text(piece: Piece<'_>, parts: &mut Vec<FieldPart>) {
    match parts.last_mut() {
        Some(FieldPart::Text(text)) => piece.push_plain(text),
        _ => {
            let mut text = Vec::new();
            piece.push_plain(&mut text);
            parts.push(FieldPart::Text(text));
        }
    }
}

/// A field of requests to upstreams.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestField {
    /// The name.
    pub name: String,
    value: Template,
}

impl RequestField {
    /// Placeholders that the proxy knows, besides the values of requests: the target and its path as they are forwarded, the port
    /// of the host, the user, `1` for early data of TLS, and the ID of the request.
    const NAMED: [&str; 6] = ["target", "path", "port", "user", "early", "request_id"];

    /// Reads an entry of the key `set_request_fields`.
    ///
    /// # Errors
    /// There is no such map, or the name of a field or cookie is invalid.
    pub(super) fn new(name: &str, value: &str, maps: &Maps) -> Result<Self, String> {
        let value = Template::in_text(value, &Self::NAMED, maps)?;
        Ok(Self { name: name.to_owned(), value })
    }

    /// Reads the host of requests to upstreams.
    ///
    /// # Errors
    /// As [`RequestField::new`], or the text is no host, or a client could choose it freely.
    pub(super) fn host(value: &str, maps: &Maps) -> Result<Self, String> {
        let field = Self::new("Host", value, maps)?;
        if field.value.is_fixed() && !is_host(value.as_bytes()) {
            return Err(format!(
                "{value:?} is neither `preserve` nor `upstream` nor a host such as `backend.internal`"
            ));
        }
        match field.value.chosen_names().into_iter().find(|name| name != "port") {
            Some(name) => Err(format!("a client chooses {{{name}}}")),
            None => Ok(field),
        }
    }

    /// Returns the value if it is a host; `None` otherwise.
    pub fn host_value(
        &self,
        facts: &Facts<'_>,
        named: impl FnMut(&str, &mut Vec<u8>),
    ) -> Option<String> {
        let value = String::from_utf8(self.value(facts, named).into_owned()).ok();
        value.filter(|host| is_host(host.as_bytes()))
    }

    pub(super) fn template(&self) -> &Template {
        &self.value
    }

    /// Returns the value for a request; empty if the upstream does not get the field. `named` writes what the proxy knows.
    pub fn value(&self, facts: &Facts<'_>, named: impl FnMut(&str, &mut Vec<u8>)) -> Cow<'_, [u8]> {
        match self.value.fixed_text() {
            Some(text) => Cow::Borrowed(text.as_bytes()),
            None => Cow::Owned(rendered(&self.value, facts, named)),
        }
    }
}

fn is_host(text: &[u8]) -> bool {
    host::parse(text).is_some_and(|host| !host.name.is_empty())
}

/// Renders the value of a field (RFC 9110 §5.5).
fn rendered(value: &Template, facts: &Facts<'_>, named: impl FnMut(&str, &mut Vec<u8>)) -> Vec<u8> {
    let plain = |value: &[u8], text: &mut Vec<u8>| text.extend_from_slice(value);
    valid_value(value.render(Some(facts), plain, named))
}

/// Returns a value without what a field cannot have (RFC 9110 §5.5).
pub fn valid_value(mut value: Vec<u8>) -> Vec<u8> {
    // Most are valid as they are.
    if is_field_value(&value) && value.trim_ascii().len() == value.len() {
        return value;
    }
    let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    value.iter_mut().filter(|byte| is_control(**byte)).for_each(|byte| *byte = b' ');
    value.trim_ascii().to_vec()
}

/// Returns `true` if the text names a value of requests or of responses.
fn is_computed(text: &str) -> bool {
    names_values(text) || !response_value::names(text).is_empty()
}

/// Returns the fields that the route sets.
pub(super) fn set_fields(route: &Route, report: Report<'_>) -> Vec<FieldToSet> {
    report_contradictions(route, report);
    let mut fields = Vec::new();
    for (name, field) in route.set_fields.iter().flat_map(|fields| &fields.value) {
        let value = &Spanned { value: field.value.value.clone(), span: field.span.clone() };
        if is_computed(value) {
            if let Err(what) = may_set_in(route, name) {
                report(&name.span, format!("set_fields: {what}"));
            }
            continue;
        }
        if field.status.as_ref().is_some_and(Vec::is_empty) {
            report(&field.span, format!("set_fields: {} is for no status", name.value));
        }
        if let Err(what) = may_set_in(route, name) {
            report(&name.span, format!("set_fields: {what}"));
        }
        if let Err(what) = reject_variables(value, &[]) {
            report(&value.span, format!("set_fields: {what}"));
        }
        if is_secret_name(name.as_bytes()) && !is_field_value(value.as_bytes()) {
            let what =
                format!("set_fields: the value of {} contains a control character", name.value);
            report(&value.span, what);
        } else if let Some(value) = field_value("set_fields", Some(value), report) {
            let status = field.status.iter().flatten().map(|status| status.value).collect();
            let (name, absent) = (name.value.clone(), field.absent);
            fields.push(FieldToSet { name, value, status, absent });
        }
    }
    fields
}

/// Returns the names of the fields that the route removes.
pub(super) fn remove_fields(route: &Route, report: Report<'_>) -> Vec<String> {
    let names = route.remove_fields.as_ref().map_or(&[][..], |names| &names.value);
    for name in names {
        if let Err(what) = may_edit(name) {
            report(&name.span, format!("remove_fields: {what}"));
        }
    }
    names.iter().map(|name| name.value.clone()).collect()
}

fn report_contradictions(route: &Route, report: Report<'_>) {
    let set = || route.set_fields.iter().flat_map(|fields| fields.keys());
    for (at, name) in set().enumerate() {
        if set().skip(at + 1).any(|other| other.eq_ignore_ascii_case(name)) {
            let what = format!("set_fields: {} is listed twice", name.value);
            report(&name.span, what);
        }
        let removed = route.remove_fields.iter().flat_map(|names| &names.value);
        for other in removed.filter(|other| other.eq_ignore_ascii_case(name)) {
            let what = format!("remove_fields: {} is set by the same route", other.value);
            report(&other.span, what);
        }
    }
}

/// Fields that describe framing or encoding of the message: only the server sends them.
const FRAMING: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that the server generates and evaluates, with the key that configures each: other values would contradict its
/// behaviour.
const MADE: [(&str, &str); 4] = [
    ("accept-ranges", "ranges"),
    ("etag", "etag"),
    ("last-modified", "remove_fields"),
    ("server", "server_field"),
];

fn may_edit(name: &str) -> Result<(), String> {
    if !is_token(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name"));
    }
    if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is the server's to send"));
    }
    if name.eq_ignore_ascii_case("server") {
        return Err("Server is left out by `server_field = false`".into());
    }
    Ok(())
}

/// Checks that the configuration may set a response field of that name.
///
/// # Errors
/// The reason why it may not.
/// Checks that a route may set a field. Where scripts or upstreams respond, `Last-Modified` is theirs to state.
fn may_set_in(route: &Route, name: &str) -> Result<(), String> {
    let is_of_application = route.script.is_some() || route.proxy.is_some();
    match is_of_application && name.eq_ignore_ascii_case("last-modified") {
        true => Ok(()),
        false => may_set(name),
    }
}

pub(super) fn may_set(name: &str) -> Result<(), String> {
    may_edit(name)?;
    match MADE.iter().find(|(made, _)| name.eq_ignore_ascii_case(made)) {
        Some((_, key)) => Err(format!("{name} is the server's to set; see `{key}`")),
        None => Ok(()),
    }
}
