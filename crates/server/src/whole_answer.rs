//! Answers of other servers that are read whole before anything is done with them.

use std::io;

use dunlin_http::http1::client::{HeadCache, ResponseEvent, ResponseReader};
use tokio::io::{AsyncRead, AsyncReadExt};

/// An answer.
#[derive(Debug, Default)]
pub(crate) struct WholeAnswer {
    pub(crate) status: u16,
    /// The head as it came, with the status line and the empty line.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Reads one answer to its end. `head_only`: it is to a HEAD request.
///
/// # Errors
/// When it is no answer, is broken off, or takes more than `most` bytes.
pub(crate) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    head_only: bool,
    most: usize,
) -> io::Result<WholeAnswer> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut reader, mut last) = (ResponseReader::default(), HeadCache::default());
    let mut answer = WholeAnswer::default();
    let (mut input, mut at) = (Vec::with_capacity(4096), 0);
    loop {
        let rest = &input[at..];
        let event = reader.next(rest, head_only, &mut last);
        let (used, event) = event.map_err(|malformed| wrong(malformed.0.to_owned()))?;
        let wants_more = match event {
            ResponseEvent::Head { status, .. } => {
                answer.status = status;
                answer.head = rest[..used].to_vec();
                false
            }
            ResponseEvent::Data(bytes) => {
                answer.body.extend_from_slice(bytes);
                false
            }
            ResponseEvent::End { .. } => return Ok(answer),
            ResponseEvent::More => true,
        };
        at += used;
        if !wants_more {
            continue;
        }
        if stream.read_buf(&mut input).await? == 0 {
            return match reader.ends_at_close() {
                true => Ok(answer),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        if input.len() > most {
            return Err(wrong(format!("the answer is larger than {most} bytes")));
        }
    }
}

impl WholeAnswer {
    /// The fields of the head as name and value; `None` for a line that is no field.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
        let lines = self.head.split(|&byte| byte == b'\n').skip(1).map(<[u8]>::trim_ascii_end);
        lines.filter(|line| !line.is_empty()).map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8], most: usize) -> io::Result<WholeAnswer> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(receive(&mut bytes, false, most))
    }

    #[test]
    fn an_answer_is_read_to_its_end_and_within_its_bound() {
        let answer =
            read(b"HTTP/1.1 203 x\r\nA: b \r\nContent-Length: 4\r\n\r\nbody", 100).unwrap();
        assert_eq!((answer.status, &*answer.body), (203, &b"body"[..]));
        let fields: Vec<_> = answer.fields().map(Option::unwrap).collect();
        assert_eq!(fields, [(&b"A"[..], &b"b"[..]), (b"Content-Length", b"4")]);
        assert_eq!(read(b"HTTP/1.1 200 x\r\n\r\nto the close", 100).unwrap().body, b"to the close");
        for (cut, most) in
            [(&b"HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\nbod"[..], 100), (b"", 100)]
        {
            assert_eq!(read(cut, most).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let long = read(b"HTTP/1.1 200 x\r\nContent-Length: 40\r\n\r\n0123456789", 40);
        assert_eq!(long.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
