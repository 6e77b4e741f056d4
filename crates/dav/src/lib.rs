//! WebDAV, class 1 and 2 (RFC 4918), without I/O: what requests mean, and the text of their responses.
//!
//! # What it does
//! - [`xml`] reads request bodies, and writes elements so that they keep their meaning anywhere.
//! - [`requests`] has the bodies of PROPFIND, PROPPATCH and LOCK.
//! - [`headers`] has `Depth`, `Destination`, `Overwrite`, `Timeout` and `Lock-Token`; [`conditions`] has `If`.
//! - [`locks`] has the locks of a server, in memory.
//! - [`properties`] has the properties that clients set, and the text in which they are stored.
//! - [`multistatus`] writes responses.
//!
//! # Contract
//! The caller bounds the size of bodies; depth and number of elements are bounded here. No entity is expanded, and a document type
//! is an error.
//!
//! ```
//! use dunlin_dav::requests::{Propfind, propfind};
//!
//! let body = br#"<propfind xmlns="DAV:"><prop><getetag/></prop></propfind>"#;
//! let Ok(Propfind::Some(names)) = propfind(body) else { panic!("names of properties") };
//! assert_eq!(&*names[0].local, "getetag");
//! assert!(propfind(b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>").is_err());
//! ```

pub mod conditions;
pub mod headers;
pub mod locks;
pub mod multistatus;
pub mod properties;
pub mod requests;
pub mod xml;

/// A request that does not follow RFC 4918.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;
