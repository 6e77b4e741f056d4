//! The operation as a CGI program, for `kind = "cgi"` and `kind = "warm"`: `rustc -O cgi.rs`. With `--target wasm32-wasip2`,
//! the same source is a component.

mod form;
mod operation;

use std::env;
use std::io::{self, Read, Write};

fn main() -> io::Result<()> {
    let length = env::var("CONTENT_LENGTH").ok().and_then(|length| length.parse().ok());
    let mut body = Vec::new();
    io::stdin().take(length.unwrap_or(0)).read_to_end(&mut body)?;
    io::stdout().write_all(&form::respond(&body))
}
