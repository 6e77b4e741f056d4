//! The page of the configuration file, made from its JSON Schema.

use clap_mangen::roff::{Roff, bold, italic, roman};
use dunlin_config::Config;
use serde_json::{Map, Value};

use super::text::inlines;
use super::{Page, SOURCE};

const DESCRIPTION: [&str; 3] = [
    "`dunlin serve` reads the sites of a server, their routes and all settings from one file in the TOML format. \
     `dunlin check` verifies it and explains the settings of a URL, and `dunlin reload` applies a changed file to a \
     running server.",
    "Sizes and times have units: `256KB` is 256,000 bytes, `256KiB` is 262,144; times are `500ms`, `30s`, `5m`, `1h`, \
     `1d`; rates are `400KB/s`. Relative paths are relative to the file. An unknown key is an error.",
    "Each section below is a table. A table can also be written as the value of its key: \
     `tls = { certificate = \"a.pem\", key = \"a.key\" }`.",
];

const EXAMPLE: &str = r#"[[listen]]
address = ":80"

[[listen]]
address = ":443"
tls = true

[[site]]
host = "example.com"
root = "/srv/www"
tls = { acme = { contact = "admin@example.com" } }

[[site.route]]
path = "/*"
redirect_https = true"#;

const FILES: [(&str, &str); 2] = [
    ("./dunlin.toml", "The configuration of commands without `--config`, if it exists."),
    (
        "/etc/dunlin/dunlin.toml",
        "The configuration of the system's server, and of commands that find no other.",
    ),
];

/// A table of the file.
struct Table<'a> {
    /// As in the header of the table: `site.route`.
    path: String,
    /// The header has two brackets.
    repeated: bool,
    definition: &'a Map<String, Value>,
    /// The meaning of the key of the table.
    description: &'a str,
}

/// Returns the page dunlin.toml(5).
pub(super) fn page() -> Page {
    let schema = Config::schema_of_all_kinds();
    let mut page = Roff::new();
    // An empty argument has to be written as such: two quotation marks.
    page.control("TH", ["dunlin.toml", "5", "\"\"", SOURCE, "Dunlin"]);
    page.control("SH", ["NAME"])
        .text([roman("dunlin.toml - configuration of the web server Dunlin")]);
    page.control("SH", ["DESCRIPTION"]);
    for (n, paragraph) in DESCRIPTION.into_iter().enumerate() {
        if n > 0 {
            page.control("PP", []);
        }
        page.text(inlines(paragraph));
    }
    for table in tables(&schema) {
        section(&mut page, &schema, &table);
    }
    page.control("SH", ["EXAMPLES"])
        .text([roman("A site with certificates from ACME (Let's Encrypt):")]);
    page.control("PP", []).control("nf", []);
    for line in EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []).control("SH", ["FILES"]);
    for (file, meaning) in FILES {
        page.control("TP", []).text([italic(file)]).text(inlines(meaning));
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("dunlin"), roman("(1), "), bold("dunlin-check"), roman("(1), ")]);
    page.text([bold("dunlin-serve"), roman("(1)")]);
    Page { name: "dunlin.toml".to_owned(), section: '5', text: page.render() }
}

/// Returns all tables, each before those within it.
fn tables(schema: &Value) -> Vec<Table<'_>> {
    let mut tables = Vec::new();
    if let Some(root) = properties(schema) {
        within(schema, "", root, &mut tables);
    }
    tables
}

fn within<'a>(
    schema: &'a Value,
    parent: &str,
    properties: &'a Map<String, Value>,
    tables: &mut Vec<Table<'a>>,
) {
    // A site can have the tables of a route, which are described there.
    let mut entries: Vec<_> = properties.iter().collect();
    entries.sort_by_key(|(key, _)| *key != "route");
    for (key, value) in entries {
        let Some((definition, repeated)) = table(schema, value) else { continue };
        if tables.iter().any(|known: &Table<'_>| std::ptr::eq(known.definition, definition)) {
            continue;
        }
        let mut path = if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") };
        if named_tables(schema, value).is_some() {
            path.push_str(".NAME");
        }
        tables.push(Table {
            path: path.clone(),
            repeated,
            definition,
            description: describe(value),
        });
        within(schema, &path, definition, tables);
    }
}

