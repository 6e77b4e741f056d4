//! Values that follow from requests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;

/// Values that follow from a text of the request: `{map.NAME}` stands for the value in templates, and `map` is a condition in `when`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapTable {
    /// The text to look up: `"{host}"`. Placeholders are `{method}`, `{scheme}`, `{protocol}`, `{time_iso}`, `{client}`,
    /// `{host}` (in lower case, without port), `{path}`, `{query}`, `{target}`, `{header.NAME}`, `{cookie.NAME}`, `{query.NAME}` and
    /// `{map.NAME}`.
    pub from: Spanned<String>,
    /// Values by text, by pattern with any number of `*`, by regular expression after a `~`, or, if all keys are networks,
    /// by the network of the address. Text comes before regular expressions, these in their order, then the longest
    /// pattern; the smallest network decides. Text and patterns ignore case. If nothing matches, the value is that of
    /// `"*"`, or else empty. A value can contain the placeholders of `from` and the groups of its regular expression.
    pub values: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    /// Values by shares of all texts, which a hash of the text determines: `{ "10%" = "new", "*" = "old" }`. It takes the place of `values`.
    pub split: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
}
