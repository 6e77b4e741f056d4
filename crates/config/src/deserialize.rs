//! The deserializer of configurations: from the values of the TOML parser to the types of [`file`](super::file). Its errors
//! are in the terms of TOML, and a list is never taken for a table.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::value::{StrDeserializer, UsizeDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Name of the tuple of start, end and value that [`super::spanned::Spanned`] deserializes.
pub(super) const SPANNED: &str = "Dunlin::Spanned";

/// An error of a value or a key.
#[derive(Debug, PartialEq)]
pub(super) struct Error {
    /// The bytes of the value in the file, if known.
    pub(super) span: Option<Range<usize>>,
    pub(super) kind: ErrorKind,
}

/// The kind of an error.
#[derive(Debug, PartialEq)]
pub(super) enum ErrorKind {
    /// The table has no such key; the keys that it has.
    UnknownKey(String, &'static [&'static str]),
    /// The text is not one of these.
    UnknownName(String, &'static [&'static str]),
    /// The table lacks this key.
    MissingKey(&'static str),
    /// Any other error, as a sentence.
    Other(String),
}

impl Error {
    fn new(kind: ErrorKind) -> Self {
        Self { span: None, kind }
    }

    /// Adds the span of the innermost value.
    fn at(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::UnknownKey(name, _) => write!(f, "there is no key `{name}`"),
            ErrorKind::UnknownName(name, _) => write!(f, "`{name}` is not a valid value"),
            ErrorKind::MissingKey(key) => write!(f, "the key `{key}` is missing"),
            ErrorKind::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = match message.to_string() {
            text if text == "invalid socket address syntax" => format!("expected {ADDRESS}"),
            text => text,
        };
        Self::new(ErrorKind::Other(text))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let found = match found {
            // The values of tables, such as those of variables, can be secrets.
            Unexpected::Str(_) if expected == "a map" => "a text".to_owned(),
            found => actual(found),
        };
        Self::new(ErrorKind::Other(format!("expected {}, found {found}", in_toml(&expected))))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(ErrorKind::UnknownName(name.to_owned(), known))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(ErrorKind::UnknownKey(name.to_owned(), known))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(ErrorKind::MissingKey(name))
    }
}

const ADDRESS: &str = "an address such as \"127.0.0.1:53\"";

/// Returns the expected value without names of Rust types.
fn in_toml(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "usize" | "u64" => "a whole number of at least 0",
        "i64" | "i32" | "i16" => "a whole number",
        "f64" | "f32" => "a number",
        "a sequence" => "a list such as [\"...\"]",
        "a map" => "a table such as { key = \"value\" }",
        "a string" | "path string" => "a text in quotes",
        "a boolean" => "true or false",
        "socket address" => ADDRESS,
        _ if expected.starts_with("struct ") => "a table such as { key = \"value\" }",
        _ => expected,
    }
}

fn actual(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Str(value) => format!("{value:?}"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// The deserializer of a value.
pub(super) struct ValueDeserializer<'a> {
    value: &'a DeValue<'a>,
    span: Range<usize>,
}

impl<'a> ValueDeserializer<'a> {
    /// Creates a deserializer of a value of the file.
    pub(super) fn new(value: &'a Spanned<DeValue<'a>>) -> Self {
        Self { value: value.get_ref(), span: value.span() }
    }

    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => visitor.visit_i64(number),
                    Err(_) => Err(de::Error::custom("the number is too large")),
                }
            }
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(de::Error::custom("the number is too large")),
            },
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Datetime(_) => {
                Err(de::Error::invalid_type(Unexpected::Other("a date or time"), &visitor))
            }
            DeValue::Array(list) => visitor.visit_seq(List(list.iter())),
            DeValue::Table(table) => visitor.visit_map(TableAccess::new(table)),
        }
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let span = self.span.clone();
        self.visit(visitor).map_err(|error| error.at(span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match name {
            SPANNED => visitor.visit_seq(SpannedAccess::new(self.span.clone(), self)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            // The visitors of tables accept lists, too: of the values in the order of the type's fields.
            DeValue::Array(_) => {
                let error: Error = de::Error::invalid_type(Unexpected::Seq, &visitor);
                Err(error.at(self.span))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let span = self.span.clone();
        let result = match self.value {
            DeValue::String(text) => visitor.visit_enum(StrDeserializer::<Error>::new(text)),
            _ => self.visit(OneOf(names, PhantomData)),
        };
        result.map_err(|error| error.at(span))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple map
        identifier ignored_any
    }
}

/// A visitor that accepts no value: its errors name the texts that are valid.
struct OneOf<T>(&'static [&'static str], PhantomData<T>);

impl<T> Visitor<'_> for OneOf<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of `{}`", self.0.join("`, `"))
    }
}

