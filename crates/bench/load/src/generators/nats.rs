//! Generators that meet their coordinator at a NATS server, where no machine can reach the other.
//!
//! Generators publish to `dunlin.load.NAME.up.ID` and the coordinator to `dunlin.load.NAME.down.ID`, where ID is chosen by the
//! generator. A message has a part of a line each, since NATS bounds their length.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use percent_encoding::percent_decode_str;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use url::Url;

use super::generator::{self, COORDINATOR};
use super::link::{Arrived, Event, Link, encode, report};
use super::protocol::{MAX_MESSAGE, ToGenerator};

/// A meeting point: `nats://USER:PASSWORD@HOST:PORT/NAME`, or `tls://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Address of the server.
    server: String,
    /// Name and password of the user, if there is one.
    user: Option<(String, String)>,
    /// Name of the run.
    name: String,
}

/// Timeout of connecting.
const CONNECTING: Duration = Duration::from_secs(10);
/// Interval in which a generator repeats its first message until the coordinator responds.
const REPEAT: Duration = Duration::from_secs(1);
/// Longest part of a line in a message, in bytes. Servers permit 1 MiB by default.
const PART: usize = 256 * 1024;
/// First byte of a message with a part of a line that is not the last one, or is.
const MORE: u8 = b'+';
const LAST: u8 = b'.';

impl Meeting {
    /// Parses the URL of a meeting point.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: is not a URL such as nats://HOST:4222/NAME");
        let mut url = Url::parse(text).map_err(|_| wrong())?;
        let name = url.path().trim_matches('/').to_owned();
        let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !matches!(url.scheme(), "nats" | "tls") || name.is_empty() || !name.chars().all(is_sound)
        {
            return Err(wrong());
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        url.set_path("");
        // These fail for URLs without a host only, which have no user.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        let user = (!user.0.is_empty()).then_some(user);
        Ok(Self { server: url.to_string(), user, name })
    }

    /// Waits for `count` generators. Their events get the numbers from 0, in the order in which they come.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn coordinate(
        &self,
        count: usize,
        events: &Sender<Arrived>,
    ) -> Result<Vec<Box<dyn Link>>, String> {
        let (runtime, client) = self.connect()?;
        let up = runtime.block_on(self.subscribe(&client, "up.*"))?;
        let (lines, to_send) = unbounded_channel();
        let down = format!("dunlin.load.{}.down", self.name);
        let mut point = Point {
            client,
            down,
            links: (0..count).map(|_| Peer::default()).collect(),
            known: HashMap::new(),
            events: events.clone(),
        };
        let thread = thread::spawn(move || runtime.block_on(point.run(up, to_send)));
        let pump = Arc::new(Pump { lines: Some(lines), thread: Some(thread) });
        let link = |index| Box::new(Numbered { index, pump: Arc::clone(&pump) }) as Box<dyn Link>;
        Ok((0..count).map(link).collect())
    }

    /// Serves the coordinator of the run as a generator.
    ///
    /// # Errors
    /// The server cannot be reached, the link broke, or the coordinator rejects this generator.
    pub fn join(&self) -> Result<(), String> {
        let (runtime, client) = self.connect()?;
        let id = id()?;
        let down = runtime.block_on(self.subscribe(&client, &format!("down.{id}")))?;
        let up = format!("dunlin.load.{}.up.{id}", self.name);
        let (events, arrived) = mpsc::channel();
        let (lines, to_send) = unbounded_channel();
        let own = events.clone();
        let serve = move || runtime.block_on(serve(&client, up, down, to_send, &own));
        let pump = Pump { lines: Some(lines), thread: Some(thread::spawn(serve)) };
        let link = Box::new(Numbered { index: COORDINATOR, pump: Arc::new(pump) });
        generator::run(link, &arrived, &events)
    }

    fn connect(&self) -> Result<(Runtime, Client), String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let mut options = ConnectOptions::new().name("dunlin load").connection_timeout(CONNECTING);
        if let Some((user, password)) = &self.user {
            options = options.user_and_password(user.clone(), password.clone());
        }
        let connected = runtime.block_on(options.connect(self.server.as_str()));
        let client = connected.map_err(|error| format!("{}: {error}", self.server))?;
        Ok((runtime, client))
    }

    async fn subscribe(&self, client: &Client, subject: &str) -> Result<Subscriber, String> {
        let subject = format!("dunlin.load.{}.{subject}", self.name);
        let subscriber = client.subscribe(subject).await.map_err(|error| error.to_string())?;
        // The subscription is in force before the other end can learn of it.
        client.flush().await.map_err(|error| error.to_string())?;
        Ok(subscriber)
    }
}

/// A link that shares its thread with others.
struct Numbered {
    index: usize,
    pump: Arc<Pump>,
}

/// The thread that moves the messages of links.
struct Pump {
    lines: Option<UnboundedSender<(usize, String)>>,
    thread: Option<JoinHandle<()>>,
}

