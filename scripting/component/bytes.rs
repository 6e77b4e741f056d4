//! A CGI program that responds with as many bytes as its query states. As a component, for `kind = "component"`:
//! `rustc -O --target wasm32-wasip2 bytes.rs`.

use std::env;
use std::io::{self, Read, Write};

fn main() -> io::Result<()> {
    let number =
        |name| env::var(name).ok().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let (size, length) = (number("QUERY_STRING"), number("CONTENT_LENGTH"));
    io::copy(&mut io::stdin().take(length), &mut io::sink())?;
    let mut response = b"Content-Type: text/plain\r\n\r\n".to_vec();
    response.resize(response.len() + usize::try_from(size).unwrap_or(0), b'x');
    io::stdout().write_all(&response)
}