/// The values of a list.
struct List<'a>(std::slice::Iter<'a, Spanned<DeValue<'a>>>);

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|value| seed.deserialize(ValueDeserializer::new(value))).transpose()
    }
}

/// The keys and values of a table.
pub(super) struct TableAccess<'a> {
    entries: toml::map::Iter<'a, Spanned<DeString<'a>>, Spanned<DeValue<'a>>>,
    value: Option<&'a Spanned<DeValue<'a>>>,
}

impl<'a> TableAccess<'a> {
    pub(super) fn new(table: &'a DeTable<'a>) -> Self {
        Self { entries: table.iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for TableAccess<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        let deserializer = KeyDeserializer { key: key.get_ref(), span: key.span() };
        seed.deserialize(deserializer).map(Some).map_err(|error| error.at(key.span()))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.value.take() {
            Some(value) => {
                let deserializer = ValueDeserializer::new(value);
                seed.deserialize(deserializer).map_err(|error| error.at(value.span()))
            }
            None => Err(de::Error::custom("the key has no value")),
        }
    }
}

/// The deserializer of a key.
struct KeyDeserializer<'a> {
    key: &'a str,
    span: Range<usize>,
}

impl<'de> Deserializer<'de> for KeyDeserializer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.key)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match name {
            SPANNED => visitor.visit_seq(SpannedAccess::new(self.span.clone(), self)),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple map struct enum identifier ignored_any
    }
}

/// The start, the end and the value of a [`super::spanned::Spanned`].
struct SpannedAccess<D> {
    numbers: std::array::IntoIter<usize, 2>,
    value: Option<D>,
}

impl<D> SpannedAccess<D> {
    fn new(span: Range<usize>, value: D) -> Self {
        Self { numbers: [span.start, span.end].into_iter(), value: Some(value) }
    }
}

impl<'de, D: Deserializer<'de, Error = Error>> SeqAccess<'de> for SpannedAccess<D> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if let Some(number) = self.numbers.next() {
            let number: UsizeDeserializer<Error> = number.into_deserializer();
            return seed.deserialize(number).map(Some);
        }
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::overrides::Overrides;
    use crate::vocabulary::{SECTIONS, keys_of};
    use crate::{Config, Problem};

    const LISTEN: &str = "[[listen]]\n";
    const SITE: &str = "[[site]]\n";
    const ROUTE: &str = "[[site.route]]\n";

    fn problems(text: &str) -> Vec<String> {
        let config = Config::parse(text, Path::new("/etc/dunlin.toml"), &Overrides::default());
        config.err().unwrap_or_default().iter().map(Problem::to_string).collect()
    }

    /// Returns a configuration whose `section` has only `line` besides the keys that it needs.
    fn with(section: &str, line: &str) -> String {
        let own = |name: &str, needed: &str| match section == name {
            true if line.starts_with(needed.split(' ').next().unwrap_or_default()) => {
                format!("{line}\n")
            }
            true => format!("{needed}\n{line}\n"),
            false => format!("{needed}\n"),
        };
        let server = section.starts_with("[server").then(|| format!("{section}\n{line}\n"));
        [
            &*server.unwrap_or_default(),
            LISTEN,
            &own("[[listen]]", "address = ':1'"),
            SITE,
            &own("[[site]]", "root = '/srv'"),
            ROUTE,
            &own("[[site.route]]", "path = '/*'"),
        ]
        .concat()
    }

    #[test]
    fn values_of_the_wrong_type_are_described_in_the_terms_of_toml() {
        let values = [
            "1",
            "-1",
            "1.5",
            "true",
            "'x'",
            "[]",
            "[1]",
            "{}",
            "{ x = 1 }",
            "2026-01-01",
            "99999999999999999999",
        ];
        let words = [
            "invalid type",
            "invalid value",
            "invalid length",
            "sequence",
            "type: map",
            "struct",
            "variant",
            "usize",
            "u16",
            "i64",
            "wanted",
            "private",
            "newtype",
        ];
        let mut count = 0;
        for (section, definition) in SECTIONS {
            for key in keys_of(definition).iter().filter(|key| *key != "route") {
                for value in values {
                    let text = with(section, &format!("{key} = {value}"));
                    for problem in problems(&text) {
                        count += 1;
                        let found = words.iter().find(|word| problem.contains(*word));
                        assert_eq!(found, None, "{section} {key} = {value}: {problem}");
                    }
                }
            }
        }
        assert!(count > 500, "{count}");
    }

    #[test]
    fn a_list_is_not_a_table() {
        for line in ["limits = []", "limits = [64]", "http1 = []", "cache = ['1MB']"] {
            let found = problems(&with("[server]", line));
            let key = line.split(' ').next().unwrap();
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(
                found[0].contains(&format!("{key}: expected a table such as"))
                    && found[0].ends_with(", found a list"),
                "{found:?}"
            );
        }
    }
}
