//! Directory listings, as HTML and as JSON.
use std::fs::File;
use std::io;
pub(crate) struct Listing;
#[derive(Clone, Copy)]
pub(crate) enum Sort { Name }
#[derive(Clone, Copy)]
pub(crate) enum Order { Asc }
impl Sort { pub(crate) fn from_query(_: Option<&[u8]>) -> (Self, Order) { (Self::Name, Order::Asc) } }
pub(crate) fn read(_: &File, _: bool, _: usize) -> io::Result<Listing> { Ok(Listing) }
pub(crate) fn html(_: &mut Listing, _: &[u8], _: Sort, _: Order) -> String { String::new() }
pub(crate) fn json(_: &mut Listing, _: &[u8], _: Sort, _: Order) -> String { String::new() }
pub(crate) static CSP: std::sync::LazyLock<String> = std::sync::LazyLock::new(String::new);
