//! The types of parameters and results, in the form in which values are converted.

use std::collections::HashMap;
use std::fmt;

use wasmtime::Engine;
use wasmtime::component::Type as WasmType;
use wasmtime::component::types::{ComponentInstance, ComponentItem};

/// The depth to which types may be nested. Values have no greater depth, which bounds the recursion of all conversions.
pub(crate) const MAX_DEPTH: usize = 64;

/// The number of types that the parameters and the result of a function may be made of.
const MAX_TYPES: usize = 10_000;

/// A type of a value.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Bool,
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
    Float32,
    Float64,
    Char,
    String,
    /// `list<u8>`.
    Bytes,
    List(Box<Type>),
    FixedLengthList(Box<Type>, usize),
    /// Keys and values.
    Map(Box<[Type; 2]>),
    Record(Record),
    Tuple(Vec<Type>),
    Variant(Variant),
    Enum(Names),
    Flags(Names),
    Option(Box<Type>),
    /// The types of the values of `ok` and `err`.
    Result(Box<[Option<Type>; 2]>),
}

/// Fields with names, in the order of their declaration.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The name of the type, if its interface exports one.
    pub(crate) name: Option<String>,
    pub(crate) fields: Vec<(String, Type)>,
    index: HashMap<String, usize>,
}

/// One of several cases, with or without a value.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// The name of the type, if its interface exports one.
    pub(crate) name: Option<String>,
    pub(crate) cases: Vec<(String, Option<Type>)>,
    index: HashMap<String, usize>,
}

/// The names of an enum or of flags.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The name of the type, if its interface exports one.
    pub(crate) name: Option<String>,
    pub(crate) names: Vec<String>,
    index: HashMap<String, usize>,
}

impl Record {
    pub(crate) fn new(name: Option<String>, fields: Vec<(String, Type)>) -> Self {
        let index = index(fields.iter().map(|(name, _)| name));
        Self { name, fields, index }
    }

    /// Returns the names of the fields that cannot be absent.
    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        let required = self.fields.iter().filter(|(_, ty)| !matches!(ty, Type::Option(_)));
        required.map(|(name, _)| name.as_str())
    }

    /// Returns the position of the field. `next` is the position that is the most likely.
    pub(crate) fn position(&self, name: &str, next: usize) -> Option<usize> {
        match self.fields.get(next) {
            Some((expected, _)) if expected == name => Some(next),
            _ => self.index.get(name).copied(),
        }
    }
}

impl Variant {
    pub(crate) fn new(name: Option<String>, cases: Vec<(String, Option<Type>)>) -> Self {
        let index = index(cases.iter().map(|(name, _)| name));
        Self { name, cases, index }
    }

    pub(crate) fn case(&self, name: &str) -> Option<&(String, Option<Type>)> {
        self.cases.get(*self.index.get(name)?)
    }
}

impl Names {
    pub(crate) fn new(name: Option<String>, names: Vec<String>) -> Self {
        let index = index(names.iter());
        Self { name, names, index }
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }
}

fn index<'a>(names: impl Iterator<Item = &'a String>) -> HashMap<String, usize> {
    names.enumerate().map(|(at, name)| (name.clone(), at)).collect()
}

/// The JSON that is expected for a value, as it stands in messages.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => f.write_str("true or false"),
            Type::S8 => write!(f, "an integer from {} to {}", i8::MIN, i8::MAX),
            Type::U8 => write!(f, "an integer from 0 to {}", u8::MAX),
            Type::S16 => write!(f, "an integer from {} to {}", i16::MIN, i16::MAX),
            Type::U16 => write!(f, "an integer from 0 to {}", u16::MAX),
            Type::S32 => write!(f, "an integer from {} to {}", i32::MIN, i32::MAX),
            Type::U32 => write!(f, "an integer from 0 to {}", u32::MAX),
            Type::S64 => write!(f, "an integer from {} to {}", i64::MIN, i64::MAX),
            Type::U64 => write!(f, "an integer from 0 to {}", u64::MAX),
            Type::Float32 | Type::Float64 => {
                f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
            }
            Type::Char => f.write_str("a string of one character"),
            Type::String => f.write_str("a string"),
            Type::Bytes => f.write_str("a string in Base64"),
            Type::List(_) => f.write_str("an array"),
            Type::FixedLengthList(_, length) => write!(f, "an array of length {length}"),
            Type::Tuple(types) => write!(f, "an array of length {}", types.len()),
            Type::Map(types) if matches!(types[0], Type::String) => f.write_str("an object"),
            Type::Map(_) => f.write_str("an array of pairs"),
            Type::Record(_) => f.write_str("an object"),
            Type::Variant(variant) => {
                f.write_str("one of ")?;
                list(f, variant.cases.iter().map(|(name, content)| (name, content.is_some())))
            }
            Type::Enum(names) => {
                f.write_str("one of ")?;
                list(f, names.names.iter().map(|name| (name, false)))
            }
            Type::Flags(names) => {
                f.write_str("an array of ")?;
                list(f, names.names.iter().map(|name| (name, false)))
            }
            Type::Option(content) if matches!(**content, Type::Option(_)) => {
                f.write_str("{\"some\": ...} or null")
            }
            Type::Option(content) => write!(f, "{content}, or null"),
            Type::Result(_) => f.write_str("{\"ok\": ...} or {\"err\": ...}"),
        }
    }
}

