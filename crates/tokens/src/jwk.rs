//! JSON Web Keys (RFC 7517, RFC 7518 §6, RFC 8037 §2).

use serde_json::{Map, Value};

use crate::key::{Key, MAX_KEYS, Material};
use crate::{algorithm, decode, pem};

/// Returns the keys of a set, or of a single key, that verify signatures and are of a known kind (RFC 7517 §5).
///
/// # Errors
/// The text is neither, or a key of a known kind is malformed.
pub(crate) fn keys(text: &[u8]) -> Result<Vec<Key>, String> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| format!("it is not JSON, in line {}", error.line()))?;
    let Value::Object(object) = &value else {
        return Err("it is not a JSON Web Key Set".into());
    };
    let Some(listed) = object.get("keys") else {
        return Ok(key(object, 1)?.into_iter().collect());
    };
    let listed = listed.as_array().ok_or("`keys` is not a list")?;
    if listed.len() > MAX_KEYS {
        return Err(format!("it has more than {MAX_KEYS} keys"));
    }
    let mut keys = Vec::new();
    for (at, value) in listed.iter().enumerate() {
        let object = value.as_object().ok_or("a member of `keys` is not an object")?;
        keys.extend(key(object, at + 1)?);
    }
    Ok(keys)
}

/// Reads the key with that number in its set; `None` if it is for another use, or of an unknown kind.
fn key(object: &Map<String, Value>, number: usize) -> Result<Option<Key>, String> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let operations = object.get("key_ops").and_then(Value::as_array);
    let verifies =
        operations.is_none_or(|all| all.iter().any(|one| one.as_str() == Some("verify")));
    if text("use").is_some_and(|other| other != "sig") || !verifies {
        return Ok(None);
    }
    let algorithm = match text("alg").map(algorithm::named) {
        Some(None) => return Ok(None),
        known => known.flatten(),
    };
    let bytes = |name: &str| {
        let value = text(name).and_then(|value| decode(value.as_bytes()));
        value.ok_or_else(|| format!("key {number} lacks `{name}`, or it is malformed"))
    };
    // Coordinates have the length of the field (RFC 7518 §6.2.1.2).
    let point = |length: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        if x.len() != length || y.len() != length {
            return Err(format!("the point of key {number} does not have the length of its curve"));
        }
        Ok([&[4][..], &x, &y].concat())
    };
    let material = match (text("kty"), text("crv")) {
        (Some("RSA"), _) => Material::Rsa {
            modulus: pem::without_zeros(&bytes("n")?),
            exponent: pem::without_zeros(&bytes("e")?),
        },
        (Some("EC"), Some("P-256")) => Material::P256(point(32)?),
        (Some("EC"), Some("P-384")) => Material::P384(point(48)?),
        (Some("EC"), Some("P-521")) => Material::P521(point(66)?),
        (Some("OKP"), Some("Ed25519")) => {
            let point = bytes("x")?;
            if point.len() != 32 {
                return Err(format!("the point of key {number} does not have 32 bytes"));
            }
            Material::Ed25519(point)
        }
        (Some("oct"), _) => {
            let key = bytes("k")?;
            if key.len() < 32 {
                return Err(format!("the symmetric key {number} has less than 32 bytes"));
            }
            Material::Symmetric(key)
        }
        _ => return Ok(None),
    };
    Ok(Some(Key { id: text("kid").map(str::to_owned), algorithm, material }))
}
