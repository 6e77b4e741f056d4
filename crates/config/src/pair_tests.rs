//! Sites with too many pairs of patterns and regular expressions to make the settings of each before the first request.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::config::Config;
use super::overrides::Overrides;
use super::sites::Site;

fn site(routes: &str) -> Arc<Site> {
    let text = format!("[[listen]]\naddress = ':1'\n[[site]]\nroot = '/srv'\n{routes}");
    let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default())
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    Arc::clone(config.sites.only().unwrap())
}

/// Returns routes that match no path of the tests.
fn others() -> String {
    (0..46).fold(String::new(), |mut text, n| {
        let _ = write!(text, "[[site.route]]\npath = '/other{n}/*'\n");
        let _ = write!(text, "[[site.route]]\nregex = 'x{n}z'\n");
        text
    })
}

/// Returns one route for each key, each with a field of its own.
fn routes(keys: &[String]) -> String {
    keys.iter().enumerate().fold(String::new(), |mut text, (n, key)| {
        let _ = write!(text, "[[site.route]]\n{key}\nset_fields = {{ X-{n} = 'a' }}\n");
        text
    })
}

proptest! {
    #[test]
    fn settings_are_those_of_a_table_that_has_all(
        patterns in prop::collection::hash_set("/[ab/]{0,2}[*]?[ab]{0,2}", 0..5),
        expressions in prop::collection::hash_set(r"\^?/?[ab]{1,2}(\(a\|b\))?[b.]{0,2}\$?", 1..5),
        paths in prop::collection::vec("/[ab/]{0,6}", 1..20),
    ) {
        let is_pattern = |text: &&String| !text.contains("//") && crate::pattern::Pattern::parse(text).is_ok();
        let mut keys: Vec<String> = patterns.iter().filter(is_pattern).map(|text| format!("path = '{text}'")).collect();
        keys.extend(expressions.iter().map(|text| format!("regex = '{text}'")));
        let (few, many) = (site(&routes(&keys)), site(&(routes(&keys) + &others())));
        prop_assert!(few.table().is_complete() && !many.table().is_complete());
        for path in paths {
            let (path, many) = (path.as_bytes(), many.route(path.as_bytes()));
            prop_assert_eq!(&**few.route(path), &**many);
        }
    }
}

#[test]
fn a_pair_has_the_same_settings_each_time() {
    let site = site(&(routes(&["path = '/a/*'".into(), "regex = 'b$'".into()]) + &others()));
    let Cow::Owned(first) = site.route(b"/a/b") else { panic!("the table has no pairs") };
    assert!(Arc::ptr_eq(&first, &site.route(b"/a/xb")) && site.has_settings(b"/a/xb", &first));
    assert!(!site.has_settings(b"/b", &first) && !site.has_settings(b"/a/", &first));
    assert_eq!(first.set_fields.len(), 2);
}

#[test]
fn variants_of_a_site_have_pairs_of_their_own() {
    let keys = [
        "path = '/a/*'".into(),
        "path = '/a/*'\nwhen = { method = 'POST' }".into(),
        "regex = 'b$'".into(),
    ];
    let site = site(&(routes(&keys) + &others()));
    let names = |site: &Site| -> Vec<String> {
        site.route(b"/a/b").set_fields.iter().map(|field| field.name.clone()).collect()
    };
    let variant = site.under(&site.conditional_routes(b"/a/b"));
    assert_eq!(names(&site), ["X-0", "X-2"]);
    assert_eq!(names(&variant), ["X-0", "X-1", "X-2"]);
    assert!(variant.max_pairs() * site.max_variants() <= site.max_pairs());
}
