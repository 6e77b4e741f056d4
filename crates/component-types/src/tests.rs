//! For all types and values: what is encoded is decoded as the same value, and no bytes cause a panic.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::strategy::Union;
use wasmtime::component::Val;

use crate::decode;
use crate::encode::{self, Encoded, Status};
use crate::types::{Names, Record, Type, Variant};

proptest! {
    #[test]
    fn a_value_is_encoded_and_decoded_as_the_same_value((ty, value) in types().prop_flat_map(with_value)) {
        let parameters = Record::new(None, vec![("value".to_owned(), ty.clone())]);
        let mut json = b"{\"value\":".to_vec();
        encode::value(&mut json, &ty, &value);
        json.push(b'}');
        let decoded = decode::parameters(&parameters, &json);
        prop_assert_eq!(decoded, Ok(vec![value]), "{}", String::from_utf8_lossy(&json));
    }

    #[test]
    fn a_result_is_encoded_as_json((ty, value) in types().prop_flat_map(with_value)) {
        let Encoded { status, json } = encode::result(Some(&ty), &[value]);
        let parsed = serde_json::from_slice::<serde_json::Value>(&json);
        prop_assert_eq!(parsed.is_ok(), status != Status::Empty);
    }

    #[test]
    fn text_that_is_nearly_valid_is_decoded_or_reported(
        (ty, value) in types().prop_flat_map(with_value),
        (at, byte) in (any::<prop::sample::Index>(), prop::sample::select(&b"\"\\{}[]:,0-9.eEntfu \xff\x00"[..])),
    ) {
        let parameters = Record::new(None, vec![("value".to_owned(), ty.clone())]);
        let mut json = b"{\"value\":".to_vec();
        encode::value(&mut json, &ty, &value);
        json.push(b'}');
        let at = at.index(json.len());
        json[at] = byte;
        check(&parameters, &json);
        check(&parameters, &json[..at]);
    }

    #[test]
    fn bytes_are_decoded_or_reported(ty in types(), json in vec(any::<u8>(), 0..64)) {
        check(&Record::new(None, vec![("value".to_owned(), ty)]), &json);
    }
}

/// Whatever is decoded is encoded and decoded as the same values again. Reasons are bounded.
fn check(parameters: &Record, json: &[u8]) {
    match decode::parameters(parameters, json) {
        Ok(values) => {
            let mut again = b"{\"value\":".to_vec();
            encode::value(&mut again, &parameters.fields[0].1, &values[0]);
            again.push(b'}');
            assert_eq!(decode::parameters(parameters, &again), Ok(values));
        }
        Err(invalid) => {
            assert!(!invalid.reason.is_empty() && invalid.reason.len() < 400, "{invalid}");
            assert!(invalid.pointer.is_empty() || invalid.pointer.starts_with('/'), "{invalid}");
        }
    }
}

