//! The byte stream of a connection, with or without TLS. Protocol adapters read and write plaintext.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use dunlin_config::Config;
use dunlin_net::address::SocketAddresses;
use dunlin_net::stream::Stream;

use crate::certificates::Certificates;
use crate::handshake::PolicyMatch;
use crate::info::TlsInfo;
use crate::policy::Policy;
use crate::session::Session;

/// The byte stream of a connection.
pub enum Transport {
    /// Without encryption.
    Plain(Stream),
    /// With TLS.
    Tls(Box<Session>),
}

/// Maximum number of bytes that one write encrypts: as many as an adapter collects for one write.
const MAX_ENCRYPTED: usize = 192 * 1024;

impl Transport {
    /// Returns the stream that carries plaintext or ciphertext.
    #[inline]
    fn stream(&self) -> &Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(session) => session.stream(),
        }
    }

    #[inline]
    fn session(&self) -> Option<&Session> {
        match self {
            Self::Tls(session) => Some(session),
            Self::Plain(_) => None,
        }
    }

    /// Returns `true` if the connection has TLS.
    #[inline]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// See [`Stream::bound_unsent`].
    pub fn bound_unsent(&self, bytes: u32) {
        self.stream().bound_unsent(bytes);
    }

    /// See [`Stream::unacknowledged`].
    pub fn unacknowledged(&self) -> Option<u32> {
        self.stream().unacknowledged()
    }

    /// Sets `TCP_CORK`: the kernel sends full segments only. Returns whether the option was set, which is never with TLS.
    #[inline]
    pub fn cork(&self, corked: bool) -> bool {
        match self {
            Self::Plain(stream) => stream.cork(corked),
            Self::Tls(_) => false,
        }
    }

    /// Returns `true` if received bytes may be a replay, because the TLS handshake has not ended.
    #[inline]
    pub fn is_early(&self) -> bool {
        self.session().is_some_and(Session::is_early)
    }

    /// Returns the policy that the TLS handshake met.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.session().map_or(Policy::UNENCRYPTED, Session::policy)
    }

    /// Compares the TLS handshake with the current policy of the site that the client named.
    pub fn renew_policy(&mut self, config: &Config, certificates: &Certificates) -> PolicyMatch {
        match self {
            Self::Tls(session) => session.renew_policy(config, certificates),
            Self::Plain(_) => PolicyMatch::Unchanged,
        }
    }

    /// Properties of the encryption; `None` without TLS.
    pub fn tls(&self) -> Option<TlsInfo> {
        self.session().map(Session::info)
    }

    /// See [`Stream::ends`].
    ///
    /// # Errors
    /// When the client has closed the connection.
    #[inline]
    pub fn ends(&self) -> io::Result<Option<SocketAddresses>> {
        self.stream().ends()
    }

    /// Reads received bytes; no bytes at the end of the stream.
    #[inline]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read(cx, buffer),
            Self::Tls(session) => session.poll_read(cx, buffer),
        }
    }

    /// Returns `true` if there may be received bytes that have not been read.
    #[inline]
    pub fn may_be_readable(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Plain(stream) => stream.may_be_readable(cx),
            Self::Tls(_) => true,
        }
    }

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            Self::Tls(_) => self.try_write_slices(&[IoSlice::new(bytes)]),
        }
    }

    /// Writes some bytes of `slices`.
    fn try_write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => match slices {
                [bytes] => stream.try_write(bytes),
                _ => stream.send_vectored(slices),
            },
            Self::Tls(session) => {
                if !session.make_room()? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                // Ciphertext that the socket does not take now precedes the next write.
                let mut total = 0;
                let fits = |slice: &&IoSlice<'_>| {
                    total += slice.len();
                    total <= MAX_ENCRYPTED
                };
                match slices.iter().take_while(fits).count() {
                    0 => session.write(&[IoSlice::new(&slices[0][..MAX_ENCRYPTED])]),
                    count => session.write(&slices[..count]),
                }
            }
        }
    }

    /// Writes the bytes of `slices`, until the socket has all of them. Advances `at`.
    pub fn poll_send_slices(
        &mut self,
        cx: &mut Context<'_>,
        mut slices: &mut [IoSlice<'_>],
        at: &mut usize,
    ) -> Poll<io::Result<()>> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match self.try_write_slices(slices) {
                Ok(count) => {
                    *at += count;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.poll_flush(cx)
    }

    /// Waits until the stream has room.
    #[inline]
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_write_ready(cx)
    }

    /// Waits until the socket has all written bytes.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(session) => session.poll_flush(cx),
            Self::Plain(_) => Poll::Ready(Ok(())),
        }
    }

    /// Writes `bytes` from `at` on, until the socket has all of them.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
    ) -> Poll<io::Result<()>> {
        self.poll_send_slices(cx, &mut [IoSlice::new(&bytes[*at..])], at)
    }

    /// Returns `true` if the socket has all written bytes.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.session().is_none_or(Session::is_flushed)
    }

    /// Written bytes that the socket has not taken.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.session().map_or(0, Session::unsent)
    }

    /// Returns the bytes of buffers for the connection, besides those of the kernel.
    #[inline]
    pub fn held(&self) -> usize {
        self.session().map_or(0, Session::held)
    }

    /// Returns the bytes of ciphertext that the socket has taken: progress that the count of plain bytes does not show.
    #[inline]
    pub fn written(&self) -> u64 {
        self.session().map_or(0, Session::written)
    }

    /// See [`Stream::acknowledge`].
    #[inline]
    pub fn acknowledge(&self) {
        self.stream().acknowledge();
    }

    /// See [`Stream::probe`].
    pub fn probe(&self) {
        self.stream().probe();
    }

    /// See [`Stream::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.stream().is_closed()
    }

    /// Closes the sending side.
    ///
    /// # Errors
    /// When the client has reset the connection.
    pub fn shut_down(&mut self) -> io::Result<()> {
        self.end();
        self.stream().shut_down()
    }

    /// See [`Stream::break_off`].
    pub fn break_off(&self) {
        self.stream().break_off();
    }

    /// Ends the connection in order, after the last response: with TLS, sends `close_notify`.
    pub fn end(&mut self) {
        if let Self::Tls(session) = self {
            session.close();
        }
    }
}
