//! Record formats (VARIABLE, VFC) turned into streams of lines.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat { Variable, Vfc { control: u16 } }

pub(crate) fn convert(_: &mut impl Read, _: RecordFormat, _: &mut impl Write) -> Result<u64, io::Error> { Err(io::Error::other("not yet")) }
pub(crate) fn write_beside(_: &impl AsFd, _: &[u8], _: &File, _: &mut impl Read) -> io::Result<()> { Ok(()) }
