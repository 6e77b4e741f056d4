//! The values of maps on which the response to a request depends, for `dunlin check --explain`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::facts::Facts;
use super::fields::{ComputedField, RequestField};
use super::handler::Handler;
use super::map::Map;
use super::proxy::{UpstreamHost, UpstreamPath};
use super::secrets::is_secret_name;
use super::settings::Settings;
use super::template::Template;
use super::when::When;

/// Appends the value of each map that the settings of a path name, or the conditions of its routes.
pub(super) fn explain_maps<'a>(
    settings: &'a Settings,
    conditions: impl Iterator<Item = &'a When>,
    facts: &Facts<'_>,
    text: &mut String,
) {
    let of_settings = templates(settings).into_iter().flat_map(Template::maps);
    let mut waiting: Vec<&Map> = of_settings.chain(conditions.flat_map(When::maps)).collect();
    let mut named = BTreeMap::new();
    while let Some(map) = waiting.pop() {
        if named.insert(map.name(), map).is_none() {
            waiting.extend(map.maps());
        }
    }
    for (name, map) in named {
        let value = map.value(facts);
        let _ = writeln!(text, "map       {name} = {:?}", String::from_utf8_lossy(&value));
    }
}

/// Returns the templates of what follows from the values of a request, without those of fields with secret values.
fn templates(settings: &Settings) -> Vec<&Template> {
    let is_shown = |name: &str| !is_secret_name(name.as_bytes());
    let fields = settings.check_rules.fields.iter().filter(|field| is_shown(&field.name));
    let mut all: Vec<&Template> = fields.map(ComputedField::template).collect();
    match &settings.handler {
        Handler::Redirect(rule) => all.extend(rule.templates()),
        Handler::Rewrite(to) => all.extend(to.templates()),
        Handler::Respond(respond) => all.extend(respond.template()),
        Handler::Proxy(proxy) => {
            let fields = proxy.set_request_fields.iter().filter(|field| is_shown(&field.name));
            all.extend(fields.map(RequestField::template));
            all.extend(proxy.path.iter().flat_map(UpstreamPath::templates));
            if let UpstreamHost::Named(host) = &proxy.host {
                all.push(host.template());
            }
        }
        _ => {}
    }
    all
}
