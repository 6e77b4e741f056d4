//! An HTTP handler by `wasi:http/incoming-handler` of WASI 0.2. The last segment of the path selects what it does.

use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    Fields, IncomingBody, IncomingRequest, Method, OutgoingBody, OutgoingRequest, OutgoingResponse,
    ResponseOutparam, Scheme,
};

wasip2::http::proxy::export!(Web);

struct Web;

/// Requests that this instance has handled.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

impl wasip2::exports::http::incoming_handler::Guest for Web {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        let target = request.path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        match path.rsplit('/').next().unwrap_or_default() {
            "hello" => respond(out, 200, &[], b"Hello\n"),
            "count" => respond(out, 200, &[], format!("{number}\n").as_bytes()),
            "request" => respond(out, 200, &[], describe(&request, &target).as_bytes()),
            "echo" => {
                let body = read(&request);
                respond(out, 200, &[("x-length", &body.len().to_string())], &body);
            }
            "status" => respond(out, query.parse().unwrap_or(200), &[("x-made", "here")], b""),
            "field" => {
                let (name, value) = query.split_once('=').unwrap_or_default();
                respond(out, 200, &[(name, value), ("x-own", "1")], b"own body");
            }
            "large" => large(out, query.parse().unwrap_or(0)),
            "environment" => {
                let mut lines: Vec<_> = std::env::vars().map(|(name, value)| format!("{name}={value}\n")).collect();
                lines.sort();
                respond(out, 200, &[], lines.concat().as_bytes());
            }
            "file" => {
                let read = fs::read(query).unwrap_or_else(|error| format!("error: {error}").into_bytes());
                respond(out, 200, &[], &read);
            }
            "write" => {
                let text = match fs::write(query, b"written") {
                    Ok(()) => "written".to_owned(),
                    Err(error) => format!("error: {error}"),
                };
                respond(out, 200, &[], text.as_bytes());
            }
            "fetch" => {
                let text = fetch(query).unwrap_or_else(|error| format!("error: {error}"));
                respond(out, 200, &[], text.as_bytes());
            }
            "connect" => {
                let text = match std::net::TcpStream::connect(query) {
                    Ok(_) => "connected".to_owned(),
                    Err(error) => format!("error: {error}"),
                };
                respond(out, 200, &[], text.as_bytes());
            }
            "log" => {
                eprintln!("a line of standard error");
                println!("a line of standard output");
                respond(out, 200, &[], b"logged\n");
            }
            "trap" => {
                if query == "try-grow" {
                    // It goes on without what it did not get.
                    assert!(try_grow(1 << 30).is_none());
                    assert!(try_grow(1 << 20).is_some());
                }
                panic!("on purpose")
            }
            "late-trap" => {
                let body = begin(out, 200, &[]);
                write(&body, &[b'x'; 300_000]);
                panic!("on purpose");
            }
            "spin" => loop {
                std::hint::spin_loop();
            },
            "sleep" => {
                std::thread::sleep(std::time::Duration::from_millis(query.parse().unwrap_or(0)));
                respond(out, 200, &[], b"slept\n");
            }
            "grow" => {
                let mut held = Vec::new();
                loop {
                    held.push(vec![1_u8; 1 << 20]);
                }
            }
            "try-grow" => {
                let text = if try_grow(1 << 30).is_some() { "granted\n" } else { "denied\n" };
                respond(out, 200, &[], text.as_bytes());
            }
            "nothing" => {}
            _ => respond(out, 404, &[], b"no such path\n"),
        }
    }
}

fn try_grow(size: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).ok()?;
    bytes.resize(size, 1);
    Some(std::hint::black_box(bytes))
}

fn describe(request: &IncomingRequest, target: &str) -> String {
    let mut lines = vec![format!(
        "{:?} {:?} {} {target}",
        request.method(),
        request.scheme(),
        request.authority().unwrap_or_default()
    )];
    for (name, value) in request.headers().entries() {
        lines.push(format!("{name}: {}", String::from_utf8_lossy(&value)));
    }
    lines.join("\n")
}

fn read(request: &IncomingRequest) -> Vec<u8> {
    let body = request.consume().unwrap();
    let mut bytes = Vec::new();
    let mut stream = body.stream().unwrap();
    stream.read_to_end(&mut bytes).unwrap();
    drop(stream);
    IncomingBody::finish(body);
    bytes
}

fn begin(out: ResponseOutparam, status: u16, fields: &[(&str, &str)]) -> OutgoingBody {
    let headers = Fields::new();
    for (name, value) in fields {
        headers.append(name, value.as_bytes()).unwrap();
    }
    let response = OutgoingResponse::new(headers);
    response.set_status_code(status).unwrap();
    let body = response.body().unwrap();
    ResponseOutparam::set(out, Ok(response));
    body
}

fn write(body: &OutgoingBody, bytes: &[u8]) {
    let mut stream = body.write().unwrap();
    stream.write_all(bytes).unwrap();
    stream.flush().unwrap();
}

fn respond(out: ResponseOutparam, status: u16, fields: &[(&str, &str)], bytes: &[u8]) {
    let body = begin(out, status, fields);
    write(&body, bytes);
    OutgoingBody::finish(body, None).unwrap();
}

fn large(out: ResponseOutparam, size: usize) {
    let body = begin(out, 200, &[]);
    let mut stream = body.write().unwrap();
    let mut rest = size;
    while rest > 0 {
        let part = rest.min(32 * 1024);
        stream.write_all(&vec![b'x'; part]).unwrap();
        rest -= part;
    }
    stream.flush().unwrap();
    drop(stream);
    OutgoingBody::finish(body, None).unwrap();
}

/// Sends a request to `host:port/path`.
fn fetch(url: &str) -> Result<String, String> {
    let (authority, path) = url.split_once('/').unwrap_or((url, ""));
    let request = OutgoingRequest::new(Fields::new());
    request.set_method(&Method::Post).unwrap();
    request.set_scheme(Some(&Scheme::Http)).unwrap();
    request.set_authority(Some(authority)).unwrap();
    request.set_path_with_query(Some(&format!("/{path}"))).unwrap();
    let body = request.body().unwrap();
    let response = outgoing_handler::handle(request, None).map_err(|code| format!("{code:?}"))?;
    // A request that was not sent takes no body; its response says why.
    let mut stream = body.write().unwrap();
    let written = stream.write_all(b"from a component").and_then(|()| Write::flush(&mut stream));
    drop(stream);
    if written.is_ok() {
        OutgoingBody::finish(body, None).map_err(|code| format!("{code:?}"))?;
    }
    response.subscribe().block();
    let response = response.get().unwrap().unwrap().map_err(|code| format!("{code:?}"))?;
    let body = response.consume().unwrap();
    let mut text = String::new();
    body.stream().unwrap().read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(format!("{} {text}", response.status()))
}
