//! A request that a component handles by an interface of `wasi:http`, and its response.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_exchange::stream::{self, Broken};
use dunlin_exchange::{Body, Incoming, Named, Response, Stream, StreamKind, is_instruction};
use dunlin_fs::content::Piece;
use dunlin_http::FieldLines;
use dunlin_http::semantics::{Method, status};
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::{Outcome, Target};
use dunlin_telemetry::ScriptContext;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HOST, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use http_body::Body as _;
use tokio::time::Sleep;
use wasmtime_wasi_http::WasiBody;

use crate::request_body::RequestBodySource;
use crate::running_instance::RunningInstance;

/// The place in which an instance puts the head of its response, with the body that follows.
#[derive(Clone, Default)]
pub(crate) struct HeadSlot(Arc<Mutex<Option<HandlerResult>>>);

/// The result of a handler: a response, or the reason why there is none.
pub(crate) type HandlerResult = Result<http::Response<WasiBody>, String>;

/// A response that ends within this size and time is complete before its head is sent: its length is stated, and a
/// component that fails in the middle gives an error instead of a truncated response.
const MAX_BUFFERED: usize = 128 * 1024;
const BUFFER_TIME: Duration = Duration::from_millis(2);
const TWO_NAMED: &str = "its response has more than one X-Accel-Redirect or X-Sendfile field";

impl HeadSlot {
    pub(crate) fn set(&self, result: HandlerResult) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    fn take(&self) -> Option<HandlerResult> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Builds the request as the interfaces of WASI have it.
///
/// # Errors
/// It has no form there.
pub(crate) fn request(
    call: &Call<'_>,
    incoming: &Incoming,
    body: RequestBodySource,
) -> Result<http::Request<RequestBodySource>, Failure> {
    let client = call.client(incoming);
    let invalid = || Failure::Status(400);
    let mut request = http::Request::new(body);
    *request.method_mut() =
        http::Method::from_bytes(call.request.equivalent_method()).map_err(|_| invalid())?;
    let mut target = call.raw_path.to_vec();
    if let Some(query) = call.query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    let authority = call.request.field(dunlin_http::FieldName::Host);
    let authority = authority.filter(|host| !host.is_empty()).unwrap_or(b"localhost");
    let scheme = if client.encrypted { "https" } else { "http" };
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target);
    *request.uri_mut() = uri.build().map_err(|_| invalid())?;
    let headers = request.headers_mut();
    call.each_field(incoming, |name, value| {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            && name != HOST
        {
            headers.append(name, value);
        }
    });
    // The interfaces have no address of the client.
    headers.remove("forwarded");
    headers.insert("x-forwarded-proto", HeaderValue::from_static(scheme));
    match client.address.ip().and_then(|ip| HeaderValue::from_str(&ip.to_string()).ok()) {
        Some(address) => drop(headers.insert("x-forwarded-for", address)),
        None => drop(headers.remove("x-forwarded-for")),
    }
    Ok(request)
}

