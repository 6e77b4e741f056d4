//! Replies of the store (RESP2), with a bound on the memory that one takes. The parser of the crate `redis` takes whatever a
//! reply announces.

use std::io::{self, BufRead, Read};

use redis::{RedisError, RedisResult, Value};

/// The most memory that a reply takes, in bytes.
pub(crate) const MAX_REPLY: usize = 16 << 20;
/// The longest line: a simple string, a number, or an error.
const MAX_LINE: usize = 16 << 10;
/// The deepest array in arrays. Those of a stream are four deep.
const MAX_DEPTH: usize = 8;
/// The memory of a value besides its content. A list that grows has room for twice its values, and is copied from one of
/// half the room.
const VALUE: usize = 3 * size_of::<Value>();

/// Reads one reply.
///
/// # Errors
/// When the connection ends, or the reply is malformed or takes more than [`MAX_REPLY`].
pub(crate) fn read(from: &mut impl BufRead) -> RedisResult<Value> {
    Reply { from, left: MAX_REPLY }.value(MAX_DEPTH)
}

struct Reply<'a, R> {
    from: &'a mut R,
    /// Bytes that the rest of the reply may take.
    left: usize,
}

impl<R: BufRead> Reply<'_, R> {
    fn value(&mut self, depth: usize) -> RedisResult<Value> {
        self.take(VALUE)?;
        let line = self.line()?;
        let Some((kind, text)) = line.split_first() else { return Err(malformed()) };
        match kind {
            b'+' if text == b"OK" => Ok(Value::Okay),
            b'+' => Ok(Value::SimpleString(String::from_utf8_lossy(text).into_owned())),
            b':' => Ok(Value::Int(number(text)?)),
            // What an error means to the crate is known to its parser alone.
            b'-' => redis::parse_redis_value(&[&line, &b"\r\n"[..]].concat()),
            b'$' => Ok(match usize::try_from(number(text)?) {
                Ok(length) => Value::BulkString(self.bulk(length)?),
                Err(_) => Value::Nil,
            }),
            b'*' => {
                let Ok(length) = usize::try_from(number(text)?) else { return Ok(Value::Nil) };
                let depth = depth.checked_sub(1).ok_or_else(malformed)?;
                // Grows with the values that come, not with those that are announced.
                let mut values = Vec::new();
                for _ in 0..length {
                    values.push(self.value(depth)?);
                }
                Ok(Value::Array(values))
            }
            _ => Err(malformed()),
        }
    }

    /// Returns a line without its end.
    fn line(&mut self) -> RedisResult<Vec<u8>> {
        let mut line = Vec::new();
        self.from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if line.len() >= MAX_LINE {
            return Err(too_long());
        }
        let Some(length) = line.strip_suffix(b"\r\n").map(<[u8]>::len) else {
            // The end of the connection, unless it is a line feed alone.
            return Err(if line.ends_with(b"\n") { malformed() } else { ended() });
        };
        line.truncate(length);
        self.take(length)?;
        Ok(line)
    }

    fn bulk(&mut self, length: usize) -> RedisResult<Vec<u8>> {
        self.take(length)?;
        let mut content = Vec::new();
        self.from.by_ref().take(length as u64).read_to_end(&mut content)?;
        let mut end = [0; 2];
        self.from.read_exact(&mut end)?;
        if end == *b"\r\n" { Ok(content) } else { Err(malformed()) }
    }

    fn take(&mut self, bytes: usize) -> RedisResult<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }
}

fn number(text: &[u8]) -> RedisResult<i64> {
    let text = std::str::from_utf8(text).map_err(|_| malformed())?;
    text.parse().map_err(|_| malformed())
}

fn malformed() -> RedisError {
    io::Error::new(io::ErrorKind::InvalidData, "its reply is malformed").into()
}

fn too_long() -> RedisError {
    let text = format!("its reply takes more than {} MiB", MAX_REPLY >> 20);
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

fn ended() -> RedisError {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection").into()
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// Endless bytes.
    fn endless(begin: &str, repeated: &'static [u8]) -> impl BufRead {
        let begin = io::Cursor::new(begin.as_bytes().to_vec());
        BufReader::new(begin.chain(Repeated { bytes: repeated, at: 0 }))
    }

    struct Repeated {
        bytes: &'static [u8],
        at: usize,
    }

    impl Read for Repeated {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *to {
                *byte = self.bytes[self.at];
                self.at = (self.at + 1) % self.bytes.len();
            }
            Ok(to.len())
        }
    }

    #[test]
    fn replies_are_read_one_after_the_other() {
        let text = "+OK\r\n+PONG\r\n:-7\r\n$-1\r\n*-1\r\n$5\r\na\r\nbc\r\n*2\r\n$0\r\n\r\n*1\r\n:1\r\n-NOSCRIPT no such\r\n";
        let mut from = text.as_bytes();
        let bulk = |text: &str| Value::BulkString(text.into());
        for value in [
            Value::Okay,
            Value::SimpleString("PONG".into()),
            Value::Int(-7),
            Value::Nil,
            Value::Nil,
            bulk("a\r\nbc"),
            Value::Array(vec![bulk(""), Value::Array(vec![Value::Int(1)])]),
        ] {
            assert_eq!(read(&mut from).unwrap(), value);
        }
        let Value::ServerError(error) = read(&mut from).unwrap() else { panic!() };
        assert_eq!((error.code(), error.details()), ("NOSCRIPT", Some("no such")));
        assert!(from.is_empty());
    }

    #[test]
    fn a_reply_takes_no_more_than_its_bound() {
        for (begin, repeated) in [
            ("$1000000000\r\n", &b"x"[..]),
            ("$9223372036854775807\r\n", b"x"),
            ("*1000000000\r\n", b":1\r\n"),
            ("*9223372036854775807\r\n", b"$0\r\n\r\n"),
            ("*1000000000\r\n", b"$4096\r\n"),
            ("", b"*1\r\n"),
            ("", b"*1000000000\r\n"),
            ("+", b"x"),
            ("-", b"x"),
            (":", b"1"),
            ("$", b"1"),
        ] {
            let error = read(&mut endless(begin, repeated)).unwrap_err().to_string();
            assert!(error.contains("its reply"), "{begin:?}: {error}");
        }
    }

    #[test]
    fn a_malformed_reply_is_an_error() {
        for text in [
            "",
            "\r\n",
            "x\r\n",
            "+OK",
            "+OK\n",
            "$x\r\n",
            "$1\r\nabc\r\n",
            "$3\r\nab",
            "*1\r\n",
            ":\r\n",
            "%1\r\n",
            "_\r\n",
        ] {
            assert!(read(&mut text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
