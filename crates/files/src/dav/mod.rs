//! WebDAV on the files beneath a root: changes, properties and locks. All of it may wait for a disk.
//!
//! A [`Tree`] is the part of a site whose files a request may concern: those of routes with the same root, rules and checks as
//! the route of the request. Every path is resolved beneath the root. [`Tree::perform`] performs a request; a file that
//! a client sends is an [`upload::Upload`], and the response to a PROPFIND a [`find::Walk`].
//!
//! Properties that clients set are in an extended attribute of the file, so that they follow it.

mod change;
mod conditions;
pub mod find;
mod lock;
mod properties;
mod tree;
pub mod upload;

use dunlin_dav::headers::Place;
use dunlin_dav::{Malformed, headers, multistatus};
use dunlin_fs::failure::Failure;
use dunlin_http::OwnedRequest;
use dunlin_http::semantics::path;

pub use self::tree::Tree;

/// A request for a tree.
#[derive(Debug)]
pub struct DavRequest {
    /// The head.
    pub request: OwnedRequest,
    /// The decoded path.
    pub path: Box<[u8]>,
    /// The body, of a request other than PUT.
    pub body: Vec<u8>,
    /// The user, if the route has authentication.
    pub user: Option<Box<str>>,
    /// A token that no lock has.
    pub token: String,
}

/// The response to a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub status: u16,
    /// The lock that was made: a value of `Lock-Token`.
    pub lock_token: Option<String>,
    /// The body, in XML; `None` for an error page of the server.
    pub body: Option<String>,
}

impl Outcome {
    /// Returns a response without a body, or with an error page.
    pub fn of(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Returns an error with a condition of RFC 4918.
    fn error(status: u16, condition: &str, href: Option<&str>) -> Self {
        Self { body: Some(multistatus::error(condition, href)), ..Self::of(status) }
    }

    /// Returns the error for a resource that is locked.
    fn locked(href: &str) -> Self {
        Self::error(423, "lock-token-submitted", Some(href))
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self::of(failure.status())
    }
}

impl From<Malformed> for Outcome {
    fn from(_: Malformed) -> Self {
        Self::of(400)
    }
}

/// A response, or the error in its place.
pub type Performed = Result<Outcome, Outcome>;

/// A path of a tree: decoded, without the slash at its end, so that the root is empty.
type TreePath = Vec<u8>;

/// Returns the path of a tree.
fn tree_path(decoded: &[u8]) -> TreePath {
    decoded.strip_suffix(b"/").unwrap_or(decoded).to_vec()
}

impl Tree {
    /// Performs a request other than PROPFIND and PUT.
    ///
    /// # Errors
    /// The response, if it fails.
    pub fn perform(&self, request: &DavRequest) -> Performed {
        match request.request.as_request().method_text() {
            b"MKCOL" => self.make_collection(request),
            b"DELETE" => self.delete(request),
            b"COPY" => self.copy_or_move(request, false),
            b"MOVE" => self.copy_or_move(request, true),
            b"PROPPATCH" => self.patch(request),
            b"LOCK" => self.lock(request),
            b"UNLOCK" => self.unlock(request),
            _ => Err(Outcome::of(405)),
        }
    }

    /// Returns the path of `Destination`.
    fn destination(&self, request: &DavRequest) -> Result<TreePath, Outcome> {
        match headers::destination(&request.request.as_request())? {
            Place::Here(raw) => Ok(tree_path(&decoded(raw)?)),
            // Bad Gateway (RFC 4918 §9.8.5).
            Place::Elsewhere => Err(Outcome::of(502)),
        }
    }
}

/// Decodes a path. No file has a name with a slash.
fn decoded(raw: &[u8]) -> Result<Vec<u8>, Outcome> {
    let mut decoded = Vec::new();
    path::decode_opaque(raw, &mut decoded).map_err(|_| Outcome::of(400))?;
    if decoded.contains(&0) { Err(Outcome::of(403)) } else { Ok(decoded) }
}
