//! The rules of HTTP that hold for every version: RFC 9110 and its companions.
//!
//! Field values arrive as slices of slices: the value of every line of that name, in order.

pub mod address;
pub(crate) mod bytes;
pub mod conditional;
pub mod date;
pub mod digest;
pub mod etag;
pub mod expect;
pub mod forwarded;
pub mod host;
pub mod list;
pub mod method;
pub mod multipart;
pub mod negotiate;
pub mod path;
pub mod range;
pub mod status;
pub mod target;
pub mod token;
pub mod url;

pub use etag::EntityTag;
pub use method::Method;
pub use negotiate::ContentCoding;
pub use token::{is_field_value, is_token};
pub use url::Url;
