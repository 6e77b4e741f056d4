//! Requests as stored responses are selected by them (RFC 9111 §4.1).

use dunlin_http::Request;
use smallvec::SmallVec;

/// The values of the lines of a field.
pub type Lines<'a> = SmallVec<[&'a [u8]; 2]>;

/// A request as its origin gets it: with the fields that the server adds, and without those that it removes. The response is one to
/// that request, so a field that the origin does not get must not select it, and one that it gets must.
pub trait Presented {
    /// Returns the values of the lines of a field, whose name is in lower case. `None` if they are different for each message
    /// or not known before the request is sent: no response that depends on them is stored or used.
    fn lines(&self, name: &[u8]) -> Option<Lines<'_>>;

    /// Returns the path as the origin gets it, if that is not the form in which the key has it.
    fn spelling(&self) -> Option<&[u8]>;
}

/// A request that its origin gets as it is.
#[derive(Debug, Clone, Copy)]
pub struct Unchanged<'a>(pub Request<'a>);

impl Presented for Unchanged<'_> {
    fn lines(&self, name: &[u8]) -> Option<Lines<'_>> {
        let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name);
        Some(self.0.fields().filter(is_it).map(|(_, value)| value).collect())
    }

    fn spelling(&self) -> Option<&[u8]> {
        None
    }
}
