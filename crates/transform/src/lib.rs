//! Changes of response bodies as they pass, without I/O.
//!
//! # What it does
//! A [`Chain`] has the changes of one body, in their order: each is a [`Transform`], which gets the body in chunks of any size and
//! holds back as little of it as it can.
//! - [`substitute`] replaces texts.
//! - [`ssi`] runs the directives of server-side includes.
//!
//! # Contract
//! The result does not depend on how the body is cut into chunks. What a transform holds back is bounded. An
//! [`Include`] is a part of the body that the caller gets elsewhere; it is not changed by the transforms behind.
//!
//! ```
//! use bytes::Bytes;
//! use dunlin_transform::substitute::{Pattern, Patterns};
//! use dunlin_transform::{Chain, Part};
//!
//! let pattern = Pattern { from: "http:".into(), to: "https:".into(), once: false };
//! let patterns = Patterns::new(vec![pattern]).map_err(|error| error.to_string())?;
//! let mut chain = Chain::new(vec![Box::new(patterns.start())]);
//! let mut parts = Vec::new();
//! for chunk in ["see ht", "tp://a.test"] {
//!     chain.push(Bytes::from(chunk), &mut parts);
//! }
//! chain.end(&mut parts);
//! let text: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
//! assert_eq!(text, b"see https://a.test");
//! # Ok::<(), String>(())
//! ```

pub mod ssi;
pub mod substitute;

use bytes::Bytes;

pub use self::ssi::Include;

/// A part of a changed body.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes.
    Bytes(Bytes),
    /// What the caller gets elsewhere.
    Include(Box<Include>),
}

/// A change of a body.
pub trait Transform: std::fmt::Debug {
    /// Takes the next bytes of the body, and appends what follows from them.
    fn push(&mut self, bytes: Bytes, parts: &mut Vec<Part>);

    /// Takes the end of the body, and appends what was held back.
    fn end(&mut self, parts: &mut Vec<Part>);
}

/// The changes of a body, in their order.
#[derive(Debug, Default)]
pub struct Chain {
    transforms: Vec<Box<dyn Transform>>,
}

impl Part {
    /// Returns the bytes; none for an include.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Include(_) => b"",
        }
    }
}

impl Chain {
    /// Creates a chain.
    pub fn new(transforms: Vec<Box<dyn Transform>>) -> Self {
        Self { transforms }
    }

    /// Takes the next bytes of the body, and appends what follows from them.
    pub fn push(&mut self, bytes: Bytes, parts: &mut Vec<Part>) {
        run(&mut self.transforms, vec![Part::Bytes(bytes)], false, parts);
    }

    /// Takes the end of the body, and appends what was held back.
    pub fn end(&mut self, parts: &mut Vec<Part>) {
        run(&mut self.transforms, Vec::new(), true, parts);
    }
}

/// Passes parts through all transforms.
fn run(
    transforms: &mut [Box<dyn Transform>],
    mut input: Vec<Part>,
    has_ended: bool,
    parts: &mut Vec<Part>,
) {
    for transform in transforms {
        let mut output = Vec::new();
        for part in input {
            match part {
                Part::Bytes(bytes) => transform.push(bytes, &mut output),
                // What the transform holds back is before it.
                include @ Part::Include(_) => output.push(include),
            }
        }
        if has_ended {
            transform.end(&mut output);
        }
        input = output;
    }
    parts.append(&mut input);
}

/// Appends bytes to the parts.
fn push_bytes(bytes: impl Into<Bytes>, parts: &mut Vec<Part>) {
    let bytes = bytes.into();
    if !bytes.is_empty() {
        parts.push(Part::Bytes(bytes));
    }
}
