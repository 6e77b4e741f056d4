//! The adapter of HTTP/2 to the engine of streams, by the crate `h2`.

mod failure;
mod wire;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::job::Job;
use super::recorder::{ConnectionRecord, SharedRecorder};
use super::request::Http2Request;
use super::response::PartialResponse;
use super::streams::{Failed, LiveConnection, Seen, StreamProtocol};
use crate::outcome::ErrorKind;
use failure::Progressed;
use wire::Wire;

/// Size of the receive windows, so large that flow control never blocks the server.
const WINDOW: u32 = (1 << 31) - 1;

/// The handle of a connection of HTTP/2.
pub(super) struct Http2(SendRequest<Bytes>);

impl StreamProtocol for Http2 {
    async fn open(
        job: &Job,
        recorder: &SharedRecorder,
        record: &mut ConnectionRecord,
        seen: &Rc<Seen>,
    ) -> io::Result<Self> {
        let socket = TcpStream::connect(job.address).await?;
        socket.set_nodelay(job.plan.request.no_delay)?;
        recorder.now().connect(record);
        let Some(tls) = &job.tls else { return handshake(socket, recorder, seen).await };
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls.config));
        let stream = connector.connect(tls.name.clone(), socket).await?;
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(job.plan.protocol.alpn()) {
            return Err(io::Error::other("the server does not negotiate h2"));
        }
        let resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        recorder.now().handshake(record, resumed);
        handshake(stream, recorder, seen).await
    }

    fn max_streams(&self) -> usize {
        self.0.current_max_send_streams()
    }

    async fn exchange(
        live: &LiveConnection<Self>,
        job: &Job,
        recorder: &SharedRecorder,
        url: u32,
    ) -> Result<PartialResponse, Failed> {
        let Some(request) = job.http2.get(url as usize).cloned() else {
            let reason = "there is no such request".to_owned();
            return Err(Failed::For(ErrorKind::Other, reason));
        };
        let mut progressed = Progressed::default();
        let read = read(live.client.0.clone(), request, job, recorder, &mut progressed);
        read.await.map_err(|error| failure::classify(&error, live, &progressed))
    }
}

async fn handshake<T>(stream: T, recorder: &SharedRecorder, seen: &Rc<Seen>) -> io::Result<Http2>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let wire = Wire::new(stream, recorder.clone(), Rc::clone(seen));
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
    let (client, connection) = builder.handshake(wire).await.map_err(io::Error::other)?;
    tokio::task::spawn_local(async move {
        // Its streams report errors of the connection.
        let _ = connection.await;
    });
    Ok(Http2(client))
}

async fn read(
    mut client: SendRequest<Bytes>,
    request: Http2Request,
    job: &Job,
    recorder: &SharedRecorder,
    progressed: &mut Progressed,
) -> Result<PartialResponse, h2::Error> {
    let head_only = request.head.method() == http::Method::HEAD;
    poll_fn(|context| client.poll_ready(context)).await?;
    let (response, mut sender) = client.send_request(request.head, request.body.is_empty())?;
    if !request.body.is_empty() {
        sender.send_data(request.body, true)?;
    }
    let head = response.await?;
    let (mut response, verifies) = {
        let recorder = recorder.now();
        (recorder.first_byte(job, head.status().as_u16()), recorder.verifies)
    };
    let announced = head.headers().get(http::header::CONTENT_LENGTH);
    progressed.has_head = true;
    progressed.announced =
        announced.filter(|_| !head_only).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut stream = head.into_body();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        stream.flow_control().release_capacity(piece.len())?;
        progressed.length += piece.len() as u64;
        response.add(&piece, stream.is_end_stream(), verifies);
    }
    Ok(response)
}