/// Runs the instance until it has a response, and responds with that, or with the resource that it names.
///
/// # Errors
/// Why there is no response.
pub(crate) async fn respond(
    call: &Call<'_>,
    incoming: Box<Incoming>,
    name: &Arc<str>,
    instance: RunningInstance<()>,
    head: HeadSlot,
) -> Result<Outcome, Failure> {
    let script_context = Rc::clone(&incoming.script_context);
    let mut instance = Some(instance);
    let response = poll_fn(|cx| poll_head(&mut instance, &head, cx)).await?;
    script_context.mark(&script_context.first_byte);
    let (parts, body) = response.into_parts();
    let status = parts.status.as_u16();
    if !(200..600).contains(&status) {
        return Err(Failure::Malformed(format!("its status {status} is not from 200 to 599")));
    }
    let Fields { lines, stated, mut named } = Fields::of(&parts.headers);
    let mut running = Running::new(instance, body, Arc::clone(name), Rc::clone(&script_context));
    if named.len() > 1 {
        return Err(Failure::Malformed(TWO_NAMED.into()));
    }
    if let Some(named) = named.pop() {
        running.detach();
        return Ok(Outcome::internal(Target::Named(lines, named), incoming));
    }
    let mut response = Response { fields: lines, ..Response::new(status) };
    if call.request.method() == Method::Head || !status::allows_content(status) {
        running.detach();
        if status::allows_content(status) {
            let source = stream::empty();
            response.body =
                Body::streamed(Stream { source, length: stated, kind: StreamKind::Body });
        }
        return Ok(Outcome::Response(response));
    }
    if running.collect().await? {
        script_context.mark(&script_context.ended);
        running.buffered.drain(..).for_each(|bytes| response.body.push(Piece::Memory(bytes)));
        running.detach();
        return Ok(Outcome::Response(response));
    }
    let source = stream::from_source(Box::new(running));
    response.body = Body::streamed(Stream { source, length: stated, kind: StreamKind::Body });
    Ok(Outcome::Response(response))
}

/// The fields of a component's response, and what they mean for the server.
#[derive(Default)]
struct Fields {
    /// The fields for the client.
    lines: FieldLines,
    /// The length that they state.
    stated: Option<u64>,
    /// Resources to send in place of the body. There may be only one.
    named: Vec<Named>,
}

impl Fields {
    fn of(headers: &HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            match *name {
                // The server adds those of the connection and its own.
                CONNECTION | DATE | SERVER | TE | TRAILER | TRANSFER_ENCODING | UPGRADE => {}
                CONTENT_LENGTH => {
                    fields.stated = value.to_str().ok().and_then(|text| text.parse().ok());
                }
                _ => match Named::of_field(name.as_str().as_bytes(), value.as_bytes()) {
                    Some(named) => fields.named.push(named),
                    None if is_instruction(name.as_str().as_bytes()) => {}
                    None => fields.lines.push(name.as_str(), value),
                },
            }
        }
        fields
    }
}

fn poll_head(
    instance: &mut Option<RunningInstance<()>>,
    head: &HeadSlot,
    cx: &mut Context<'_>,
) -> Poll<Result<http::Response<WasiBody>, Failure>> {
    let Some(running) = instance else { return Poll::Pending };
    let is_finished = match running.poll(cx) {
        Poll::Ready(Ok(())) => true,
        Poll::Ready(Err(stop)) => return Poll::Ready(Err(stop.failure())),
        Poll::Pending => false,
    };
    if is_finished {
        *instance = None;
    }
    match head.take() {
        Some(Ok(response)) => Poll::Ready(Ok(response)),
        Some(Err(why)) => Poll::Ready(Err(Failure::Malformed(why))),
        None if is_finished => Poll::Ready(Err(Failure::Malformed("it set no response".into()))),
        None => Poll::Pending,
    }
}

