//! Detection of what a server supports, by requests.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use crate::adapter::{self, Adapter};
use crate::server::{Server, exchange};

/// Bytes of a response that are inspected.
const INSPECTED: usize = 4000;

/// Returns the features of the server `name` at `address`, as names and values for the report.
pub(super) fn features(
    name: &str,
    address: SocketAddr,
    server: &Server,
) -> BTreeMap<String, String> {
    let request = |text: &str| {
        let response = exchange(address, &text.replace('\n', "\r\n")).unwrap_or_default();
        String::from_utf8_lossy(&response[..response.len().min(INSPECTED)]).to_ascii_lowercase()
    };
    let get = |fields: &str| {
        request(&format!("GET /1k.bin HTTP/1.1\nHost: 127.0.0.1\n{fields}Connection: close\n\n"))
    };
    let plain = get("");
    let date = last_modified(address);
    let persistent = "GET /1k.bin HTTP/1.1\nHost: 127.0.0.1\n\n";
    let pipelined = request(&format!(
        "{persistent}GET /1k.bin HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n"
    ));
    let not_modified = get(&format!("If-Modified-Since: {date}\n"));
    let program = adapter::by_name(name).ok().and_then(Adapter::find);
    let size = program.and_then(|program| fs::metadata(program).ok()).map_or(0, |file| file.len());
    [
        ("model", process_model(server)),
        ("persistent connections", yes_no(!closes(&request(persistent)))),
        ("pipelining", yes_no(pipelined.matches("http/1.1 200").count() == 2)),
        ("conditional GET", yes_no(not_modified.starts_with("http/1.1 304"))),
        ("entity tags", yes_no(plain.contains("\netag:"))),
        ("ranges", yes_no(get("Range: bytes=0-9\n").starts_with("http/1.1 206"))),
        (
            "several ranges",
            yes_no(get("Range: bytes=0-9,20-29\n").contains("multipart/byteranges")),
        ),
        ("executable bytes", size.to_string()),
        ("memory at start", server.memory_at_start.to_string()),
        ("source bytes, files, lines", "not known here".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn process_model(server: &Server) -> String {
    let processes = server.processes();
    let tasks = |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let threads: usize = processes.iter().map(tasks).sum();
    format!("{} processes, {threads} threads", processes.len())
}

/// Returns the `Last-Modified` value as sent. Some servers do not recognize it in lower case.
fn last_modified(address: SocketAddr) -> String {
    let request = "GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let response = exchange(address, request).unwrap_or_default();
    let response = String::from_utf8_lossy(&response);
    let mut fields = response.lines().filter_map(|line| line.split_once(':'));
    let field = fields.find(|(name, _)| name.eq_ignore_ascii_case("last-modified"));
    field.map_or(String::new(), |(_, value)| value.trim().to_owned())
}

/// Returns `true` if the response, in lower case, announces that the connection closes.
fn closes(response: &str) -> bool {
    response.contains("connection: close") || response.starts_with("http/1.0")
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
