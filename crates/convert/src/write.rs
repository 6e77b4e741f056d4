//! The configuration as TOML, as a person writes it.

use crate::keys::Keys;
use crate::map::Map;
use crate::model::{Document, Matching, Route, Site};
use crate::value::{Value, quoted_key};

/// A line longer than this is broken where a list permits it.
const WIDTH: usize = 110;

impl Document {
    /// Returns the text of the file.
    pub(crate) fn to_toml(&self, title: &str) -> String {
        let mut text = format!("# {title}\n");
        for (name, entries) in self.tables.iter().filter(|(_, entries)| !entries.is_empty()) {
            text.push_str(&format!("\n[{name}]\n"));
            entries.iter().for_each(|(key, value)| line(key, value, &mut text));
        }
        for listener in &self.listens {
            text.push_str("\n[[listen]]\n");
            line("address", &Value::text(&listener.address), &mut text);
            listener.keys.iter().for_each(|(key, value)| line(key, value, &mut text));
        }
        self.maps.iter().for_each(|map| write_map(map, &mut text));
        self.sites.iter().for_each(|site| write_site(site, &mut text));
        text
    }
}

fn write_map(map: &Map, text: &mut String) {
    let name = quoted_key(&map.name);
    text.push_str(&format!("\n[map.{name}]\n"));
    line("from", &Value::text(&map.from), text);
    let (key, values) = map.values();
    if values.to_string().len() <= WIDTH {
        return line(key, &values, text);
    }
    text.push_str(&format!("\n[map.{name}.{key}]\n"));
    values.entries().iter().for_each(|(key, value)| line(key, value, text));
}

fn write_site(site: &Site, text: &mut String) {
    text.push_str(&format!("\n# {}\n[[site]]\n", site.comment));
    if !site.hosts.is_empty() {
        line("host", &Value::one_or_many(site.hosts.clone()), text);
    }
    if !site.listen.is_empty() {
        line("listen", &Value::one_or_many(site.listen.clone()), text);
    }
    if let Some(tls) = &site.tls {
        line("tls", tls, text);
    }
    write_keys(&site.keys, text);
    site.routes.iter().for_each(|route| write_route(route, text));
}

fn write_route(route: &Route, text: &mut String) {
    text.push_str(&format!("\n[[site.route]]  # {}\n", route.comment));
    match &route.matching {
        Matching::Paths(paths) => line("path", &Value::one_or_many(paths.clone()), text),
        Matching::Regex(regex) => line("regex", &Value::text(regex), text),
    }
    if let Some(when) = &route.when {
        line("when", when, text);
    }
    write_keys(&route.keys, text);
}

fn write_keys(keys: &Keys, text: &mut String) {
    keys.iter().for_each(|(key, value)| line(key, value, text));
}

fn line(key: &str, value: &Value, text: &mut String) {
    let key = quoted_key(key);
    let whole = format!("{key} = {value}\n");
    match value {
        Value::List(list) if whole.len() > WIDTH && list.len() > 1 => {
            text.push_str(&format!("{key} = [\n"));
            list.iter().for_each(|value| text.push_str(&format!("    {value},\n")));
            text.push_str("]\n");
        }
        _ => text.push_str(&whole),
    }
}
