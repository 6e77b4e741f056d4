//! The key `dictionary`: versions of files, and the pages of an application, as compression dictionaries.

use std::sync::Arc;
use std::time::Duration;

use dunlin_http::semantics::is_token;

use super::file::{Route, RouteDictionary, RouteDictionaryTable};
use super::handler::Handler;
use super::report::Report;
use super::settings::Settings;
use super::spanned::Spanned;

/// The dictionary for the pages of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageDictionary {
    /// The path of the pages for which clients use it; `*` is any text.
    pub path: Box<str>,
    /// Requests and responses with one of these fields have no part in it.
    pub unless: Arc<[Box<str>]>,
    /// The time after which it may be replaced.
    pub rotation: Duration,
}

/// The time after which a dictionary may be replaced, unless the route has another.
const ROTATION: Duration = Duration::from_secs(3600);

impl RouteDictionary {
    /// Returns `true` if versions of files are dictionaries.
    pub(super) fn has_files(&self) -> bool {
        !matches!(self, Self::Switch(false))
    }
}

impl PageDictionary {
    /// Reads the key of a merged route.
    pub(super) fn read(route: &Route, report: Report<'_>) -> Option<Arc<Self>> {
        let Spanned { value: RouteDictionary::Table(table), span } = route.dictionary.as_ref()?
        else {
            return None;
        };
        let RouteDictionaryTable { r#match: path, unless, rotate } = table;
        if !path.value.starts_with('/') || path.value.contains(['?', '#', '\\']) {
            let what = format!("dictionary: {:?} is not a path such as \"/blog/*\"", path.value);
            report(&path.span, what);
        }
        let names = unless.iter().flatten();
        for name in names.clone().filter(|name| !is_token(name.value.as_bytes())) {
            report(&name.span, format!("dictionary: {:?} is not a field name", name.value));
        }
        if let Some(time) = rotate.as_ref().filter(|time| time.value.0 < Duration::from_secs(1)) {
            report(&time.span, "dictionary: rotate is less than a second".into());
        }
        for (is_set, key) in [
            (
                route.compress.as_ref().is_some_and(|codings| codings.value.0.is_empty()),
                "compress = false",
            ),
            (
                route.compress_padding.as_ref().is_some_and(|size| size.value.0 > 0),
                "compress_padding",
            ),
            (route.auth_tables().next().is_some(), "auth"),
            (route.allow.is_some() || route.deny.is_some(), "allow or deny"),
        ] {
            if is_set {
                let what = format!(
                    "dictionary: a dictionary is made of pages that everyone may see, and the route has {key}"
                );
                report(span, what);
            }
        }
        Some(Arc::new(Self {
            path: path.value.as_str().into(),
            unless: names.map(|name| name.value.as_str().into()).collect(),
            rotation: rotate.as_ref().map_or(ROTATION, |time| time.value.0),
        }))
    }

    /// Returns the dictionary for the pages of a route with these settings, if they are compressed with one.
    pub fn of(settings: &Settings) -> Option<&Arc<Self>> {
        settings.page_dictionary.as_ref().filter(|_| Self::hindrance(settings).is_none())
    }

    /// Returns why pages of a route with these settings are not compressed with the dictionary.
    pub fn hindrance(settings: &Settings) -> Option<&'static str> {
        match &settings.handler {
            Handler::Script(_) | Handler::Proxy(_) => {}
            _ => return Some("the route has no script and no proxy"),
        }
        if settings.compress.is_empty() {
            return Some("the route does not compress");
        }
        if settings.coding.padding > 0 {
            return Some("the route has compress_padding");
        }
        (!settings.check_rules.are_open()).then_some("the route restricts access")
    }

    /// Describes the dictionaries of a route, of files and of pages, for `dunlin check --explain`.
    pub(super) fn describe_all(settings: &Settings) -> String {
        let of_files = settings.dictionary.is_some();
        match &settings.page_dictionary {
            None => of_files.to_string(),
            Some(pages) => {
                let files = if of_files { "files, and " } else { "" };
                format!("{files}{}", pages.describe())
            }
        }
    }

    /// Describes it.
    fn describe(&self) -> String {
        let unless = match self.unless.is_empty() {
            true => String::new(),
            false => format!(", unless {}", self.unless.join(" or ")),
        };
        format!("pages of {}{unless}, rotate {} s", self.path, self.rotation.as_secs_f64())
    }
}