fn names(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<String>> {
    btree_set("[a-z]{1,3}(-[a-z0-9]{1,3})?", length)
        .prop_map(|names| names.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn types() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        Just(Type::Bool),
        Just(Type::S8),
        Just(Type::U8),
        Just(Type::S16),
        Just(Type::U16),
        Just(Type::S32),
        Just(Type::U32),
        Just(Type::S64),
        Just(Type::U64),
        Just(Type::Float32),
        Just(Type::Float64),
        Just(Type::Char),
        Just(Type::String),
        Just(Type::Bytes),
        names(1..5).prop_map(|names| Type::Enum(Names::new(None, names))),
        names(1..40).prop_map(|names| Type::Flags(Names::new(None, names))),
    ];
    leaf.prop_recursive(5, 24, 5, |inner| {
        let content = prop::option::of(inner.clone());
        prop_oneof![
            inner.clone().prop_map(|ty| match ty {
                Type::U8 => Type::Bytes,
                ty => Type::List(Box::new(ty)),
            }),
            (inner.clone(), 0..4usize)
                .prop_map(|(ty, length)| Type::FixedLengthList(Box::new(ty), length)),
            (prop_oneof![Just(Type::String), Just(Type::U32)], inner.clone())
                .prop_map(|(key, value)| Type::Map(Box::new([key, value]))),
            vec(inner.clone(), 1..5).prop_map(Type::Tuple),
            inner.clone().prop_map(|ty| Type::Option(Box::new(ty))),
            (content.clone(), content.clone())
                .prop_map(|(ok, err)| Type::Result(Box::new([ok, err]))),
            (names(1..5), vec(inner, 5)).prop_map(|(names, types)| {
                Type::Record(Record::new(None, names.into_iter().zip(types).collect()))
            }),
            (names(1..5), vec(content, 5)).prop_map(|(names, types)| {
                Type::Variant(Variant::new(None, names.into_iter().zip(types).collect()))
            }),
        ]
    })
}

fn with_value(ty: Type) -> impl Strategy<Value = (Type, Val)> {
    let value = values(&ty);
    (Just(ty), value)
}

fn values(ty: &Type) -> BoxedStrategy<Val> {
    match ty {
        Type::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
        Type::S8 => any::<i8>().prop_map(Val::S8).boxed(),
        Type::U8 => any::<u8>().prop_map(Val::U8).boxed(),
        Type::S16 => any::<i16>().prop_map(Val::S16).boxed(),
        Type::U16 => any::<u16>().prop_map(Val::U16).boxed(),
        Type::S32 => any::<i32>().prop_map(Val::S32).boxed(),
        Type::U32 => any::<u32>().prop_map(Val::U32).boxed(),
        Type::S64 => any::<i64>().prop_map(Val::S64).boxed(),
        Type::U64 => any::<u64>().prop_map(Val::U64).boxed(),
        Type::Float32 => any::<u32>().prop_map(|bits| Val::Float32(f32::from_bits(bits))).boxed(),
        Type::Float64 => any::<u64>().prop_map(|bits| Val::Float64(f64::from_bits(bits))).boxed(),
        Type::Char => any::<char>().prop_map(Val::Char).boxed(),
        Type::String => any::<String>().prop_map(Val::String).boxed(),
        Type::Bytes => vec(any::<u8>().prop_map(Val::U8), 0..20).prop_map(Val::List).boxed(),
        Type::List(element) => vec(values(element), 0..4).prop_map(Val::List).boxed(),
        Type::FixedLengthList(element, length) => {
            vec(values(element), *length).prop_map(Val::FixedLengthList).boxed()
        }
        Type::Map(types) => {
            vec((values(&types[0]), values(&types[1])), 0..4).prop_map(Val::Map).boxed()
        }
        Type::Record(record) => {
            let values: Vec<_> =
                record.fields.iter().map(|(name, ty)| (Just(name.clone()), values(ty))).collect();
            values.prop_map(Val::Record).boxed()
        }
        Type::Tuple(types) => {
            types.iter().map(values).collect::<Vec<_>>().prop_map(Val::Tuple).boxed()
        }
        Type::Variant(variant) => {
            let cases = variant.cases.iter().map(|(name, ty)| {
                let name = name.clone();
                boxed_content(ty.as_ref())
                    .prop_map(move |value| Val::Variant(name.clone(), value))
                    .boxed()
            });
            Union::new(cases).boxed()
        }
        Type::Enum(names) => prop::sample::select(names.names.clone()).prop_map(Val::Enum).boxed(),
        Type::Flags(names) => prop::sample::subsequence(names.names.clone(), 0..=names.names.len())
            .prop_map(Val::Flags)
            .boxed(),
        Type::Option(ty) => {
            prop::option::of(values(ty).prop_map(Box::new)).prop_map(Val::Option).boxed()
        }
        Type::Result(types) => prop_oneof![
            boxed_content(types[0].as_ref()).prop_map(|value| Val::Result(Ok(value))),
            boxed_content(types[1].as_ref()).prop_map(|value| Val::Result(Err(value))),
        ]
        .boxed(),
    }
}

fn boxed_content(ty: Option<&Type>) -> BoxedStrategy<Option<Box<Val>>> {
    match ty {
        Some(ty) => values(ty).prop_map(|value| Some(Box::new(value))).boxed(),
        None => Just(None).boxed(),
    }
}