/// Writes the first names; a message has no more than a line.
fn list<'a>(
    f: &mut fmt::Formatter<'_>,
    names: impl Iterator<Item = (&'a String, bool)>,
) -> fmt::Result {
    for (at, (name, has_value)) in names.enumerate() {
        match (at, has_value) {
            (8, _) => return f.write_str(", ..."),
            (0, true) => write!(f, "{{\"{name}\": ...}}")?,
            (0, false) => write!(f, "\"{name}\"")?,
            (_, true) => write!(f, ", {{\"{name}\": ...}}")?,
            (_, false) => write!(f, ", \"{name}\"")?,
        }
    }
    Ok(())
}

/// Converts the types of one interface.
pub(crate) struct Converter {
    /// The types that the interface exports. A name is absent if two types of the interface have the same structure: the
    /// component model does not distinguish them.
    names: Vec<(WasmType, String)>,
    types: usize,
}

impl Converter {
    /// Creates a converter that knows the names of types which `instance` exports.
    pub(crate) fn new(engine: &Engine, instance: Option<&ComponentInstance>) -> Self {
        let mut names: Vec<(WasmType, String)> = Vec::new();
        let mut ambiguous = Vec::new();
        for (name, item) in instance.iter().flat_map(|instance| instance.exports(engine)) {
            let ComponentItem::Type(ty) = item.ty else { continue };
            if !matches!(
                ty,
                WasmType::Record(_) | WasmType::Variant(_) | WasmType::Enum(_) | WasmType::Flags(_)
            ) {
                continue;
            }
            match names.iter().position(|(known, _)| *known == ty) {
                Some(at) => ambiguous.push(at),
                None => names.push((ty, name.to_owned())),
            }
        }
        let names = names
            .into_iter()
            .enumerate()
            .filter(|(at, _)| !ambiguous.contains(at))
            .map(|(_, entry)| entry)
            .collect();
        Self { names, types: 0 }
    }

    /// Permits the types of a further function.
    pub(crate) fn begin(&mut self) {
        self.types = 0;
    }

    /// Returns the converted type.
    ///
    /// # Errors
    ///
    /// A value of the type cannot be JSON; the text is the reason.
    pub(crate) fn convert(&mut self, ty: &WasmType, depth: usize) -> Result<Type, String> {
        self.types += 1;
        if depth >= MAX_DEPTH {
            return Err(format!("types are nested deeper than {MAX_DEPTH} levels"));
        }
        if self.types > MAX_TYPES {
            return Err(format!("it is made of more than {MAX_TYPES} types"));
        }
        let depth = depth + 1;
        let name =
            || self.names.iter().find(|(known, _)| known == ty).map(|(_, name)| name.clone());
        Ok(match ty {
            WasmType::Bool => Type::Bool,
            WasmType::S8 => Type::S8,
            WasmType::U8 => Type::U8,
            WasmType::S16 => Type::S16,
            WasmType::U16 => Type::U16,
            WasmType::S32 => Type::S32,
            WasmType::U32 => Type::U32,
            WasmType::S64 => Type::S64,
            WasmType::U64 => Type::U64,
            WasmType::Float32 => Type::Float32,
            WasmType::Float64 => Type::Float64,
            WasmType::Char => Type::Char,
            WasmType::String => Type::String,
            WasmType::List(list) => match list.ty() {
                WasmType::U8 => Type::Bytes,
                element => Type::List(Box::new(self.convert(&element, depth)?)),
            },
            WasmType::FixedLengthList(list) => {
                let length =
                    usize::try_from(list.len()).map_err(|_| "a list is too long".to_owned())?;
                Type::FixedLengthList(Box::new(self.convert(&list.ty(), depth)?), length)
            }
            WasmType::Map(map) => Type::Map(Box::new([
                self.convert(&map.key(), depth)?,
                self.convert(&map.value(), depth)?,
            ])),
            WasmType::Record(record) => {
                let name = name();
                let fields = record
                    .fields()
                    .map(|field| Ok((field.name.to_owned(), self.convert(&field.ty, depth)?)));
                Type::Record(Record::new(name, fields.collect::<Result<_, String>>()?))
            }
            WasmType::Tuple(tuple) => Type::Tuple(
                tuple.types().map(|ty| self.convert(&ty, depth)).collect::<Result<_, String>>()?,
            ),
            WasmType::Variant(variant) => {
                let name = name();
                let cases = variant
                    .cases()
                    .map(|case| Ok((case.name.to_owned(), self.content(case.ty.as_ref(), depth)?)));
                Type::Variant(Variant::new(name, cases.collect::<Result<_, String>>()?))
            }
            WasmType::Enum(names) => {
                Type::Enum(Names::new(name(), names.names().map(str::to_owned).collect()))
            }
            WasmType::Flags(names) => {
                Type::Flags(Names::new(name(), names.names().map(str::to_owned).collect()))
            }
            WasmType::Option(option) => Type::Option(Box::new(self.convert(&option.ty(), depth)?)),
            WasmType::Result(result) => Type::Result(Box::new([
                self.content(result.ok().as_ref(), depth)?,
                self.content(result.err().as_ref(), depth)?,
            ])),
            WasmType::Own(_) | WasmType::Borrow(_) => {
                return Err("a resource has no form in JSON".to_owned());
            }
            WasmType::Stream(_) => return Err("a stream has no form in JSON".to_owned()),
            WasmType::Future(_) => return Err("a future has no form in JSON".to_owned()),
            WasmType::ErrorContext => return Err("an error-context has no form in JSON".to_owned()),
        })
    }

    fn content(&mut self, ty: Option<&WasmType>, depth: usize) -> Result<Option<Type>, String> {
        ty.map(|ty| self.convert(ty, depth)).transpose()
    }
}
