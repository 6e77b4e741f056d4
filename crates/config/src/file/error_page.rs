//! Pages for error statuses.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;

/// What responds in place of an error.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "ErrorPageTable")]
pub struct ErrorPageTable {
    /// A path of the site, which may have `{path}` and `{query}` of the request, or a URL, to which clients are redirected.
    pub to: Spanned<String>,
    /// The status of the response: a number, or `"page"` for that of the page. With 301, 302, 303, 307 or 308, clients are redirected to
    /// `to`. Default: that of the error, unless the page is generated with another than 200; 302 with a URL.
    #[serde(default)]
    #[schemars(with = "Option<PageStatusSchema>")]
    pub status: Option<PageStatus>,
}

/// The status of an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStatus {
    /// That which the page has by itself.
    OfPage,
    /// This one.
    Code(u16),
}

#[derive(JsonSchema)]
#[schemars(rename = "PageStatus", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum PageStatusSchema {
    Number(u16),
    OfPage(String),
}

#[derive(JsonSchema)]
#[schemars(rename = "ErrorPage", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ErrorPageSchema {
    Path(String),
    Table(ErrorPageTable),
}
