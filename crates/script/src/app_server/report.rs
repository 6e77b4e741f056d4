//! The report of an application server that its application is loaded.

use std::io;
use std::path::PathBuf;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::frame::{self, Frame};
use crate::file_version;

/// Waits for an application server's report that its application is loaded; returns the files that it was loaded
/// from.
///
/// # Errors
/// When the connection ends before.
pub(in super::super) async fn read_report(stream: &mut UnixStream) -> io::Result<Vec<PathBuf>> {
    let mut bytes = BytesMut::new();
    loop {
        match frame::read(&mut bytes).map_err(io::Error::other)? {
            Some((_, Frame::Loaded(files))) => return Ok(file_version::paths(&files)),
            Some(_) => {}
            None if stream.read_buf(&mut bytes).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    }
}
