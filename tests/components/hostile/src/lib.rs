//! A handler of `wasi:http` 0.2 that misbehaves as the last segment of the path names.

use std::hint::black_box;
use std::io::Write as _;

use wasip2::clocks::monotonic_clock;
use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};
use wasip2::io::streams::OutputStream;

struct Hostile;

wasip2::http::proxy::export!(Hostile);

impl Guest for Hostile {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        match path.rsplit('/').next().unwrap_or_default() {
            "ok" => respond(out, b"ok\n"),
            "loop" => endless(),
            "host-calls" => loop {
                black_box(monotonic_clock::now());
            },
            "handles" => handles(),
            "sleep" => monotonic_clock::subscribe_duration(3_600_000_000_000).block(),
            "trap" => panic!("on purpose"),
            "no-response" => {}
            "grow" => grow(),
            "recurse" => {
                black_box(recurse(black_box(1)));
            }
            "huge" => huge(out),
            "fields" => fields(out, 20_000, 8),
            "long-field" => fields(out, 1, 4 << 20),
            "trap-after-head" => start(out, Fields::new(), |stream| {
                write(stream, b"the beginning\n");
                panic!("after the head");
            }),
            "loop-after-head" => start(out, Fields::new(), |stream| {
                write(stream, b"the beginning\n");
                endless();
            }),
            "loop-after-end" => {
                respond(out, b"complete\n");
                endless();
            }
            "trap-after-end" => {
                respond(out, b"complete\n");
                panic!("after the end");
            }
            "more-than-announced" => announced(out, b"too long\n"),
            "less-than-announced" => announced(out, b"a"),
            "stderr" => {
                for _ in 0..10_000 {
                    eprintln!("{}", "noise ".repeat(100));
                }
                respond(out, b"ok\n");
            }
            _ => respond(out, b"unknown\n"),
        }
        // The body of the request is never read.
        drop(request);
    }
}

fn endless() -> ! {
    loop {
        black_box(());
    }
}

/// Allocates and touches memory until there is none.
fn grow() {
    let mut blocks = Vec::new();
    loop {
        blocks.push(vec![1_u8; 1 << 20]);
        black_box(&blocks);
    }
}

/// Takes handles of the host until there are none.
fn handles() {
    let mut handles = Vec::new();
    loop {
        handles.push(Fields::new());
    }
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX {
        return depth;
    }
    recurse(depth + 1) + frame[(depth % 64) as usize]
}

/// A body without an end.
fn huge(out: ResponseOutparam) {
    start(out, Fields::new(), |stream| {
        let block = [b'x'; 4096];
        while stream.blocking_write_and_flush(&block).is_ok() {}
    });
}

/// A head with `count` fields whose values have `length` bytes, as far as the host permits them.
fn fields(out: ResponseOutparam, count: usize, length: usize) {
    let fields = Fields::new();
    for at in 0..count {
        if fields.append(&format!("x-{at}"), &vec![b'v'; length]).is_err() {
            break;
        }
    }
    start(out, fields, |stream| write(stream, b"many fields\n"));
}

/// A body of another length than the field Content-Length states, which is 4.
fn announced(out: ResponseOutparam, body: &[u8]) {
    let fields = Fields::new();
    fields.append("content-length", b"4").expect("a field");
    start(out, fields, |stream| {
        let _ = stream.blocking_write_and_flush(body);
    });
}

fn respond(out: ResponseOutparam, body: &[u8]) {
    start(out, Fields::new(), |stream| write(stream, body));
}

/// Sends the head, then has `content` write the body.
fn start(out: ResponseOutparam, fields: Fields, content: impl FnOnce(&mut OutputStream)) {
    let response = OutgoingResponse::new(fields);
    let body = response.body().expect("a body");
    ResponseOutparam::set(out, Ok(response));
    let mut stream = body.write().expect("a stream");
    content(&mut stream);
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}

fn write(stream: &mut OutputStream, content: &[u8]) {
    let _ = stream.write_all(content);
    let _ = stream.flush();
}
