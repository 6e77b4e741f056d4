//! From values to JSON, straight into bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use wasmtime::component::Val;

use crate::types::Type;

/// The largest integer up to which every integer is exact in a number of JSON as most programs read it.
const MAX_EXACT: u64 = 1 << 53;

/// The result of a call as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The status of the result.
    pub status: Status,
    /// The value as JSON. Without bytes if the status is [`Status::Empty`].
    pub json: Vec<u8>,
}

/// The status of a call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A value: the result is no `result<T, E>`, or its `ok`.
    Ok,
    /// The value of `err`, `null` if it has none.
    Err,
    /// There is no value: the function returns none, or its `ok` has none.
    Empty,
}

/// Returns the result of a function: none, or one of type `ty`.
pub(crate) fn result(ty: Option<&Type>, results: &[Val]) -> Encoded {
    let (Some(ty), [value]) = (ty, results) else {
        return Encoded { status: Status::Empty, json: Vec::new() };
    };
    let (status, ty, value) = match (ty, value) {
        (Type::Result(types), Val::Result(Ok(value))) => match value {
            Some(value) => (Status::Ok, types[0].as_ref(), Some(&**value)),
            None => return Encoded { status: Status::Empty, json: Vec::new() },
        },
        (Type::Result(types), Val::Result(Err(value))) => {
            (Status::Err, types[1].as_ref(), value.as_deref())
        }
        _ => (Status::Ok, Some(ty), Some(value)),
    };
    let mut json = Vec::with_capacity(128);
    content(&mut json, ty, value);
    Encoded { status, json }
}

/// Writes `value`. A value that is not of the type, which the engine rules out, is written as `null`.
pub(crate) fn value(out: &mut Vec<u8>, ty: &Type, val: &Val) {
    match (ty, val) {
        (_, Val::Bool(value)) => put(out, value),
        (_, Val::S8(value)) => put(out, value),
        (_, Val::U8(value)) => put(out, value),
        (_, Val::S16(value)) => put(out, value),
        (_, Val::U16(value)) => put(out, value),
        (_, Val::S32(value)) => put(out, value),
        (_, Val::U32(value)) => put(out, value),
        (_, Val::S64(value)) if value.unsigned_abs() <= MAX_EXACT => put(out, value),
        (_, Val::S64(value)) => put(out, &value.to_string()),
        (_, Val::U64(value)) if *value <= MAX_EXACT => put(out, value),
        (_, Val::U64(value)) => put(out, &value.to_string()),
        (_, Val::Float32(value)) => float(out, f64::from(*value), short(*value)),
        (_, Val::Float64(value)) => float(out, *value, *value),
        (_, Val::Char(value)) => put(out, value),
        (_, Val::String(value)) => put(out, value),
        (Type::Bytes, Val::List(values)) => bytes(out, values),
        (Type::List(ty), Val::List(values))
        | (Type::FixedLengthList(ty, _), Val::FixedLengthList(values)) => {
            array(out, values, |out, val| value(out, ty, val));
        }
        (Type::Map(types), Val::Map(pairs)) if matches!(types[0], Type::String) => {
            object(out, pairs, |out, (key, val)| {
                value(out, &types[0], key);
                out.push(b':');
                value(out, &types[1], val);
            });
        }
        (Type::Map(types), Val::Map(pairs)) => array(out, pairs, |out, (key, val)| {
            array(out, [key, val].into_iter().zip(&**types), |out, (val, ty)| value(out, ty, val));
        }),
        (Type::Record(record), Val::Record(fields)) => {
            object(out, record.fields.iter().zip(fields), |out, ((_, ty), (field, val))| {
                name(out, field);
                out.push(b':');
                value(out, ty, val);
            });
        }
        (Type::Tuple(types), Val::Tuple(values)) => {
            array(out, types.iter().zip(values), |out, (ty, val)| value(out, ty, val));
        }
        (Type::Variant(_), Val::Variant(case, None)) => name(out, case),
        (Type::Variant(variant), Val::Variant(case, Some(val))) => {
            member(out, case, variant.case(case).and_then(|(_, ty)| ty.as_ref()), Some(val));
        }
        (Type::Enum(_), Val::Enum(case)) => name(out, case),
        (Type::Flags(_), Val::Flags(flags)) => array(out, flags, |out, flag| name(out, flag)),
        (Type::Option(ty), Val::Option(Some(val))) if matches!(**ty, Type::Option(_)) => {
            member(out, "some", Some(ty), Some(val));
        }
        (Type::Option(ty), Val::Option(val)) => content(out, Some(ty), val.as_deref()),
        (Type::Result(types), Val::Result(Ok(val))) => {
            member(out, "ok", types[0].as_ref(), val.as_deref());
        }
        (Type::Result(types), Val::Result(Err(val))) => {
            member(out, "err", types[1].as_ref(), val.as_deref());
        }
        _ => out.extend_from_slice(b"null"),
    }
}

/// An object with one member.
fn member(out: &mut Vec<u8>, key: &str, ty: Option<&Type>, val: Option<&Val>) {
    out.push(b'{');
    name(out, key);
    out.push(b':');
    content(out, ty, val);
    out.push(b'}');
}

fn content(out: &mut Vec<u8>, ty: Option<&Type>, val: Option<&Val>) {
    match (ty, val) {
        (Some(ty), Some(val)) => value(out, ty, val),
        _ => out.extend_from_slice(b"null"),
    }
}

fn array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    separated(out, *b"[]", items, write);
}

fn object<T>(
    out: &mut Vec<u8>,
    members: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    separated(out, *b"{}", members, write);
}

/// Writes `items` with commas between them, within brackets.
fn separated<T>(
    out: &mut Vec<u8>,
    [open, close]: [u8; 2],
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    out.push(open);
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(close);
}

/// A name of WIT: letters, digits and hyphens, which need no escapes.
fn name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

fn bytes(out: &mut Vec<u8>, values: &[Val]) {
    let bytes: Vec<u8> =
        values.iter().map(|value| if let Val::U8(byte) = value { *byte } else { 0 }).collect();
    put(out, &STANDARD.encode(bytes));
}

/// A float as number. `written` is the float with the shortest digits that are read as `value`.
fn float(out: &mut Vec<u8>, value: f64, written: f64) {
    if value.is_finite() {
        put(out, &written);
    } else if value.is_nan() {
        out.extend_from_slice(b"\"NaN\"");
    } else if value > 0.0 {
        out.extend_from_slice(b"\"Infinity\"");
    } else {
        out.extend_from_slice(b"\"-Infinity\"");
    }
}

/// Returns the float with the digits that `value` has as `f32`: 0.1 rather than 0.10000000149011612. Rounding twice, as
/// readers do, gives `value` again but for a few floats, which are written in full.
fn short(value: f32) -> f64 {
    let exact = f64::from(value);
    match serde_json::to_string(&value).ok().and_then(|digits| digits.parse::<f64>().ok()) {
        Some(short) if short as f32 == value => short,
        _ => exact,
    }
}

/// Writes what serde writes for `value`. Memory does not fail.
fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}
