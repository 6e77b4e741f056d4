//! Typed calls of WebAssembly components: parameters from JSON, results to JSON, and OpenAPI 3.1. The types come from
//! the component itself; no other file describes them.
//!
//! # What it does
//! [`Interfaces`] has the functions that a component exports. [`Function::decode`] makes the parameters of a call from a
//! JSON object, and [`Function::encode`] makes JSON of its result:
//!
//! | type | JSON |
//! | --- | --- |
//! | `bool`, `string`, `char` | boolean, string, string of one character |
//! | `u8` to `u32`, `s8` to `s32` | number |
//! | `u64`, `s64` | number up to 2^53, else a string of digits; both are accepted |
//! | `f32`, `f64` | number; `"NaN"`, `"Infinity"` and `"-Infinity"` |
//! | `list<u8>` | string in Base64 (RFC 4648 §4) |
//! | `list<T>`, `tuple<...>` | array |
//! | `record` | object; an unknown field is an error, and so is a missing one that is not an `option` |
//! | `option<T>` | the value or `null`; an absent field of a record is `null`. Directly in another `option`: `{"some": value}` or `null` |
//! | `variant` | `{"case": value}`, or `"case"` if it has no value |
//! | `enum` | string |
//! | `flags` | array of strings |
//! | `result<T, E>` | `{"ok": value}` or `{"err": value}`; the result of the function itself is the value alone |
//! | `map<string, T>`, other maps | object, array of pairs |
//!
//! # Contract
//! The crate has no I/O and runs no component: the caller makes the call between [`Function::decode`] and
//! [`Function::encode`]. It makes [`Interfaces`] once for each component and keeps them together, as
//! [`Function::export_index`] is valid for instances of that component alone. [`Interfaces`] can be shared by threads.
//!
//! All functions run on the thread of the caller and return without waiting. The types bound the depth of the JSON, and the
//! length of the JSON bounds the memory that its values take; the caller bounds the length.
//!
//! [`Unsupported`] means that no request can call the component, so a caller rejects the component when it loads it.
//! [`Invalid`] is a mistake of the client: the response has status 400 and the content of [`Invalid::problem`].
//! [`Status::Err`] is a result of the function, not a failure of the call.
//!
//! # Example
//! ```
//! use dunlin_component_types::{Interfaces, Status};
//! use wasmtime::Engine;
//! use wasmtime::component::{Component, Val};
//!
//! let text = r#"(component
//!     (core module $code (func (export "area") (param i32 i32) (result i32) i32.const 12))
//!     (core instance $core (instantiate $code))
//!     (func (export "area") (param "width" u32) (param "height" u32) (result u32)
//!         (canon lift (core func $core "area"))))"#;
//! let engine = Engine::default();
//! let component = Component::new(&engine, wat::parse_str(text)?)?;
//! let interfaces = Interfaces::new(&engine, &component)?;
//! let area = interfaces.find("", "area").ok_or("there is no such function")?;
//! assert_eq!(area.decode(br#"{"width": 3, "height": 4}"#)?, [Val::U32(3), Val::U32(4)]);
//! let invalid = area.decode(br#"{"width": 3, "height": -4}"#).err();
//! assert_eq!(invalid.map(|invalid| invalid.pointer).as_deref(), Some("/height"));
//! let encoded = area.encode(&[Val::U32(12)]);
//! assert_eq!((encoded.status, &encoded.json[..]), (Status::Ok, &b"12"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decode;
mod encode;
mod interfaces;
mod openapi;
mod schema;
#[cfg(test)]
mod tests;
mod types;

pub use decode::Invalid;
pub use encode::{Encoded, Status};
pub use interfaces::{Function, Interfaces, Unsupported};
