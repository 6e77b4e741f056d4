//! The gates of a route, from the file to what is asked of requests.

use std::sync::Arc;

use dunlin_http::semantics::is_token;

use super::at::At;
use super::file::{HstsTable, Route};
use super::settings::Report;
use crate::gate::{Access, Gates, Https, Methods, Network};

/// The gates that `route` asks for; `None` when there are none. What is wrong is told to `report`.
pub(super) fn read(route: &Route, report: Report<'_>) -> Option<Arc<Gates>> {
    let access = (route.allow.is_some() || route.deny.is_some()).then(|| {
        if let Some(list) = route.allow.as_ref().filter(|list| list.is_empty()) {
            report(&list.span, "allow: the list is empty, so that nobody could ask".into());
        }
        let allow = networks("allow", list(&route.allow), report);
        Access::new(&allow, &networks("deny", list(&route.deny), report))
    });
    let gates = Gates { https: https(route, report), access, methods: methods(route, report) };
    (!gates.is_empty()).then(|| Arc::new(gates))
}

fn list(texts: &Option<At<Vec<At<String>>>>) -> &[At<String>] {
    texts.as_ref().map_or(&[], |texts| &texts.value)
}

/// The networks of a list.
pub(super) fn networks(key: &str, texts: &[At<String>], report: Report<'_>) -> Vec<Network> {
    let read = |text: &At<String>| {
        let network = text.parse::<Network>();
        network.map_err(|what| report(&text.span, format!("{key}: {what}"))).ok()
    };
    texts.iter().filter_map(read).collect()
}

fn https(route: &Route, report: Report<'_>) -> Option<Https> {
    let redirect = route.redirect_https.as_ref().and_then(|redirect| redirect.value.0);
    let strict = route.hsts.as_ref().map(|hsts| {
        let HstsTable { age, subdomains, preload } = &hsts.value.0;
        // What the list of browsers asks for (hstspreload.org).
        if *preload && !(*subdomains && age.0.as_secs() >= 31_536_000) {
            report(&hsts.span, "hsts: preload needs subdomains = true and an age of 365d".into());
        }
        let directives = [("; includeSubDomains", *subdomains), ("; preload", *preload)];
        let directives = directives.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name);
        format!("max-age={}{}", age.0.as_secs(), directives.collect::<String>())
    });
    (redirect.is_some() || strict.is_some()).then_some(Https { strict, redirect })
}

fn methods(route: &Route, report: Report<'_>) -> Option<Methods> {
    let names = route.methods.as_ref()?;
    if names.is_empty() {
        report(&names.span, "methods: the list is empty, so that nothing would be allowed".into());
    }
    for name in &names.value {
        if !is_token(name.as_bytes()) {
            report(&name.span, format!("methods: {:?} is not a method", name.value));
        } else if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let what = format!("methods: {:?} is not {:?}", name.value, name.to_ascii_uppercase());
            report(&name.span, what);
        }
    }
    Some(Methods::new(names.iter().map(|name| name.value.clone()).collect()))
}
