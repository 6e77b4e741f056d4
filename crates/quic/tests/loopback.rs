//! A server and a client over the loopback device, with a relay between them that loses datagrams and changes addresses.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin_quic::crypto::{ChooseConfig, Chosen, ServerCrypto};
use dunlin_quic::proto::{self, Event, ServerConfig};
use dunlin_quic::{
    Accept, Attempt, Connection, Decision, Dir, Endpoint, Flushed, Group, Keys, Place, Predecessor,
    StreamId, TransportSettings, bind, client_config, relay, server_config,
};
use rustls::NamedGroup;
use rustls::server::ClientHello;
use tokio::net::UdpSocket;
use tokio::task::{LocalSet, spawn_local};

/// The certificate of `a.test`, and its key.
struct Site {
    config: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
}

impl Site {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"test".to_vec()];
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        // As browsers do, it prefers a group that withstands quantum computers; its keys need a second packet.
        let mut provider = rustls::crypto::CryptoProvider::clone(&provider);
        provider.kx_groups.sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
        let mut client = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"test".to_vec()];
        Self { config: Arc::new(config), client: Arc::new(client) }
    }

    fn client(&self) -> proto::ClientConfig {
        let crypto = proto::crypto::rustls::QuicClientConfig::try_from(Arc::clone(&self.client));
        client_config(Arc::new(crypto.unwrap()), &TransportSettings::default())
    }
}

impl ChooseConfig for Site {
    fn choose(&self, hello: &ClientHello<'_>) -> Option<Chosen> {
        let known = hello.server_name() == Some("a.test");
        known.then(|| Chosen { config: Arc::clone(&self.config), tag: Arc::new(7_u32) })
    }
}

/// A server that returns what it receives.
struct Echo {
    config: Arc<ServerConfig>,
    retries: bool,
    begun: Rc<Cell<usize>>,
    names: Rc<RefCell<Vec<String>>>,
}

impl Accept for Echo {
    fn decide(&self, attempt: &Attempt) -> Decision {
        if self.retries && !attempt.is_validated {
            return Decision::Retry;
        }
        Decision::Accept(Arc::clone(&self.config))
    }

    fn begin(&self, connection: Connection) {
        self.begun.set(self.begun.get() + 1);
        spawn_local(EchoTask { connection, open: Vec::new(), names: Rc::clone(&self.names) });
    }
}

/// A stream with the bytes that are to be sent back, and whether the client has ended it.
type EchoStream = (StreamId, Vec<Bytes>, bool);

struct EchoTask {
    connection: Connection,
    open: Vec<EchoStream>,
    names: Rc<RefCell<Vec<String>>>,
}

