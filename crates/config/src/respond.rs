//! The table `respond`: a fixed response.

use dunlin_http::semantics::status;

use super::file::RespondTable;
use super::report::{Report, field_value};
use super::spanned::Spanned;
use super::template::reject_variables;

/// A fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: bytes::Bytes,
    /// The media type.
    pub content_type: String,
}

impl Respond {
    /// The response of a site that cannot decide on a request.
    pub(super) const FAILURE: Self =
        Self { status: 500, body: bytes::Bytes::new(), content_type: String::new() };
}

/// Checks `table` and fills in its defaults.
pub(super) fn read(table: &Spanned<RespondTable>, report: Report<'_>) -> Respond {
    let code = table.status.as_deref().copied().unwrap_or(200);
    let place = table.status.as_ref().and_then(|status| status.span.clone());
    if !(200..600).contains(&code) {
        report(&place, format!("respond: {code} is not a status between 200 and 599"));
    }
    let body = table.body.as_deref().cloned().unwrap_or_default();
    if let (Some(at), Err(what)) = (&table.body, reject_variables(&body, &[])) {
        report(&at.span, format!("respond: {what}"));
    }
    if !body.is_empty() && !status::allows_content(code) {
        report(&place, format!("respond: a {code} has no body"));
    }
    let content_type = field_value("respond", table.content_type.as_ref(), report);
    Respond {
        status: code,
        body: body.into(),
        content_type: content_type.unwrap_or_else(|| "text/plain; charset=utf-8".into()),
    }
}
