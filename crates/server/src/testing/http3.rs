//! A client of HTTP/3 in memory (RFC 9114): QUIC by quinn-proto, datagrams in lists, the time of the test.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use dunlin_http::http3::Http3ErrorCode;
use dunlin_http::http3::frame::{self, kind, read_varint, stream_kind, write_varint};
use dunlin_http::http3::qpack::{Decoded, QpackDecoder};
use dunlin_net::clock;
use dunlin_quic::proto::{self, DatagramEvent, Event};
use dunlin_quic::{
    Dir, Endpoint, ReadError, StreamEvent, StreamId, TransportSettings, VarInt, client_config,
};

use super::TestServer;
use super::link::HOST;
use super::message::{End, Message, TestReply};

/// A connection, and the responses to the requests that were sent on it, by their streams.
pub(crate) struct Http3 {
    server: Rc<Endpoint>,
    /// The client's address. A test may change it.
    pub(crate) address: SocketAddr,
    endpoint: proto::Endpoint,
    handle: proto::ConnectionHandle,
    connection: proto::Connection,
    decoder: QpackDecoder,
    readers: BTreeMap<u64, Reader>,
    pub(crate) replies: BTreeMap<u64, TestReply>,
    uploads: BTreeMap<u64, Upload>,
    /// The streams that are open; further requests wait.
    opened: u64,
    has_settings: bool,
    /// What has arrived on the server's unidirectional streams.
    own: BTreeMap<u64, Vec<u8>>,
    /// Codes of streams that the server has reset.
    pub(crate) resets: BTreeMap<u64, u64>,
    /// Datagrams on their way to the server and to the client.
    pub(crate) to_server: VecDeque<Vec<u8>>,
    pub(crate) to_client: VecDeque<Vec<u8>>,
    /// The code with which the server has closed the connection, or none if it was lost.
    pub(crate) closed: Option<Option<u64>>,
}

/// What has arrived of a response and is not a whole frame, and whether the stream has ended.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
    has_ended: bool,
}

/// Bytes of a request that were not sent.
struct Upload {
    bytes: Vec<u8>,
    at: usize,
}

