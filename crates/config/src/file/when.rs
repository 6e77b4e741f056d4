//! Conditions of a route.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, OneOrManySchema, Spanned};

/// Conditions besides the path. All of them must hold.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhenTable {
    /// Methods: `"POST"`, or a list. `GET` includes `HEAD`.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub method: Option<Spanned<OneOrMany<String>>>,
    /// `"http"` or `"https"`.
    pub scheme: Option<Spanned<String>>,
    /// Networks of clients: `"192.0.2.0/24"`, or a list.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub client: Option<Spanned<OneOrMany<String>>>,
    /// Media types of the request body: `"application/json"`, `"image/*"`, or a list.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub r#type: Option<Spanned<OneOrMany<String>>>,
    /// Query parameters by name: `true` if it must exist, `false` if it must not, or the decoded value, which may contain
    /// any number of `*` or be a regular expression after `~`, or a list of values.
    pub query: Option<BTreeMap<Spanned<String>, Spanned<ValueTest>>>,
    /// Headers (fields) of the request by name, as `query`.
    pub header: Option<BTreeMap<Spanned<String>, Spanned<ValueTest>>>,
    /// Cookies by name, as `query`.
    pub cookie: Option<BTreeMap<Spanned<String>, Spanned<ValueTest>>>,
    /// Values of maps by name, as `query`; `true` if the value is not empty.
    pub map: Option<BTreeMap<Spanned<String>, Spanned<ValueTest>>>,
    /// Values of maps of which the route was made. Files do not have this key.
    #[schemars(skip)]
    #[serde(rename = "value of maps")]
    pub choice: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    /// The page that links to the requested one, or a list: `"none"` if the request names none, `"blocked"` if it names no
    /// URL, `"server_names"` for a page of the site, or a host, which may contain any number of `*`, optionally with the
    /// beginning of a path: `"*.example.com"`, `"example.com/gallery/"`.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub referer: Option<Spanned<OneOrMany<String>>>,
    /// The absolute path of a file that exists, which may have values of the request after its first directory:
    /// `"/srv/site/maintenance.html"`, `"/srv/site{path}.html"`. It is looked for with each request.
    pub file: Option<Spanned<String>>,
    /// As `file`, for a directory.
    pub directory: Option<Spanned<String>>,
    /// As `file`, for a file or a directory.
    pub exists: Option<Spanned<String>>,
    /// Conditions that must not all hold.
    pub not: Option<Box<WhenTable>>,
}

/// The test of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTest {
    /// There is one, or there is none.
    Present(bool),
    /// One of these patterns matches.
    OneOf(Vec<Spanned<String>>),
}

impl JsonSchema for ValueTest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ValueTest".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ValueTestSchema::json_schema(generator)
    }
}

#[derive(JsonSchema)]
#[schemars(rename = "ValueTest", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ValueTestSchema {
    Present(bool),
    One(String),
    Many(Vec<String>),
}
