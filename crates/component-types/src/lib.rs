//! Typed calls of WebAssembly components: parameters from JSON, results to JSON, and OpenAPI 3.1. The types come from
//! the component itself; no other file describes them. The crate has no I/O and runs no component.
//!
//! [`Interfaces`] has the functions that a component exports. [`Function::decode`] makes the parameters of a call from a JSON object,
//! and [`Function::encode`] makes JSON of its result:
//!
//! | type | JSON |
//! | --- | --- |
//! | `bool`, `string`, `char` | boolean, string, string of one character |
//! | `u8` to `u32`, `s8` to `s32` | number |
//! | `u64`, `s64` | number up to 2^53, else a string of digits; both are accepted |
//! | `f32`, `f64` | number; `"NaN"`, `"Infinity"` and `"-Infinity"` |
//! | `list<u8>` | string in Base64 (RFC 4648 §4) |
//! | `list<T>`, `tuple<...>` | array |
//! | `record` | object; an unknown field is an error, and so is a missing one that is no `option` |
//! | `option<T>` | the value or `null`; an absent field of a record is `null`. Directly in another `option`: `{"some": value}` or `null` |
//! | `variant` | `{"case": value}`, or `"case"` if it has no value |
//! | `enum` | string |
//! | `flags` | array of strings |
//! | `result<T, E>` | `{"ok": value}` or `{"err": value}`; the result of the function itself is the value alone |
//! | `map<string, T>`, other maps | object, array of pairs |
//!
//! The types bound the depth of the JSON, and the length of the JSON the memory that its values take.

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