impl Http3 {
    /// Begins a connection to a server whose certificate is in `directory`, from that address.
    pub(crate) fn connect(server: &TestServer, directory: &Path, address: SocketAddr) -> Self {
        let tls = dunlin_tls::client_config(Some(&directory.join("cert.pem")));
        let mut tls = rustls::ClientConfig::clone(&tls.expect("an authority"));
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let crypto = proto::crypto::rustls::QuicClientConfig::try_from(Arc::new(tls));
        let crypto = Arc::new(crypto.expect("a configuration for QUIC"));
        let config = client_config(crypto, &TransportSettings::default());
        let mut endpoint =
            proto::Endpoint::new(Arc::new(proto::EndpointConfig::default()), None, false, None);
        let remote = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 254), 80));
        let (handle, connection) =
            endpoint.connect(clock::now(), config, remote, HOST).expect("an address and a name");
        Self {
            server: server.quic(),
            address,
            endpoint,
            handle,
            connection,
            decoder: QpackDecoder::new(0, 0),
            readers: BTreeMap::new(),
            replies: BTreeMap::new(),
            uploads: BTreeMap::new(),
            opened: 0,
            has_settings: false,
            own: BTreeMap::new(),
            resets: BTreeMap::new(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            closed: None,
        }
    }

    /// Completes the handshake.
    pub(crate) async fn open(&mut self, server: &TestServer) {
        for _ in 0..100 {
            self.exchange(server).await;
            if self.has_settings {
                return;
            }
            server.advance(std::time::Duration::from_millis(10)).await;
        }
        panic!("the handshake does not complete: {:?}", self.closed);
    }

    /// Opens the control stream, once the server permits it. No table of QPACK is permitted to the server, whose sections
    /// refer to none then.
    fn send_settings(&mut self) {
        if !self.has_settings
            && let Some(control) = self.connection.streams().open(Dir::Uni)
        {
            self.has_settings = true;
            let mut bytes = vec![stream_kind::CONTROL as u8];
            frame::write_settings(&[], &mut bytes);
            self.connection.send_stream(control).write(&bytes).expect("room for the settings");
        }
    }

    /// Sends a request. Returns its stream.
    pub(crate) fn send(&mut self, message: &Message) -> u64 {
        let Message { method, target, host, fields, body, states_length } = message;
        let length = body.as_ref().filter(|_| *states_length).map(|body| body.len().to_string());
        let mut section = vec![0, 0];
        let pseudo = [
            (":method", *method),
            (":scheme", "https"),
            (":path", target.as_str()),
            (":authority", *host),
        ];
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let length = length.as_deref().map(|length| ("content-length", length));
        for (name, value) in pseudo.into_iter().chain(fields).chain(length) {
            // A literal with a literal name (RFC 9204 §4.5.6).
            write_prefixed(0x20, 3, name.as_bytes(), &mut section);
            write_prefixed(0, 7, value.as_bytes(), &mut section);
        }
        let mut bytes = Vec::new();
        frame::write(kind::HEADERS, &section, &mut bytes);
        for part in body.iter().flat_map(|body| body.chunks(10_000)) {
            frame::write(kind::DATA, part, &mut bytes);
        }
        let id = 4 * self.replies.len() as u64;
        self.replies.insert(id, TestReply::default());
        self.readers.insert(id, Reader::default());
        self.uploads.insert(id, Upload { bytes, at: 0 });
        id
    }

    /// Passes bytes of requests to QUIC, as far as the server permits.
    fn write(&mut self) {
        if self.closed.is_some() {
            return;
        }
        self.send_settings();
        let wanted = self.replies.len() as u64;
        while self.opened < wanted && self.connection.streams().open(Dir::Bi).is_some() {
            self.opened += 1;
        }
        let Self { connection, uploads, opened, .. } = self;
        uploads.retain(|id, upload| {
            if *id >= 4 * *opened {
                return true;
            }
            let mut stream = connection.send_stream(quic_stream(*id));
            while upload.at < upload.bytes.len() {
                match stream.write(&upload.bytes[upload.at..]) {
                    Ok(count) => upload.at += count,
                    Err(proto::WriteError::Blocked) => return true,
                    Err(_) => return false,
                }
            }
            // The server may have stopped it.
            let _ = stream.finish();
            false
        });
    }

    /// Returns the streams that the GOAWAY frames name which have arrived.
    pub(crate) fn goaways(&self) -> Vec<u64> {
        let mut found = Vec::new();
        for bytes in self.own.values() {
            let mut at = 0;
            if read_varint(bytes, &mut at) != Some(stream_kind::CONTROL) {
                continue;
            }
            while let (Some(kind), Some(length)) =
                (read_varint(bytes, &mut at), read_varint(bytes, &mut at))
            {
                if kind == kind::GOAWAY {
                    found.extend(read_varint(bytes, &mut at.clone()));
                }
                at += usize::try_from(length).expect("a length of the tests");
            }
        }
        found
    }

    /// Gives up a request.
    pub(crate) fn cancel(&mut self, id: u64) {
        let code = VarInt::try_from(Http3ErrorCode::RequestCancelled.value()).expect("a code");
        self.write();
        if self.closed.is_none() && id < 4 * self.opened {
            self.uploads.remove(&id);
            // A direction that has ended is not reset.
            let _ = self.connection.send_stream(quic_stream(id)).reset(code);
            let _ = self.connection.recv_stream(quic_stream(id)).stop(code);
            self.abort(id);
        }
    }

    fn abort(&mut self, id: u64) {
        if let Some(reply) = self.replies.get_mut(&id).filter(|reply| reply.end == End::Open) {
            reply.end = End::Aborted;
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        let code = VarInt::try_from(Http3ErrorCode::NoError.value()).expect("a code");
        self.connection.close(clock::now(), code, Default::default());
        self.end(None);
    }

    /// Ends what is open, as a client that has waited long enough does.
    pub(crate) fn end(&mut self, code: Option<u64>) {
        self.closed.get_or_insert(code);
        let open: Vec<u64> = self.replies.keys().copied().collect();
        open.into_iter().for_each(|id| self.abort(id));
    }

    /// Makes the datagrams that are to be sent now.
    pub(crate) fn transmit(&mut self) {
        let now = clock::now();
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        self.write();
        self.pass_events();
        let mut buffer = Vec::new();
        while self.connection.poll_transmit(now, 1, &mut buffer).is_some() {
            self.to_server.push_back(std::mem::take(&mut buffer));
        }
    }

    fn pass_events(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    /// Passes up to `max` datagrams to the server.
    pub(crate) fn deliver(&mut self, max: usize) {
        for _ in 0..max.min(self.to_server.len()) {
            if let Some(datagram) = self.to_server.pop_front() {
                self.server.deliver(self.address, &datagram);
            }
        }
    }

    /// Takes the datagrams that the server has sent to this client.
    pub(crate) fn collect(&mut self) {
        self.to_client.extend(self.server.take_sent(self.address));
    }

    /// Receives up to `max` datagrams, and reads all that has arrived.
    pub(crate) fn receive(&mut self, max: usize) {
        self.collect();
        let now = clock::now();
        for _ in 0..max.min(self.to_client.len()) {
            let Some(datagram) = self.to_client.pop_front() else { break };
            let remote = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 254), 80));
            let (bytes, mut response) = (BytesMut::from(&datagram[..]), Vec::new());
            let event = self.endpoint.handle(now, remote, None, None, bytes, &mut response);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        self.pass_events();
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while self.connection.streams().accept(Dir::Uni).is_some() {}
                }
                Event::Stream(StreamEvent::Stopped { id, .. }) => {
                    self.uploads.remove(&id.into());
                }
                Event::ConnectionLost { reason } => {
                    let code = match reason {
                        proto::ConnectionError::ApplicationClosed(close) => {
                            Some(close.error_code.into_inner())
                        }
                        _ => None,
                    };
                    self.end(code);
                }
                _ => {}
            }
        }
    }

    /// Reads a stream.
    fn read(&mut self, stream: StreamId) {
        let id: u64 = stream.into();
        let mut received = self.connection.recv_stream(stream);
        let Ok(mut chunks) = received.read(true) else { return };
        let mut bytes = Vec::new();
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => break Ok(true),
                Err(ReadError::Blocked) => break Ok(false),
                Err(ReadError::Reset(code)) => break Err(code.into_inner()),
            }
        };
        let _ = chunks.finalize();
        if stream.dir() == Dir::Uni {
            return self.own.entry(id).or_default().extend_from_slice(&bytes);
        }
        match end {
            Ok(_) if self.replies.get(&id).is_some_and(|reply| reply.end == End::Aborted) => {}
            Ok(has_ended) => {
                if let Some(reader) = self.readers.get_mut(&id) {
                    reader.bytes.extend_from_slice(&bytes);
                    reader.has_ended |= has_ended;
                }
                self.frames(id);
            }
            Err(code) => {
                self.resets.insert(id, code);
                self.abort(id);
            }
        }
    }

    /// Reads the complete frames of a response, and the parts of DATA that have arrived.
    fn frames(&mut self, id: u64) {
        let Some(mut reader) = self.readers.remove(&id) else { return };
        loop {
            let mut at = 0;
            let header = (read_varint(&reader.bytes, &mut at), read_varint(&reader.bytes, &mut at));
            let (Some(kind), Some(length)) = header else { break };
            let length = usize::try_from(length).expect("a length of the tests");
            let is_whole = reader.bytes.len() >= at + length;
            let payload = reader.bytes[at..(at + length).min(reader.bytes.len())].to_vec();
            if kind == kind::DATA {
                self.reply(id).body.extend_from_slice(&payload);
                reader.bytes.drain(..at + payload.len());
                if !is_whole {
                    // The rest is a frame of its own.
                    let mut rest = Vec::new();
                    write_varint(kind::DATA, &mut rest);
                    write_varint((length - payload.len()) as u64, &mut rest);
                    reader.bytes.splice(0..0, rest);
                    break;
                }
                continue;
            }
            if !is_whole {
                break;
            }
            reader.bytes.drain(..at + length);
            if kind == kind::HEADERS {
                self.head(id, &payload);
            }
        }
        let is_complete = reader.has_ended && reader.bytes.is_empty();
        self.readers.insert(id, reader);
        let reply = self.reply(id);
        if is_complete && reply.end == End::Open {
            assert_ne!(reply.status, 0, "stream {id} ends without a head");
            reply.end = End::Complete;
        }
    }

    fn head(&mut self, id: u64, section: &[u8]) {
        let (mut text, mut fields) = (Vec::new(), Vec::new());
        let decoded = self.decoder.decode(id, section, &mut text, |text, field| {
            let part = |range: std::ops::Range<usize>| {
                String::from_utf8(text[range].to_vec()).expect("a field of text")
            };
            fields.push((part(field.name), part(field.value)));
            true
        });
        assert_eq!(decoded.expect("a section that can be read"), Decoded::Complete);
        let (status, fields) = fields.split_first().expect("a status");
        let status: u16 = status.1.parse().expect("a status");
        let reply = self.reply(id);
        assert_eq!((reply.status, reply.end), (0, End::Open), "one final head for each stream");
        if status < 200 {
            return reply.interim.push(status);
        }
        (reply.status, reply.fields) = (status, fields.to_vec());
        reply.fields.sort();
    }

    fn reply(&mut self, id: u64) -> &mut TestReply {
        self.replies.get_mut(&id).unwrap_or_else(|| panic!("stream {id} has no request"))
    }

    /// Moves datagrams in both directions, until neither side has any.
    pub(crate) async fn exchange(&mut self, server: &TestServer) {
        for _ in 0..10_000 {
            self.transmit();
            let has_sent = !self.to_server.is_empty();
            self.deliver(usize::MAX);
            server.settle().await;
            self.collect();
            let has_received = !self.to_client.is_empty();
            self.receive(usize::MAX);
            if !has_sent && !has_received {
                return;
            }
        }
        panic!("the connection never rests");
    }
}

fn quic_stream(id: u64) -> StreamId {
    StreamId::from(VarInt::from_u64(id).expect("a stream has at most 62 bits"))
}

/// Appends a string behind an integer with a prefix of `bits` (RFC 9204 §4.1), without Huffman coding.
fn write_prefixed(first: u8, bits: u32, text: &[u8], out: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if text.len() < most {
        out.push(first | text.len() as u8);
    } else {
        out.push(first | most as u8);
        let mut rest = text.len() - most;
        while rest >= 128 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}
