//! The operation as a CGIplus script, for `kind = "cgiplus"`: `rustc -O cgiplus.rs`. One process handles many requests.

mod form;
mod operation;

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

fn main() -> io::Result<()> {
    let variable = |name| env::var(name).map_err(|_| io::Error::other("not started as CGIplus"));
    let (end, path) = (variable("CGIPLUSEOF")?, variable("CGIPLUSIN")?);
    let mut variables = BufReader::new(File::open(path)?).lines();
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut body = Vec::new();
    // A request begins with the line `!`; its variables end with an empty line.
    while variables.any(|line| line.is_ok_and(|line| line == "!")) {
        let mut length = 0;
        for line in variables.by_ref() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("CONTENT_LENGTH=") {
                length = value.parse().unwrap_or(0);
            }
        }
        body.clear();
        stdin.by_ref().take(length).read_to_end(&mut body)?;
        let mut response = form::respond(&body);
        response.extend_from_slice(end.as_bytes());
        stdout.write_all(&response)?;
        stdout.flush()?;
    }
    Ok(())
}