impl Link for Numbered {
    fn send(&mut self, line: String) {
        if let Some(lines) = &self.pump.lines {
            // The other end of the link has ended with its thread, which reports it.
            let _ = lines.send((self.index, line));
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // Without a sender, the thread ends once the last message is sent.
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

/// The coordinator's end of all links.
struct Point {
    client: Client,
    /// Beginning of the subjects of generators.
    down: String,
    links: Vec<Peer>,
    /// Numbers of the links by the id of their generator.
    known: HashMap<String, usize>,
    events: Sender<Arrived>,
}

/// A generator at the other end of a link.
#[derive(Default)]
struct Peer {
    /// The id of the generator; `None` until it comes.
    id: Option<String>,
    line: Vec<u8>,
}

impl Point {
    /// Moves messages until all links are dropped.
    async fn run(&mut self, mut up: Subscriber, mut to_send: UnboundedReceiver<(usize, String)>) {
        loop {
            tokio::select! {
                message = up.next() => {
                    let Some(message) = message else { return self.close() };
                    let id = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
                    self.receive(&id, &message.payload).await;
                }
                line = to_send.recv() => {
                    let Some((index, line)) = line else { break };
                    let Some(id) = self.links.get(index).and_then(|peer| peer.id.as_ref()) else {
                        continue;
                    };
                    publish(&self.client, &format!("{}.{id}", self.down), &line).await;
                }
            }
        }
        // Without a server, there is no one to send the last messages to.
        let _ = tokio::time::timeout(CONNECTING, self.client.flush()).await;
    }

    async fn receive(&mut self, id: &str, payload: &[u8]) {
        let free = self.links.iter().position(|peer| peer.id.is_none());
        let index = match (self.known.get(id), free) {
            (Some(index), _) => *index,
            (None, Some(free)) => {
                self.known.insert(id.to_owned(), free);
                self.links[free].id = Some(id.to_owned());
                free
            }
            (None, None) => {
                let reason = "the run has all its generators".to_owned();
                let line = encode(&ToGenerator::Bye { reason });
                return publish(&self.client, &format!("{}.{id}", self.down), &line).await;
            }
        };
        if let Some(event) = append(&mut self.links[index].line, payload) {
            report(&self.events, index, event);
        }
    }

    fn close(&self) {
        for index in 0..self.links.len() {
            report(&self.events, index, Event::Closed("the connection to NATS has ended".into()));
        }
    }
}

/// Moves messages between a generator and its coordinator until the generator ends.
async fn serve(
    client: &Client,
    up: String,
    mut down: Subscriber,
    mut to_send: UnboundedReceiver<(usize, String)>,
    events: &Sender<Arrived>,
) {
    let mut hello: Option<String> = None;
    let mut is_known = false;
    let mut line = Vec::new();
    let mut repeat = tokio::time::interval(REPEAT);
    loop {
        tokio::select! {
            message = down.next() => {
                is_known = true;
                let event = match message {
                    Some(message) => append(&mut line, &message.payload),
                    None => Some(Event::Closed("the connection to NATS has ended".into())),
                };
                let closed = matches!(event, Some(Event::Closed(_)));
                if let Some(event) = event {
                    report(events, COORDINATOR, event);
                }
                if closed {
                    return;
                }
            }
            line = to_send.recv() => {
                let Some((_, line)) = line else { break };
                publish(client, &up, &line).await;
                hello.get_or_insert(line);
            }
            _ = repeat.tick(), if !is_known => {
                if let Some(hello) = &hello {
                    publish(client, &up, hello).await;
                }
            }
        }
    }
    // Without a server, there is no one to send the last messages to.
    let _ = tokio::time::timeout(CONNECTING, client.flush()).await;
}

/// Publishes a line in parts.
async fn publish(client: &Client, subject: &str, line: &str) {
    let count = line.len().div_ceil(PART);
    for (number, part) in line.as_bytes().chunks(PART).enumerate() {
        let mut payload = vec![if number + 1 == count { LAST } else { MORE }];
        payload.extend_from_slice(part);
        // The client reconnects by itself. What is lost shows as silence.
        let _ = client.publish(subject.to_owned(), Bytes::from(payload)).await;
    }
}

/// Adds a part of a line. Returns the line when it is complete.
fn append(line: &mut Vec<u8>, payload: &[u8]) -> Option<Event> {
    let (kind, part) = payload.split_first()?;
    line.extend_from_slice(part);
    if line.len() > MAX_MESSAGE {
        return Some(Event::Closed("a message is too long".to_owned()));
    }
    if *kind == MORE {
        return None;
    }
    Some(Event::Line(String::from_utf8_lossy(&std::mem::take(line)).into_owned()))
}

/// Returns an id that no other generator has.
fn id() -> Result<String, String> {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    random
        .map(|id| id.trim().to_owned())
        .map_err(|error| format!("/proc/sys/kernel/random/uuid: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, password: &str) -> Option<(String, String)> {
        Some((name.to_owned(), password.to_owned()))
    }

    #[test]
    fn meeting_points_have_a_server_and_a_name() {
        let meeting = Meeting::parse("nats://user:s%40crets@example.test:4222/run-1").unwrap();
        assert_eq!((meeting.name.as_str(), meeting.user), ("run-1", user("user", "s@crets")));
        assert_eq!(meeting.server, "nats://example.test:4222");
        assert_eq!(Meeting::parse("tls://example.test/run").unwrap().user, None);
        for wrong in ["nats://host", "http://host/run", "nats://host/a.b", "nats://host/*", "run"] {
            assert!(Meeting::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_of_any_length_arrive_whole() {
        let mut line = Vec::new();
        assert!(append(&mut line, b"+{\"a\"").is_none());
        let Some(Event::Line(whole)) = append(&mut line, b".:1}") else { panic!("no line") };
        assert_eq!((whole.as_str(), line.len()), ("{\"a\":1}", 0));
    }
}