impl Future for EchoTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.connection.register(cx);
        let mut state = this.connection.state();
        while let Some(event) = state.poll() {
            match event {
                Event::Connected => {
                    drop(state);
                    let handshake = this.connection.handshake().unwrap();
                    assert_eq!(handshake.tag.downcast_ref(), Some(&7_u32));
                    assert!(handshake.suite.is_some());
                    assert_eq!(handshake.group, Some(NamedGroup::X25519MLKEM768));
                    this.names.borrow_mut().extend(handshake.server_name);
                    state = this.connection.state();
                }
                Event::ConnectionLost { .. } => return Poll::Ready(()),
                _ => {}
            }
        }
        while let Some(id) = state.streams().accept(Dir::Bi) {
            this.open.push((id, Vec::new(), false));
        }
        this.open.retain_mut(|(id, held, ended)| {
            if !*ended {
                let mut stream = state.recv_stream(*id);
                let mut chunks = stream.read(true).unwrap();
                loop {
                    match chunks.next(usize::MAX) {
                        Ok(Some(chunk)) => held.push(chunk.bytes),
                        Ok(None) => {
                            *ended = true;
                            break;
                        }
                        Err(_) => break,
                    }
                }
                let _ = chunks.finalize();
            }
            let mut stream = state.send_stream(*id);
            while !held.is_empty() {
                let Ok(written) = stream.write_chunks(held) else { break };
                held.drain(..written.chunks);
            }
            let is_done = *ended && held.is_empty();
            if is_done {
                stream.finish().unwrap();
            }
            !is_done
        });
        drop(state);
        if this.connection.flush() == Flushed::More {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// A client accepts nothing.
struct Nothing;

impl Accept for Nothing {
    fn decide(&self, _attempt: &Attempt) -> Decision {
        Decision::Ignore
    }

    fn begin(&self, _connection: Connection) {}
}

/// Sends `data` on a new stream, and returns what comes back.
async fn exchange(connection: &Connection, data: &[u8]) -> Vec<u8> {
    let id = connection.state().streams().open(Dir::Bi).unwrap();
    let (mut sent, mut received) = (0, Vec::new());
    poll_fn(|cx| {
        connection.register(cx);
        let mut state = connection.state();
        while let Some(event) = state.poll() {
            if let Event::ConnectionLost { reason } = event {
                panic!("{reason}");
            }
        }
        while sent < data.len() {
            match state.send_stream(id).write(&data[sent..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
            if sent == data.len() {
                state.send_stream(id).finish().unwrap();
            }
        }
        let mut is_done = false;
        let mut stream = state.recv_stream(id);
        let mut chunks = stream.read(true).unwrap();
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => received.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    is_done = true;
                    break;
                }
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
        drop(state);
        if connection.flush() == Flushed::More {
            cx.waker().wake_by_ref();
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    received
}

/// A relay of one client.
struct Relay {
    address: SocketAddr,
    server: Cell<SocketAddr>,
    /// The relay takes a new address towards the server.
    rebind: Cell<bool>,
    rebound: Cell<usize>,
    /// The relay loses what the server sends.
    is_deaf: Cell<bool>,
}

impl Relay {
    /// Starts a relay that loses one of `loss` datagrams in each direction; none if that is 0.
    async fn start(server: SocketAddr, loss: u32) -> Rc<Self> {
        let inside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let relay = Rc::new(Self {
            address: inside.local_addr().unwrap(),
            server: Cell::new(server),
            rebind: Cell::new(false),
            rebound: Cell::new(0),
            is_deaf: Cell::new(false),
        });
        let mut outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let own = Rc::clone(&relay);
        spawn_local(async move {
            let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
            let (mut client, mut random) = (None, 1_u32);
            loop {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let is_lost = loss > 0 && (random >> 16) % loss == 0;
                tokio::select! {
                    received = inside.recv_from(&mut request) => {
                        let (length, from) = received.unwrap();
                        client = Some(from);
                        if own.rebind.replace(false) {
                            outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                            own.rebound.set(own.rebound.get() + 1);
                        }
                        if !is_lost {
                            let _ = outside.send_to(&request[..length], own.server.get()).await;
                        }
                    }
                    received = outside.recv_from(&mut response) => {
                        let is_lost = is_lost || own.is_deaf.get();
                        if let (Ok((length, _)), Some(client), false) = (received, client, is_lost) {
                            let _ = inside.send_to(&response[..length], client).await;
                        }
                    }
                }
            }
        });
        relay
    }
}

struct Server {
    address: SocketAddr,
    sockets: Vec<std::net::UdpSocket>,
    keys: Keys,
    group: Arc<Group>,
    endpoints: Vec<Rc<Endpoint>>,
    begun: Rc<Cell<usize>>,
    names: Rc<RefCell<Vec<String>>>,
}

impl Server {
    fn start(site: &Arc<Site>, workers: u8, retries: bool) -> Self {
        let mut sockets = vec![bind(([127, 0, 0, 1], 0).into()).unwrap()];
        let address = sockets[0].local_addr().unwrap();
        (1..workers).for_each(|_| sockets.push(bind(address).unwrap()));
        Self::with(site, sockets, 0, Arc::default(), retries)
    }

    /// Starts a server with sockets that may be those of another one.
    fn with(
        site: &Arc<Site>,
        sockets: Vec<std::net::UdpSocket>,
        generation: u8,
        group: Arc<Group>,
        retries: bool,
    ) -> Self {
        let keys = Keys::of(&[9; 32]);
        let crypto = ServerCrypto::new(Arc::clone(site) as _).unwrap();
        let config = server_config(&keys, Arc::new(crypto), &TransportSettings::default());
        let address = sockets[0].local_addr().unwrap();
        let (begun, names) = (Rc::default(), Rc::default());
        let mut endpoints = Vec::new();
        for (worker, socket) in sockets.iter().enumerate() {
            let place = Place { worker: worker as u8, generation };
            let socket = socket.try_clone().unwrap();
            let endpoint =
                Endpoint::new(socket, place, &keys, Some(Arc::clone(&config)), &group).unwrap();
            let echo = Echo {
                config: Arc::clone(&config),
                retries,
                begun: Rc::clone(&begun),
                names: Rc::clone(&names),
            };
            spawn_local(Rc::clone(&endpoint).run(echo));
            endpoints.push(endpoint);
        }
        Self { address, sockets, keys, group, endpoints, begun, names }
    }
}

fn client() -> Rc<Endpoint> {
    let socket = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let place = Place { worker: 0, generation: 0 };
    let endpoint =
        Endpoint::new(socket, place, &Keys::of(&[1; 32]), None, &Arc::default()).unwrap();
    spawn_local(Rc::clone(&endpoint).run(Nothing));
    endpoint
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    LocalSet::new().block_on(&runtime, limited).expect("the test has ended in time");
}

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn streams_return_what_was_sent() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        let endpoint = client();
        let connection = endpoint.connect(site.client(), server.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        for length in [1, 1000, 100_000, 5_000_000] {
            assert!(exchange(&connection, &data(length)).await == data(length), "{length}");
        }
        assert_eq!(*server.names.borrow(), ["a.test"]);
        drop(connection);
        endpoint.close();
        // The client has the closing state of RFC 9000 §10.2; the server has the draining state.
        while endpoint.open() > 0 || server.endpoints[0].open() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_client_of_an_unknown_name_learns_why() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        let connection = client().connect(site.client(), server.address, "b.test").unwrap();
        let error = connection.connected().await.unwrap_err();
        assert!(error.to_string().contains("no site with a certificate"), "{error}");
        // The server has the closing state first (RFC 9000 §10.2).
        while server.endpoints[0].open() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_retry_validates_the_address() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, true);
        let connection = client().connect(site.client(), server.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        assert_eq!(exchange(&connection, b"x").await, b"x");
        assert_eq!(server.begun.get(), 1);
    });
}

#[test]
fn lost_datagrams_are_repeated() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        let relay = Relay::start(server.address, 20).await;
        let connection = client().connect(site.client(), relay.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        assert!(exchange(&connection, &data(300_000)).await == data(300_000));
    });
}

#[test]
fn a_connection_is_closed_although_its_congestion_window_is_full() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        let relay = Relay::start(server.address, 0).await;
        let connection = client().connect(site.client(), relay.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        // The server has confirmed the handshake with its first bytes, so that one packet number space is left.
        exchange(&connection, b"x").await;
        relay.is_deaf.set(true);
        let before = connection.state().stats().udp_tx.bytes;
        let id = connection.state().streams().open(Dir::Bi).unwrap();
        connection.state().send_stream(id).write(&data(200_000)).unwrap();
        loop {
            connection.flush();
            let stats = connection.state().stats();
            if stats.udp_tx.bytes - before + u64::from(stats.path.current_mtu) >= stats.path.cwnd {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(connection);
        while server.begun.get() == 0 || server.endpoints[0].open() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn connections_stay_with_their_worker_when_the_address_changes() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 4, false);
        let relay = Relay::start(server.address, 0).await;
        let connection = client().connect(site.client(), relay.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        // The address may change once the handshake is confirmed (RFC 9000 §9).
        assert_eq!(exchange(&connection, b"x").await, b"x");
        for round in 0..20 {
            relay.rebind.set(true);
            assert!(exchange(&connection, &data(20_000)).await == data(20_000), "{round}");
        }
        assert_eq!((relay.rebound.get(), server.begun.get()), (20, 1));
        let open: Vec<_> = server.endpoints.iter().map(|endpoint| endpoint.open()).collect();
        assert_eq!(open.iter().sum::<usize>(), 1, "{open:?}");
    });
}

#[test]
fn datagrams_of_an_older_process_are_forwarded_to_it() {
    run(async {
        let site = Arc::new(Site::new());
        let old = Server::start(&site, 2, false);
        let path = Relay::start(old.address, 0).await;
        let first = client().connect(site.client(), path.address, "a.test").unwrap();
        first.connected().await.unwrap();
        assert_eq!(exchange(&first, b"x").await, b"x");
        let sockets = old.sockets.iter().map(|socket| socket.try_clone().unwrap()).collect();
        let (end, way) = relay().unwrap();
        let before = Predecessor::new(0, way.try_clone().unwrap());
        let group = Arc::new(Group::following(vec![Predecessor::new(0, way)]));
        let new = Server::with(&site, sockets, 1, Arc::clone(&group), false);
        let stopped = spawn_local(before.stopped());
        // Until the new process reads, the old one has all.
        let second = client().connect(site.client(), old.address, "a.test").unwrap();
        second.connected().await.unwrap();
        old.group.pause().await;
        let (keys, own) = (old.keys.clone(), Arc::clone(&old.group));
        spawn_local(async move { end.run(&keys, &own).await.unwrap() });
        stopped.await.unwrap();
        group.resume();
        let third = client().connect(site.client(), new.address, "a.test").unwrap();
        third.connected().await.unwrap();
        assert_eq!((old.begun.get(), new.begun.get()), (2, 1));
        for connection in [&first, &second, &third] {
            assert!(exchange(connection, &data(300_000)).await == data(300_000));
        }
        for round in 0..5 {
            path.rebind.set(true);
            assert!(exchange(&first, &data(20_000)).await == data(20_000), "{round}");
        }
        assert_eq!((path.rebound.get(), old.begun.get(), new.begun.get()), (5, 2, 1));
        // The new process ends: the old one reads the sockets again.
        drop((third, group));
        while new.endpoints.iter().any(|endpoint| endpoint.open() > 0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        new.endpoints.iter().for_each(|endpoint| endpoint.close());
        drop(new);
        assert!(exchange(&first, &data(20_000)).await == data(20_000));
    });
}

#[test]
fn a_client_of_a_server_that_has_lost_its_state_is_reset() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        // The next server has the same keys, and no connections.
        let next = Server::start(&site, 1, false);
        let relay = Relay::start(server.address, 0).await;
        let connection = client().connect(site.client(), relay.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        relay.server.set(next.address);
        let id = connection.state().streams().open(Dir::Bi).unwrap();
        connection.state().send_stream(id).write(&[0; 100]).unwrap();
        let error = connection.connected().await.unwrap_err();
        assert!(matches!(error, proto::ConnectionError::Reset), "{error}");
    });
}

#[test]
fn keys_are_updated() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        let connection = client().connect(site.client(), server.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        for length in [1, 100_000, 1, 100_000] {
            // The client may update them again once the server has confirmed the last update (RFC 9001 §6.5).
            connection.state().force_key_update();
            assert!(exchange(&connection, &data(length)).await == data(length), "{length}");
            assert!(exchange(&connection, &data(1000)).await == data(1000));
        }
    });
}

#[test]
fn padded_packets_are_received() {
    run(async {
        let site = Arc::new(Site::new());
        let server = Server::start(&site, 1, false);
        let mut config = site.client();
        let mut transport = proto::TransportConfig::default();
        transport.pad_to_mtu(true);
        config.transport_config(Arc::new(transport));
        let connection = client().connect(config, server.address, "a.test").unwrap();
        connection.connected().await.unwrap();
        // Zeros that are data stay.
        for length in [1, 500, 1100, 50_000] {
            assert_eq!(exchange(&connection, &vec![0; length]).await.len(), length);
        }
    });
}
