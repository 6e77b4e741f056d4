//! Changes of the bodies of responses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;

/// A text that is replaced in the bodies of responses.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubstituteTable {
    /// The text, ignoring the case of ASCII letters.
    pub from: Spanned<String>,
    /// What replaces it, with `{host}` and `{scheme}` of the request.
    pub to: Spanned<String>,
    /// `true` replaces the first occurrence only. Default: false.
    #[serde(default)]
    pub once: bool,
    /// Media types of the responses; `"*"` for all. Default: `["text/html"]`.
    pub types: Option<Vec<Spanned<String>>>,
}

/// The texts that are replaced.
#[derive(Debug, Clone)]
pub struct Substitutions(pub Vec<SubstituteTable>);

#[derive(JsonSchema)]
#[schemars(rename = "Substitutions", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum SubstitutionsSchema {
    None(bool),
    Texts(BTreeMap<String, String>),
    Tables(Vec<SubstituteTable>),
}

/// Server-side includes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SsiTable {
    /// Media types of the documents. Default: `["text/html"]`.
    pub types: Option<Vec<Spanned<String>>>,
}

/// Server-side includes, in either form.
#[derive(Debug, Clone)]
pub enum RouteSsi {
    /// On or off.
    Switch(bool),
    /// On, with settings of its own.
    Table(SsiTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "Ssi", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RouteSsiSchema {
    Switch(bool),
    Table(SsiTable),
}
