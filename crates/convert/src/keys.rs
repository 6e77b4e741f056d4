//! The complete settings of a location, and the keys that a route needs in order to have them where it inherits others.

use std::collections::BTreeMap;

use crate::value::Value;

/// Settings by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Keys(BTreeMap<&'static str, Value>);

/// The keys of a route in the order in which they are written.
const ORDER: [&str; 41] = [
    "internal",
    "close",
    "root",
    "alias",
    "index",
    "script",
    "proxy",
    "redirect",
    "respond",
    "rewrite",
    "status",
    "mount",
    "try",
    "listing",
    "listing_format",
    "dav",
    "ssi",
    "auth",
    "any",
    "allow",
    "deny",
    "signed",
    "methods",
    "limit",
    "throttle",
    "body_size",
    "body",
    "set_fields",
    "remove_fields",
    "cache_control",
    "expires",
    "cache",
    "substitute",
    "types",
    "charset",
    "compress",
    "etag",
    "error_pages",
    "access_log",
    "hidden",
    "symlinks",
];

/// Keys that name a handler.
const HANDLERS: [&str; 7] =
    ["script", "proxy", "redirect", "respond", "rewrite", "status", "close"];

impl Keys {
    pub(crate) fn set(&mut self, key: &'static str, value: Value) {
        self.0.insert(key, value);
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Returns the keys in the order in which they are written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let order = |key: &str| ORDER.iter().position(|other| *other == key).unwrap_or(ORDER.len());
        let mut all: Vec<_> = self.0.iter().map(|(key, value)| (*key, value)).collect();
        all.sort_by_key(|(key, _)| order(key));
        all.into_iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rejects every request: where what restricts access is lost, nothing is open instead.
    pub(crate) fn close(&mut self) {
        ["allow", "any", "auth"].iter().for_each(|key| drop(self.remove(key)));
        self.set("deny", Value::list(["0.0.0.0/0", "::/0"]));
    }

    /// Adds a key that is missing, or what a list or table of fields, types or pages has not.
    pub(crate) fn add(&mut self, key: &'static str, value: &Value) {
        let is_added_up = matches!(key, "set_fields" | "remove_fields" | "types" | "error_pages");
        match self.get(key) {
            None => self.set(key, value.clone()),
            Some(known) if is_added_up => {
                let all = added(known, value);
                self.set(key, all);
            }
            Some(_) => {}
        }
    }

    /// Sets an entry of a key whose value is a table.
    pub(crate) fn set_entry(&mut self, key: &'static str, name: &str, value: Value) {
        let table = self.0.entry(key).or_insert_with(|| Value::Table(Vec::new()));
        if !matches!(table, Value::Table(_)) {
            *table = Value::Table(Vec::new());
        }
        table.set(name, value);
    }

    /// Adds the keys of a more specific route, as Dunlin merges them.
    pub(crate) fn overlay(&mut self, specific: &Self) {
        if specific.handler().is_some() || specific.get("root").is_some() {
            HANDLERS.iter().for_each(|key| drop(self.0.remove(key)));
        }
        if specific.get("root").is_some() {
            self.0.remove("alias");
        }
        if specific.get("cache_control").is_some() || specific.get("expires").is_some() {
            self.0.remove("cache_control");
            self.0.remove("expires");
        }
        for (key, value) in &specific.0 {
            match (self.0.get_mut(key), value) {
                (Some(known @ Value::Table(_)), Value::Table(entries))
                    if matches!(*key, "set_fields" | "types" | "error_pages") =>
                {
                    entries.iter().for_each(|(name, value)| known.set(name, value.clone()));
                }
                _ => self.set(key, value.clone()),
            }
        }
        // Values that end a key are those of a route without it.
        let is_end = |key: &str, value: &Value| match key {
            "auth" | "listing" | "internal" | "ssi" | "dav" | "hidden" => {
                *value == Value::Switch(false)
            }
            "try" | "deny" | "any" => *value == Value::List(Vec::new()),
            _ => false,
        };
        self.0.retain(|key, value| !is_end(key, value));
        let removed: Vec<String> = match specific.get("remove_fields") {
            Some(Value::List(names)) => names
                .iter()
                .filter_map(|name| match name {
                    Value::Text(name) => Some(name.clone()),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        if let Some(Value::Table(fields)) = self.0.get_mut("set_fields") {
            fields.retain(|(name, _)| {
                !removed.iter().any(|removed| removed.eq_ignore_ascii_case(name))
                    || specific.get("set_fields").is_some_and(|own| own.get(name).is_some())
            });
        }
    }

    /// Returns the key of the handler; `None` for files.
    pub(crate) fn handler(&self) -> Option<&'static str> {
        HANDLERS.into_iter().find(|key| self.0.contains_key(key))
    }

    /// Returns `true` if no response but that of a file, a redirect or a fixed text can come from here.
    fn has_own_responses(&self) -> bool {
        !matches!(self.handler(), Some("script" | "proxy" | "rewrite"))
    }

    /// Returns the keys that a route needs in order to have these settings where it inherits `base`. `site_root` is the root
    /// of the site.
    ///
    /// # Errors
    /// The key that is inherited and cannot be ended.
    pub(crate) fn over(
        &self,
        base: &Self,
        site_root: Option<&Value>,
    ) -> Result<Self, &'static str> {
        let mut own = Self::default();
        for (&key, value) in &self.0 {
            let inherited = base.get(key);
            match key {
                "set_fields" | "types" | "error_pages" => {}
                // What `*` matches is that of the route which has the key.
                _ if inherited == Some(value) && !names_rest(value) => {}
                "root" => {
                    if inherited.is_some() || Some(value) != site_root {
                        own.set(key, value.clone());
                    }
                }
                _ => own.set(key, value.clone()),
            }
        }
        self.end_handler(base, site_root, &mut own);
        for key in ["set_fields", "types", "error_pages"] {
            self.merged(key, base, &mut own)?;
        }
        self.caching(base, &mut own)?;
        for &key in base.0.keys() {
            if self.0.contains_key(key) || HANDLERS.contains(&key) || key == "root" {
                continue;
            }
            if let Some(value) = self.end(key)? {
                own.set(key, value);
            }
        }
        Ok(own)
    }

    /// A handler that is inherited ends where another is named; for files, by `root`.
    fn end_handler(&self, base: &Self, site_root: Option<&Value>, own: &mut Self) {
        let ends_with = self.handler().and_then(|key| own.get(key));
        if ends_with.is_some() {
            // `root` of a general route is of no use to handlers that have no files.
            return;
        }
        if self.handler().is_none() && base.handler().is_some() {
            let root = self.get("root").or(site_root);
            if let Some(root) = root {
                own.set("root", root.clone());
            }
        } else if let Some(key) = self.handler()
            && own.get("root").is_some()
            && let Some(value) = self.get(key)
        {
            // The root of this route ends the handler that it inherits.
            own.set(key, value.clone());
        }
    }

    /// Tables whose entries are inherited one by one.
    fn merged(&self, key: &'static str, base: &Self, own: &mut Self) -> Result<(), &'static str> {
        let empty = Value::Table(Vec::new());
        let (mine, inherited) = (self.get(key).unwrap_or(&empty), base.get(key).unwrap_or(&empty));
        let differs = |(name, value): &&(String, Value)| inherited.get(name) != Some(value);
        let more: Vec<_> = mine.entries().iter().filter(differs).cloned().collect();
        if !more.is_empty() {
            own.set(key, Value::Table(more));
        }
        let ended = inherited.entries().iter().filter(|(name, _)| mine.get(name).is_none());
        let ended: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        match (ended.is_empty(), key) {
            (true, _) => Ok(()),
            (false, "set_fields") if self.has_own_responses() => {
                let names = self.get("remove_fields").map(ToString::to_string);
                if names.is_some() {
                    return Err("set_fields");
                }
                own.set("remove_fields", Value::list(ended));
                Ok(())
            }
            (false, _) => Err(key),
        }
    }

    /// A route that sets one of the two keys of caching inherits neither.
    fn caching(&self, base: &Self, own: &mut Self) -> Result<(), &'static str> {
        let keys = ["cache_control", "expires"];
        if keys.iter().all(|key| self.get(key) == base.get(key)) {
            return Ok(());
        }
        for key in keys {
            if let Some(value) = self.get(key) {
                own.set(key, value.clone());
            }
        }
        let is_ended = keys.iter().any(|key| self.get(key).is_some());
        // Errors and redirects have the keys of their own route only.
        let is_unused =
            matches!(self.handler(), Some("redirect" | "respond" | "close" | "rewrite"));
        if is_ended || is_unused { Ok(()) } else { Err("expires") }
    }

    /// Returns the value that ends an inherited key, or `None` if nothing is needed.
    fn end(&self, key: &'static str) -> Result<Option<Value>, &'static str> {
        let is_files = self.handler().is_none();
        let fixed =
            matches!(self.handler(), Some("redirect" | "respond" | "close" | "rewrite" | "status"));
        let is_script = self.get("script").is_some_and(|script| script.get("root").is_none());
        let has_no_files = fixed || is_script || self.get("proxy").is_some();
        Ok(Some(match key {
            "set_fields" | "types" | "error_pages" | "cache_control" | "expires" => {
                return Ok(None);
            }
            "remove_fields" if is_files || fixed => return Ok(None),
            "index" | "listing" | "listing_format" | "etag" | "charset" | "hidden" | "symlinks"
            | "compress" | "ranges"
                if has_no_files =>
            {
                return Ok(None);
            }
            "index" if self.get("script").is_some() => return Ok(None),
            // Without a listing its format does not matter.
            "listing_format" if self.get("listing").is_none() => return Ok(None),
            "try" | "cache" | "substitute" | "body_size" | "body" if fixed => return Ok(None),
            // Responses of applications alone are cached.
            "cache" | "body" if is_files => return Ok(None),
            "index" => Value::list(["index.html"]),
            "try" | "deny" | "any" => Value::List(Vec::new()),
            "allow" => Value::list(["0.0.0.0/0", "::/0"]),
            "listing" | "internal" | "auth" | "hidden" | "ssi" | "dav" => Value::Switch(false),
            "cache" | "compress" | "access_log" => Value::Switch(true),
            "charset" => Value::text("utf-8"),
            "etag" => Value::text("stat"),
            "listing_format" => Value::text("auto"),
            "symlinks" => Value::text("beneath"),
            "body_size" => Value::text("1MiB"),
            "body" => Value::text("buffer"),
            key => return Err(key),
        }))
    }
}

/// Returns the keys over a base. A key that nothing ends is inherited.
pub(crate) fn over(keys: &Keys, base: &Keys, root: Option<&Value>) -> Keys {
    let mut base = base.clone();
    loop {
        match keys.over(&base, root) {
            Ok(own) => return own,
            Err(key) => {
                // The two keys of caching are inherited together.
                if base.remove(key).is_none() && base.remove("cache_control").is_none() {
                    return keys.clone();
                }
            }
        }
    }
}

/// Returns the keys that a route needs in order to have `keys` wherever it inherits `base` or one of `others`.
pub(crate) fn over_all(keys: &Keys, base: &Keys, others: &[Keys], root: Option<&Value>) -> Keys {
    let mut own = over(keys, base, root);
    for other in others {
        for (key, value) in over(keys, other, root).iter() {
            own.add(key, value);
        }
    }
    own
}

fn names_rest(value: &Value) -> bool {
    value.to_string().contains("{rest}")
}

/// Returns a list or table with what another one has besides; other values stay.
fn added(known: &Value, more: &Value) -> Value {
    let is_name = |name: &Value, other: &Value| match (name, other) {
        (Value::Text(name), Value::Text(other)) => name.eq_ignore_ascii_case(other),
        (name, other) => name == other,
    };
    match (known, more) {
        (Value::List(known), Value::List(more)) => {
            let mut all = known.clone();
            for name in more {
                if !all.iter().any(|other| is_name(name, other)) {
                    all.push(name.clone());
                }
            }
            Value::List(all)
        }
        (Value::Table(known), Value::Table(more)) => {
            let mut all = known.clone();
            for (name, value) in more {
                if !all.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                    all.push((name.clone(), value.clone()));
                }
            }
            Value::Table(all)
        }
        _ => known.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(entries: &[(&'static str, Value)]) -> Keys {
        Keys(entries.iter().cloned().collect())
    }

    #[test]
    fn a_route_has_what_differs_and_ends_what_it_must_not_inherit() {
        let root = Value::text("/srv");
        let base = keys(&[
            ("proxy", Value::text("http://a")),
            ("auth", Value::table([("basic", Value::text("/u"))])),
            ("set_fields", Value::table([("X-A", Value::text("1"))])),
        ]);
        let files = keys(&[("root", root.clone()), ("index", Value::list(["a"]))]);
        let own = files.over(&base, Some(&root)).unwrap();
        assert_eq!(own.get("root"), Some(&root));
        assert_eq!(own.get("auth"), Some(&Value::Switch(false)));
        assert_eq!(own.get("remove_fields"), Some(&Value::list(["X-A"])));
        let proxy = keys(&[("proxy", Value::text("http://b"))]);
        assert_eq!(proxy.over(&base, Some(&root)), Err("set_fields"));
        assert_eq!(files.over(&files, Some(&root)), Ok(Keys::default()));
    }

    #[test]
    fn the_format_of_listings_needs_no_end_where_there_are_none() {
        let root = Value::text("/srv");
        let format = ("listing_format", Value::text("nginx"));
        let listed = [("root", root.clone()), ("listing", Value::Switch(true)), format];
        let files = keys(&[("root", root.clone())]);
        let own = files.over(&keys(&listed), Some(&root));
        assert_eq!(own, Ok(keys(&[("listing", Value::Switch(false))])));
    }
}