/// Returns the keys of the table that a value is or may be, and whether there can be several.
fn table<'a>(schema: &'a Value, value: &'a Value) -> Option<(&'a Map<String, Value>, bool)> {
    let value = resolve(schema, value);
    if let Some(keys) = properties(value) {
        return Some((keys, false));
    }
    if let Some(tables) = named_tables(schema, value) {
        return Some((tables, false));
    }
    if let Some(items) = value.get("items") {
        return table(schema, items).map(|(keys, _)| (keys, true));
    }
    // A table has more keys than those of a list that replaces it.
    let is_list = |value: &&Value| resolve(schema, value).get("items").is_some();
    let tables = alternatives(value).filter(|value| !is_list(value));
    tables.chain(alternatives(value).filter(is_list)).find_map(|value| table(schema, value))
}

/// Returns the keys of the tables of a value that has tables by name.
fn named_tables<'a>(schema: &'a Value, value: &'a Value) -> Option<&'a Map<String, Value>> {
    let each =
        resolve(schema, value).get("additionalProperties").filter(|each| each.is_object())?;
    table(schema, each).map(|(keys, _)| keys)
}

fn section(page: &mut Roff, schema: &Value, table: &Table<'_>) {
    let (open, close) = if table.repeated { ("[[", "]]") } else { ("[", "]") };
    page.control("SH", [format!("{open}{}{close}", table.path).as_str()]);
    page.text(inlines(table.description));
    for (key, value) in table.definition {
        page.control("TP", []);
        page.text([bold(key.as_str()), roman(" = "), italic(forms(schema, value).join(" | "))]);
        page.text(inlines(describe(value)));
        for (choice, meaning) in choices(schema, value) {
            page.control("RS", []).control("TP", []);
            page.text([bold(format!("\"{choice}\""))]).text(inlines(meaning));
            page.control("RE", []);
        }
    }
}

/// Returns the forms that a value can have, in words.
fn forms(schema: &Value, value: &Value) -> Vec<String> {
    let value = resolve(schema, value);
    let mut forms = Vec::new();
    let words: Vec<_> = values(value).map(|word| format!("\"{word}\"")).collect();
    if !words.is_empty() {
        return words;
    }
    if value.get("items").is_none() && value.get("pattern").is_none() {
        // A size, time or rate describes itself, with an example.
        let own = value.get("anyOf").and(value.get("description")).and_then(Value::as_str);
        if let Some(own) = own.filter(|_| is_text_or_number(value)) {
            return vec![own.to_owned()];
        }
    }
    for alternative in alternatives(value) {
        for form in self::forms(schema, alternative) {
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    for kind in kinds(value) {
        forms.push(match (kind, value.get("items")) {
            ("array", Some(items)) => format!("[{}, ...]", self::forms(schema, items).join(" | ")),
            ("object", _) => "table".to_owned(),
            ("boolean", _) => "true | false".to_owned(),
            (kind, _) => kind.to_owned(),
        });
    }
    forms
}

/// Returns `true` if the alternatives of a value are a text with a pattern, and numbers.
fn is_text_or_number(value: &Value) -> bool {
    alternatives(value).any(|value| value.get("pattern").is_some())
}

/// Returns the words that a value can be, with their meaning where the schema has one.
fn choices<'a>(schema: &'a Value, value: &'a Value) -> Vec<(&'a str, &'a str)> {
    let value = resolve(schema, value);
    if let Some(choices) = value.get("oneOf").and_then(Value::as_array) {
        let choice = |choice: &'a Value| Some((choice.get("const")?.as_str()?, describe(choice)));
        return choices.iter().filter_map(choice).collect();
    }
    alternatives(value).flat_map(|value| choices(schema, value)).collect()
}

/// Returns the words that a value can be.
fn values(value: &Value) -> impl Iterator<Item = &str> {
    let list = |key| value.get(key).and_then(Value::as_array).into_iter().flatten();
    let constants = list("oneOf").filter_map(|choice| choice.get("const"));
    list("enum").chain(constants).filter_map(Value::as_str)
}

fn alternatives(value: &Value) -> impl Iterator<Item = &Value> {
    value.get("anyOf").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the types of a value in JSON's words, without that of an absent one.
fn kinds(value: &Value) -> impl Iterator<Item = &str> {
    let kind = value.get("type");
    let several = kind.and_then(Value::as_array).into_iter().flatten();
    kind.into_iter().chain(several).filter_map(Value::as_str).filter(|kind| *kind != "null")
}

fn resolve<'a>(schema: &'a Value, value: &'a Value) -> &'a Value {
    let name = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    name.and_then(|name| schema.get("$defs")?.get(name)).unwrap_or(value)
}

fn properties(value: &Value) -> Option<&Map<String, Value>> {
    value.get("properties")?.as_object()
}

fn describe(value: &Value) -> &str {
    value.get("description").and_then(Value::as_str).unwrap_or_default()
}
