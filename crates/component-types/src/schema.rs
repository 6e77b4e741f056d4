//! JSON Schema (draft 2020-12, as OpenAPI 3.1 has it) of types.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::types::{Names, Record, Type, Variant};

/// The schemas of the types of one interface. Types with names are written once.
pub(crate) struct Schemas<'a> {
    /// The text that precedes the names of types.
    prefix: String,
    /// Schemas of types with names, for all interfaces.
    named: &'a mut BTreeMap<String, Value>,
}

impl<'a> Schemas<'a> {
    /// Schemas of the interface with this name; those of types with names are added to `named`.
    pub(crate) fn new(interface: &str, named: &'a mut BTreeMap<String, Value>) -> Self {
        // Keys of components have letters, digits, dots, hyphens and underscores.
        let allowed =
            |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
        let mut prefix: String = interface.chars().map(allowed).collect();
        if !prefix.is_empty() {
            prefix.push('.');
        }
        Self { prefix, named }
    }

    /// Returns the schema of values of the type.
    pub(crate) fn of(&mut self, ty: &Type) -> Value {
        match ty {
            Type::Bool => json!({ "type": "boolean" }),
            Type::S8 => json!({ "type": "integer", "minimum": i8::MIN, "maximum": i8::MAX }),
            Type::U8 => json!({ "type": "integer", "minimum": 0, "maximum": u8::MAX }),
            Type::S16 => json!({ "type": "integer", "minimum": i16::MIN, "maximum": i16::MAX }),
            Type::U16 => json!({ "type": "integer", "minimum": 0, "maximum": u16::MAX }),
            Type::S32 => json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }),
            Type::U32 => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
            Type::S64 => json!({
                "type": ["integer", "string"], "minimum": i64::MIN, "maximum": i64::MAX, "pattern": "^-?[0-9]{1,19}$",
            }),
            Type::U64 => json!({
                "type": ["integer", "string"], "minimum": 0, "maximum": u64::MAX, "pattern": "^[0-9]{1,20}$",
            }),
            Type::Float32 => {
                one_of(vec![json!({ "type": "number", "format": "float" }), special()])
            }
            Type::Float64 => {
                one_of(vec![json!({ "type": "number", "format": "double" }), special()])
            }
            Type::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            Type::String => json!({ "type": "string" }),
            Type::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Type::List(element) => json!({ "type": "array", "items": self.of(element) }),
            Type::FixedLengthList(element, length) => json!({
                "type": "array", "items": self.of(element), "minItems": length, "maxItems": length,
            }),
            Type::Map(types) if matches!(types[0], Type::String) => {
                json!({ "type": "object", "additionalProperties": self.of(&types[1]) })
            }
            Type::Map(types) => json!({ "type": "array", "items": self.tuple(&**types) }),
            Type::Tuple(types) => self.tuple(types),
            Type::Record(record) => {
                self.named(record.name.as_ref(), |schemas| schemas.object(record))
            }
            Type::Variant(variant) => {
                self.named(variant.name.as_ref(), |schemas| schemas.variant(variant))
            }
            Type::Enum(names) => self.named(names.name.as_ref(), |_| enumeration(names)),
            Type::Flags(names) => self.named(
                names.name.as_ref(),
                |_| json!({ "type": "array", "items": enumeration(names), "uniqueItems": true }),
            ),
            Type::Option(content) if matches!(**content, Type::Option(_)) => {
                let content = self.of(content);
                one_of(vec![member("some", content), no_value()])
            }
            Type::Option(content) => json!({ "anyOf": [self.of(content), no_value()] }),
            Type::Result(contents) => {
                let [ok, err] = &**contents;
                let (ok, err) = (self.content(ok.as_ref()), self.content(err.as_ref()));
                one_of(vec![member("ok", ok), member("err", err)])
            }
        }
    }

    /// Returns the schema of a value that a case may have.
    pub(crate) fn content(&mut self, ty: Option<&Type>) -> Value {
        ty.map_or_else(no_value, |ty| self.of(ty))
    }

    /// Returns an object with the fields of the record and no others.
    pub(crate) fn object(&mut self, record: &Record) -> Value {
        let properties: Map<_, _> =
            record.fields.iter().map(|(name, ty)| (name.clone(), self.of(ty))).collect();
        let required: Vec<_> = record.required().collect();
        let mut schema =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }

    fn named(&mut self, name: Option<&String>, schema: impl FnOnce(&mut Self) -> Value) -> Value {
        let Some(name) = name else { return schema(self) };
        let key = format!("{}{name}", self.prefix);
        if !self.named.contains_key(&key) {
            let schema = schema(self);
            self.named.insert(key.clone(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{key}") })
    }

    fn tuple(&mut self, types: &[Type]) -> Value {
        let items: Vec<_> = types.iter().map(|ty| self.of(ty)).collect();
        let length = items.len();
        json!({ "type": "array", "prefixItems": items, "items": false, "minItems": length, "maxItems": length })
    }

    fn variant(&mut self, variant: &Variant) -> Value {
        let cases = variant.cases.iter().map(|(name, content)| match content {
            Some(ty) => {
                let schema = self.of(ty);
                member(name, schema)
            }
            None => json!({ "const": name }),
        });
        one_of(cases.collect())
    }
}

fn enumeration(names: &Names) -> Value {
    json!({ "type": "string", "enum": names.names })
}

/// Returns the floats that JSON has no numbers for.
fn special() -> Value {
    json!({ "enum": ["NaN", "Infinity", "-Infinity"] })
}

fn no_value() -> Value {
    json!({ "type": "null" })
}

fn one_of(schemas: Vec<Value>) -> Value {
    json!({ "oneOf": schemas })
}

/// Returns an object with one member.
fn member(name: &str, schema: Value) -> Value {
    let properties: Map<_, _> = [(name.to_owned(), schema)].into_iter().collect();
    json!({ "type": "object", "properties": properties, "required": [name], "additionalProperties": false })
}
