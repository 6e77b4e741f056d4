//! An HTTP handler by `wasi:http/handler` of WASI 0.3. The last segment of the path selects what it does.

use std::sync::atomic::{AtomicU32, Ordering};

use wasip3::http::types::{ErrorCode, Fields, Request, Response};
use wasip3::{wit_bindgen, wit_future, wit_stream};

wasip3::http::service::export!(Service);

struct Service;

/// Requests that this instance has handled.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

impl wasip3::exports::http::handler::Guest for Service {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        let target = request.get_path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        match path.rsplit('/').next().unwrap_or_default() {
            "hello" => Ok(respond(b"Hello\n".to_vec())),
            "count" => Ok(respond(format!("{number}\n").into_bytes())),
            "field" => {
                let (name, value) = query.split_once('=').unwrap_or_default();
                let fields = Fields::new();
                let _ = fields.append(name, value.as_bytes());
                Ok(respond_with(fields, b"own body".to_vec()))
            }
            "large" => Ok(respond(vec![b'x'; query.parse().unwrap_or(0)])),
            "echo" => {
                let (_, done) = wit_future::new(|| Ok(()));
                let (body, _) = Request::consume_body(request, done);
                let bytes = body.collect().await;
                Ok(respond(bytes))
            }
            "error" => Err(ErrorCode::InternalError(Some("on purpose".into()))),
            "trap" => panic!("on purpose"),
            "spin" => loop {
                std::hint::spin_loop();
            },
            _ => Err(ErrorCode::HttpRequestUriInvalid),
        }
    }
}

fn respond(bytes: Vec<u8>) -> Response {
    respond_with(Fields::new(), bytes)
}

fn respond_with(fields: Fields, bytes: Vec<u8>) -> Response {
    let (mut sender, body) = wit_stream::new();
    let (trailers, trailers_received) = wit_future::new(|| Ok(None));
    let (response, _) = Response::new(fields, Some(body), trailers_received);
    drop(trailers);
    wit_bindgen::spawn_local(async move {
        let _ = sender.write_all(bytes).await;
    });
    response
}
