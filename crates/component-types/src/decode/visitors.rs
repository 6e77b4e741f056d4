//! The visitors of serde: one for values of any type, and one for each form of an object.

use std::fmt;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use wasmtime::component::Val;

use super::place::{Progress, Segment};
use crate::types::{Record, Type};

/// The alphabet of RFC 4648 §4, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The largest number below which every integer is a float.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// A value of a type.
#[derive(Clone, Copy)]
struct Value<'t> {
    ty: &'t Type,
    progress: &'t Progress,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Val;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Val, D::Error> {
        self.progress.count(1)?;
        match self.ty {
            Type::Option(_) => deserializer.deserialize_option(self),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'t> Value<'t> {
    fn of(self, ty: &'t Type) -> Self {
        Self { ty, ..self }
    }

    fn wrong<E: Error>(self, found: impl fmt::Display) -> E {
        E::custom(format_args!("expected {}, found {found}", self.ty))
    }

    fn integer<E: Error>(self, value: i128) -> Result<Val, E> {
        let converted = match self.ty {
            Type::S8 => value.try_into().ok().map(Val::S8),
            Type::U8 => value.try_into().ok().map(Val::U8),
            Type::S16 => value.try_into().ok().map(Val::S16),
            Type::U16 => value.try_into().ok().map(Val::U16),
            Type::S32 => value.try_into().ok().map(Val::S32),
            Type::U32 => value.try_into().ok().map(Val::U32),
            Type::S64 => value.try_into().ok().map(Val::S64),
            Type::U64 => value.try_into().ok().map(Val::U64),
            Type::Float32 => Some(Val::Float32(value as f32)),
            Type::Float64 => Some(Val::Float64(value as f64)),
            _ => None,
        };
        converted.ok_or_else(|| self.wrong(value))
    }

    /// Returns the case of a variant, a result or an option in an option, as object with one member.
    fn case<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Val, A::Error> {
        let find = |name: &str| match self.ty {
            Type::Variant(variant) => match variant.case(name)? {
                (name, Some(content)) => Some((name.as_str(), Some(content))),
                (_, None) => None,
            },
            Type::Result(contents) => match name {
                "ok" => Some(("ok", contents[0].as_ref())),
                "err" => Some(("err", contents[1].as_ref())),
                _ => None,
            },
            Type::Option(content) => (name == "some").then_some(("some", Some(&**content))),
            _ => None,
        };
        let unknown = |found: &str| format!("expected {}, found {{\"{found}\": ...}}", self.ty);
        let Some((name, content)) = map.next_key_seed(Name { find, unknown })? else {
            return Err(self.wrong("an empty object"));
        };
        let content = match content {
            Some(ty) => map.next_value_seed(self.of(ty)).map(|value| Some(Box::new(value))),
            None => map.next_value::<()>().map(|()| None),
        };
        let content = self.progress.within(content, || Segment::Name(name.to_owned()))?;
        let further = |found: &str| format!("expected one member, found \"{found}\" as well");
        map.next_key_seed(Name { find: |_: &str| None::<()>, unknown: further })?;
        Ok(match self.ty {
            Type::Variant(_) => Val::Variant(name.to_owned(), content),
            Type::Option(_) => Val::Option(content),
            _ if name == "ok" => Val::Result(Ok(content)),
            _ => Val::Result(Err(content)),
        })
    }

    fn map<'de, A: MapAccess<'de>>(self, value: &'t Type, mut map: A) -> Result<Val, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            self.progress.count(1)?;
            let result = map.next_value_seed(self.of(value));
            let value = self.progress.within(result, || Segment::Name(key.clone()))?;
            pairs.push((Val::String(key), value));
        }
        Ok(Val::Map(pairs))
    }

    /// Returns all elements of an array.
    fn list<'de, A: SeqAccess<'de>>(
        self,
        element: &'t Type,
        mut seq: A,
    ) -> Result<Vec<Val>, A::Error> {
        let mut values = Vec::new();
        loop {
            let result = seq.next_element_seed(self.of(element));
            match self.progress.within(result, || Segment::Index(values.len()))? {
                Some(value) => values.push(value),
                None => return Ok(values),
            }
        }
    }

    fn tuple<'de, A: SeqAccess<'de>>(
        self,
        types: &'t [Type],
        mut seq: A,
    ) -> Result<Vec<Val>, A::Error> {
        let mut values = Vec::with_capacity(types.len());
        for ty in types {
            let result = seq.next_element_seed(self.of(ty));
            match self.progress.within(result, || Segment::Index(values.len()))? {
                Some(value) => values.push(value),
                None => return Err(self.wrong(format_args!("one of length {}", values.len()))),
            }
        }
        seq.next_element_seed(Further(self))?;
        Ok(values)
    }

    fn map_pairs<'de, A: SeqAccess<'de>>(
        self,
        types: &'t [Type; 2],
        mut seq: A,
    ) -> Result<Val, A::Error> {
        let mut pairs = Vec::new();
        loop {
            let result = seq.next_element_seed(Pair { map: self, types });
            match self.progress.within(result, || Segment::Index(pairs.len()))? {
                Some(pair) => pairs.push(pair),
                None => return Ok(Val::Map(pairs)),
            }
        }
    }

    fn flags<'de, A: SeqAccess<'de>>(self, mut seq: A) -> Result<Val, A::Error> {
        let Type::Flags(flags) = self.ty else { return Err(self.wrong("an array")) };
        let mut set = vec![false; flags.names.len()];
        let mut count = 0;
        let find = |name: &str| flags.position(name);
        let unknown = |found: &str| format!("expected {}, found \"{found}\"", self.ty);
        loop {
            let result = seq.next_element_seed(Name { find, unknown });
            match self.progress.within(result, || Segment::Index(count))? {
                Some(position) => set[position] = true,
                None => break,
            }
            count += 1;
        }
        self.progress.count(count)?;
        let names = flags.names.iter().zip(set).filter(|(_, set)| *set);
        Ok(Val::Flags(names.map(|(name, _)| name.clone()).collect()))
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Val;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Val, E> {
        match self.ty {
            Type::Bool => Ok(Val::Bool(value)),
            _ => Err(self.wrong(value)),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Val, E> {
        self.integer(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Val, E> {
        self.integer(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Val, E> {
        match self.ty {
            Type::Float32 if (value as f32).is_finite() => Ok(Val::Float32(value as f32)),
            Type::Float64 => Ok(Val::Float64(value)),
            Type::Float32 => Err(self.wrong(value)),
            // 1.0 and 1e3 are integers too.
            _ if value.fract() == 0.0 && value.abs() <= MAX_WHOLE => self.integer(value as i128),
            _ => Err(self.wrong(value)),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Val, E> {
        let found = || self.wrong(format_args!("the string \"{value}\""));
        match self.ty {
            Type::String => Ok(Val::String(value.to_owned())),
            Type::Char => {
                let mut characters = value.chars();
                match (characters.next(), characters.next()) {
                    (Some(character), None) => Ok(Val::Char(character)),
                    _ => Err(found()),
                }
            }
            Type::S64 => value.parse().map(Val::S64).map_err(|_| found()),
            Type::U64 => value.parse().map(Val::U64).map_err(|_| found()),
            Type::Float32 => {
                special(value).map(|value| Val::Float32(value as f32)).ok_or_else(found)
            }
            Type::Float64 => special(value).map(Val::Float64).ok_or_else(found),
            Type::Bytes => {
                let bytes = BASE64
                    .decode(value)
                    .map_err(|error| E::custom(format_args!("invalid Base64: {error}")))?;
                self.progress.count(bytes.len())?;
                Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
            }
            Type::Enum(names) => {
                let position = names.position(value).ok_or_else(found)?;
                Ok(Val::Enum(names.names[position].clone()))
            }
            Type::Variant(variant) => match variant.case(value) {
                Some((name, None)) => Ok(Val::Variant(name.clone(), None)),
                _ => Err(found()),
            },
            _ => Err(found()),
        }
    }

    fn visit_none<E: Error>(self) -> Result<Val, E> {
        self.visit_unit()
    }

    fn visit_unit<E: Error>(self) -> Result<Val, E> {
        match self.ty {
            Type::Option(_) => Ok(Val::Option(None)),
            _ => Err(self.wrong("null")),
        }
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Val, D::Error> {
        match self.ty {
            // Null is the outer option.
            Type::Option(content) if matches!(**content, Type::Option(_)) => {
                deserializer.deserialize_any(self)
            }
            Type::Option(content) => self
                .of(content)
                .deserialize(deserializer)
                .map(|value| Val::Option(Some(Box::new(value)))),
            _ => deserializer.deserialize_any(self),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Val, A::Error> {
        match self.ty {
            Type::List(element) => self.list(element, seq).map(Val::List),
            Type::FixedLengthList(element, length) => match self.list(element, seq)? {
                values if values.len() == *length => Ok(Val::FixedLengthList(values)),
                values => Err(self.wrong(format_args!("one of length {}", values.len()))),
            },
            Type::Tuple(types) => self.tuple(types, seq).map(Val::Tuple),
            Type::Map(types) if !matches!(types[0], Type::String) => self.map_pairs(types, seq),
            Type::Flags(_) => self.flags(seq),
            _ => Err(self.wrong("an array")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Val, A::Error> {
        match self.ty {
            Type::Record(record) => {
                let values = Fields { record, progress: self.progress }.visit_map(map)?;
                Ok(Val::Record(
                    record.fields.iter().map(|(name, _)| name.clone()).zip(values).collect(),
                ))
            }
            Type::Map(types) if matches!(types[0], Type::String) => self.map(&types[1], map),
            Type::Variant(_) | Type::Result(_) | Type::Option(_) => self.case(map),
            _ => Err(self.wrong("an object")),
        }
    }
}

/// Returns the floats that JSON has no numbers for.
fn special(value: &str) -> Option<f64> {
    match value {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// The fields of a record, or the parameters of a function, in the order of their declaration.
#[derive(Clone, Copy)]
pub(super) struct Fields<'t> {
    pub(super) record: &'t Record,
    pub(super) progress: &'t Progress,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Vec<Val>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Val>, A::Error> {
        let Self { record, progress } = self;
        let mut values: Vec<Option<Val>> = Vec::with_capacity(record.fields.len());
        values.resize_with(record.fields.len(), || None);
        let mut next = 0;
        loop {
            let find = |name: &str| record.position(name, next);
            let Some(position) = map.next_key_seed(Name {
                find,
                unknown: |found: &str| unknown_field(record, found),
            })?
            else {
                break;
            };
            let (name, ty) = &record.fields[position];
            let result = match values[position] {
                None => map.next_value_seed(Value { ty, progress }),
                Some(_) => Err(A::Error::custom("the field occurs twice")),
            };
            values[position] = Some(progress.within(result, || Segment::Name(name.clone()))?);
            next = position + 1;
        }
        let values =
            values.into_iter().zip(&record.fields).map(|(value, (name, ty))| match (value, ty) {
                (Some(value), _) => Ok(value),
                (None, Type::Option(_)) => progress.count(1).map(|()| Val::Option(None)),
                (None, _) => progress.within(Err(A::Error::custom("the field is missing")), || {
                    Segment::Name(name.clone())
                }),
            });
        values.collect()
    }
}

fn unknown_field(record: &Record, found: &str) -> String {
    if record.fields.is_empty() {
        return format!("the field \"{found}\" is unknown; there are none");
    }
    let names: Vec<_> =
        record.fields.iter().take(8).map(|(name, _)| format!("\"{name}\"")).collect();
    let further = if record.fields.len() > names.len() { ", ..." } else { "" };
    // The known fields come first: a long name must not cut them off.
    format!("expected {}{further}, found the unknown field \"{found}\"", names.join(", "))
}

/// A name of an object, or a string of an array, that must be a known one.
struct Name<F, U> {
    /// Returns the meaning of a name, if it is known.
    find: F,
    /// The reason of the error if it is unknown.
    unknown: U,
}

impl<'de, T, F, U> DeserializeSeed<'de> for Name<F, U>
where
    F: FnOnce(&str) -> Option<T>,
    U: FnOnce(&str) -> String,
{
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, T, F, U> Visitor<'de> for Name<F, U>
where
    F: FnOnce(&str) -> Option<T>,
    U: FnOnce(&str) -> String,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        (self.find)(name).ok_or_else(|| E::custom((self.unknown)(name)))
    }
}

/// A key and a value of a map, as array.
struct Pair<'t> {
    map: Value<'t>,
    types: &'t [Type; 2],
}

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = (Val, Val);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(Val, Val), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = (Val, Val);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of length 2")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(Val, Val), A::Error> {
        let values = self.map.tuple(self.types, seq)?;
        let pair: Result<[Val; 2], _> = values.try_into();
        pair.map(|[key, value]| (key, value))
            .map_err(|_| self.map.wrong("an array of another length"))
    }
}

/// An element after the last one of a tuple: an error, whatever it is.
struct Further<'t>(Value<'t>);

impl<'de> DeserializeSeed<'de> for Further<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(self.0.wrong("a longer one"))
    }
}
