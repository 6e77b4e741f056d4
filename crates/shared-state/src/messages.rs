//! Messages to all servers: a stream in the store, which each server reads on. A server that was not connected for a while gets
//! what it has missed.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::streams::{StreamId, StreamRangeReply, StreamReadReply};
use redis::{Script, cmd};

use crate::connection::Store;
use crate::error::StoreError;

/// The position of a message in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    millis: u64,
    number: u64,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The position of the message in the stream.
    pub position: Position,
    /// The server that sent it.
    pub from: String,
    /// The kind of the message.
    pub kind: String,
    /// The content of the message.
    pub content: String,
}

/// The messages of the stream that a server has not read, and the state of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    /// The messages since the last position, in their order.
    pub messages: Vec<Message>,
    /// Some may have been dropped before this server has read them.
    pub has_gap: bool,
    /// There were no more of them.
    pub is_complete: bool,
}

/// Approximate number of messages that the stream keeps.
const KEPT: usize = 10_000;
/// Number of messages in one reply, which has a bound in bytes, too.
const BATCH: usize = 100;
/// The longest content of a message, in bytes.
const MAX_CONTENT: usize = 128 << 10;

const NOTE: &str = r"
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], 86400000)
return 1
";

impl Position {
    /// Returns the position of a message that was sent that long before this one.
    pub fn before(self, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { millis: self.millis.saturating_sub(millis), number: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.number)
    }
}

impl FromStr for Position {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let parse = || {
            let (millis, number) = text.split_once('-')?;
            Some(Self { millis: millis.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or_else(|| StoreError::new(format!("{text:?} is not a position in a stream")))
    }
}

impl Store {
    /// Returns `true` if a message can have this content. It could not be read otherwise.
    pub fn can_send(content: &str) -> bool {
        content.len() <= MAX_CONTENT
    }

    /// Sends a message to all servers, including this one. Returns its position.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn send(&mut self, from: &str, kind: &str, content: &str) -> Result<Position, StoreError> {
        let key = self.key("messages");
        let mut command = cmd("XADD");
        command.arg(key).arg("MAXLEN").arg("~").arg(KEPT).arg("*");
        command.arg("from").arg(from).arg("kind").arg(kind).arg("content").arg(content);
        command.query::<String>(&mut *self.connection)?.parse()
    }

    /// Returns the position of the last message.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn last_position(&mut self) -> Result<Position, StoreError> {
        let last: StreamRangeReply = cmd("XREVRANGE")
            .arg(self.key("messages"))
            .arg("+")
            .arg("-")
            .arg("COUNT")
            .arg(1)
            .query(&mut *self.connection)?;
        last.ids.first().map_or_else(|| Ok(Position::default()), |entry| entry.id.parse())
    }

    /// Reads the first messages after `after`. With `checks_gap`, also whether some before them were dropped unread.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn receive(&mut self, after: Position, checks_gap: bool) -> Result<Received, StoreError> {
        let key = self.key("messages");
        let mut has_gap = false;
        if checks_gap && after != Position::default() {
            let first: StreamRangeReply = cmd("XRANGE")
                .arg(&key)
                .arg("-")
                .arg("+")
                .arg("COUNT")
                .arg(1)
                .query(&mut *self.connection)?;
            has_gap = match first.ids.first() {
                Some(entry) => entry.id.parse::<Position>()? > after,
                None => false,
            };
        }
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(BATCH).arg("STREAMS").arg(&key).arg(after.to_string());
        let reply: Option<StreamReadReply> = command.query(&mut *self.connection)?;
        let entries = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids);
        let messages = entries.map(|entry| message(&entry)).collect::<Result<Vec<_>, _>>()?;
        let is_complete = messages.len() < BATCH;
        Ok(Received { messages, has_gap, is_complete })
    }

    /// Notes that the server with this ID has received all messages up to `position`.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn note_received(&mut self, server: &str, position: Position) -> Result<(), StoreError> {
        let script = Script::new(NOTE);
        let mut call = script.key(self.key("seen"));
        call.arg(server).arg(position.to_string());
        self.invoke::<i64>(&call).map(drop)
    }

    /// Returns how many of the servers that are there have received the message at `position`, and how many there are.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn received_by(&mut self, position: Position) -> Result<(usize, usize), StoreError> {
        let servers = self.servers()?;
        let key = self.key("seen");
        let seen: HashMap<String, String> = cmd("HGETALL").arg(key).query(&mut *self.connection)?;
        let has = |server: &&String| {
            seen.get(*server)
                .and_then(|text| text.parse().ok())
                .is_some_and(|at: Position| at >= position)
        };
        Ok((servers.iter().filter(has).count(), servers.len()))
    }
}

fn message(entry: &StreamId) -> Result<Message, StoreError> {
    let field = |name: &str| entry.get::<String>(name).unwrap_or_default();
    Ok(Message {
        position: entry.id.parse()?,
        from: field("from"),
        kind: field("kind"),
        content: field("content"),
    })
}