/// An instance that writes the body of its response.
struct Running {
    /// `None` once it has finished.
    instance: Option<RunningInstance<()>>,
    /// `None` once it has ended.
    body: Option<WasiBody>,
    /// Bytes that were received before the head was sent.
    buffered: VecDeque<Bytes>,
    length: usize,
    trailers: FieldLines,
    name: Arc<str>,
    script_context: Rc<ScriptContext>,
    /// When the client was last given bytes.
    given: Option<Instant>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Running {
    fn new(
        instance: Option<RunningInstance<()>>,
        body: WasiBody,
        name: Arc<str>,
        script_context: Rc<ScriptContext>,
    ) -> Self {
        Self {
            instance,
            body: Some(body),
            buffered: VecDeque::new(),
            length: 0,
            trailers: FieldLines::default(),
            name,
            script_context,
            given: None,
        }
    }

    /// Receives the body up to the limits of a buffered response. Returns `true` if that is all of it.
    async fn collect(&mut self) -> Result<bool, Failure> {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            loop {
                match self.poll_body(cx) {
                    Poll::Ready(Ok(Some(bytes))) => {
                        self.length += bytes.len();
                        self.buffered.push_back(bytes);
                        if self.length >= MAX_BUFFERED {
                            return Poll::Ready(Ok(false));
                        }
                    }
                    Poll::Ready(Ok(None)) => return Poll::Ready(Ok(self.trailers.is_empty())),
                    Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                    Poll::Pending => break,
                }
            }
            let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(BUFFER_TIME)));
            timer.as_mut().poll(cx).map(|()| Ok(false))
        })
        .await
    }

    /// Returns the next bytes of the body; `None` at its end.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Failure>> {
        loop {
            if let Some(instance) = &mut self.instance {
                match instance.poll(cx) {
                    Poll::Ready(Ok(())) => self.instance = None,
                    Poll::Ready(Err(stop)) => {
                        self.instance = None;
                        self.body = None;
                        return Poll::Ready(Err(stop.failure()));
                    }
                    Poll::Pending => {}
                }
            }
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(None)) };
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(frame) => frame,
            };
            match frame {
                None => self.body = None,
                Some(Err(error)) => {
                    let why = format!("the body of its response is incomplete: {error}");
                    return Poll::Ready(Err(Failure::Malformed(why)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Poll::Ready(Ok(Some(bytes))),
                    Err(frame) => {
                        for trailers in frame.into_trailers().iter() {
                            // None of them can name a resource, as the body was sent.
                            self.trailers = Fields::of(trailers).lines;
                        }
                    }
                },
            }
        }
    }

    /// Lets the instance go on after its response, within its limits.
    fn detach(&mut self) {
        if let Some(instance) = self.instance.take() {
            finish(
                instance,
                self.body.take(),
                Arc::clone(&self.name),
                Rc::clone(&self.script_context),
            );
        }
    }

    fn log(&self, failure: &Failure) {
        log(&self.name, &self.script_context, failure);
    }
}

impl stream::Source for Running {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if let (Some(instance), Some(given)) = (&mut self.instance, self.given.take()) {
            instance.add_pause(given.elapsed());
        }
        let next = match self.buffered.pop_front() {
            Some(bytes) => Poll::Ready(Ok(Some(bytes))),
            None => self.poll_body(cx),
        };
        match next {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(bytes))) => {
                self.given = Some(Instant::now());
                Poll::Ready(Ok(Some(bytes)))
            }
            Poll::Ready(Ok(None)) => {
                self.script_context.mark(&self.script_context.ended);
                self.detach();
                Poll::Ready(Ok(None))
            }
            Poll::Ready(Err(failure)) => {
                self.log(&failure);
                Poll::Ready(Err(Broken))
            }
        }
    }

    fn take_trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }

    fn finish(mut self: Box<Self>) {
        self.detach();
    }
}

/// Polls an instance until it has finished. What it still writes is dropped.
fn finish(
    instance: RunningInstance<()>,
    body: Option<WasiBody>,
    name: Arc<str>,
    script_context: Rc<ScriptContext>,
) {
    let instance = RefCell::new(instance);
    let body = RefCell::new(body);
    tokio::task::spawn_local(async move {
        let ended = poll_fn(|cx| {
            let mut rest = body.borrow_mut();
            while let Some(frames) = &mut *rest {
                match Pin::new(frames).poll_frame(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(_) => *rest = None,
                    Poll::Pending => break,
                }
            }
            instance.borrow_mut().poll(cx)
        });
        if let Err(stop) = ended.await {
            log(&name, &script_context, &stop.failure());
        }
    });
}

/// Logs a failure that the client sees as an incomplete response, or does not see.
fn log(name: &str, script_context: &ScriptContext, failure: &Failure) {
    tracing::error!(
        script = name,
        request_id = script_context.id(),
        "the component failed after the head of its response: {}",
        failure.reason()
    );
}
