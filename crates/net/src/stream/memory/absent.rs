//! The operations of streams in memory where there is none.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::address::SocketAddresses;

/// A stream in memory: there is none.
#[derive(Debug)]
pub enum AbsentEnd {}

impl AbsentEnd {
    pub(crate) fn ends(&self) -> SocketAddresses {
        match *self {}
    }

    pub(crate) fn unacknowledged(&self) -> u32 {
        match *self {}
    }

    pub(crate) fn poll_read(
        &self,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn try_write(&self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn try_write_vectored(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn send_file(&self, _: BorrowedFd<'_>, _: &mut u64, _: usize) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn is_closed(&self) -> bool {
        match *self {}
    }

    pub(crate) fn shut_down(&self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn break_off(&self) -> io::Result<()> {
        match *self {}
    }
}
