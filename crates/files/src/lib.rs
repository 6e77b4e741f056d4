//! The file side of the server: finds the file of a path, keeps it in a cache, and selects the response to a request.
//!
//! # What it does
//! - [`search`](search::search) finds the file of a path by the settings of its route: hidden names, the `try` list, index
//!   files, listings. [`resolve`](resolve::resolve) also opens and loads the file as a
//!   [`Resource`](cache::resource::Resource), with entity tag, content type and prepared response heads.
//! - [`cache`] keeps resources in two levels: one that all workers share, and one for each worker.
//! - [`encoded`] searches for precompressed siblings of a file, or compresses it.
//! - [`dictionaries`] compresses files with old versions of them (RFC 9842).
//! - [`select`](select::select) selects the response to a request: content negotiation, conditions and ranges.
//! - [`listing`] makes the response with the entries of a directory.
//!
//! # Contract
//! The workers share one [`Shared`](shared::Shared) for each configuration; each worker has a
//! [`Worker`](worker::Worker) of it, generic over the routes of the caller, of which the cache keeps one with each entry. The
//! crate knows neither connections nor the router. What a file cannot decide is a return value: [`Found`](search::Found)
//! names a redirect, a listing or another path of the site; [`Failure`](dunlin_fs::failure::Failure) and
//! [`Selected`](select::Selected) name an error. The caller runs the checks of a route before it uses an entry.
//!
//! A call with [`Mode::Inline`](dunlin_fs::mode::Mode::Inline) never waits for a disk. After
//! [`Failure::WouldBlock`](dunlin_fs::failure::Failure::WouldBlock) the caller repeats it with
//! [`Mode::Blocking`](dunlin_fs::mode::Mode::Blocking) on one of the [`pools`](shared::Shared::pools).
//!
//! # Example
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use dunlin_config::{Config, Overrides};
//! use dunlin_files::resolve::{Resolver, resolve};
//! use dunlin_files::search::{Found, Wanted};
//! use dunlin_files::shared::Shared;
//! use dunlin_fs::mode::Mode;
//!
//! let text = "[[listen]]\naddress = '127.0.0.1:0'\n[[site]]\nroot = '/proc'\n";
//! let config = Config::parse(text, Path::new("dunlin.toml"), &Overrides::default())?;
//! let shared = Shared::first(&config, Arc::default(), None);
//! let (site, path) = (config.sites.only().ok_or_else(Vec::new)?, b"/version");
//! let wanted = Wanted { site, route: &site.route(path), path, query: None };
//! let (previous, copy, mode) = (None, false, Mode::Blocking);
//! let resolver = Resolver { shared: &shared, site: 1, previous, keep: true, copy, now: 0, mode };
//! assert!(matches!(resolve(&wanted, &resolver), Ok(Found::File(_))));
//! # Ok::<(), Vec<dunlin_config::Problem>>(())
//! ```

pub mod cache;
pub mod dav;
mod descriptor_cache;
pub mod dictionaries;
mod digest;
pub mod encoded;
pub mod explain;
pub mod file_response;
pub mod listing;
mod load;
pub mod media_type;
pub mod objects;
mod records;
mod render;
pub mod resolve;
pub mod search;
pub mod select;
pub mod shared;
mod source;
pub mod uncached;
mod validators;
pub mod worker;
