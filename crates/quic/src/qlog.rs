//! Records of connections in the format qlog: JSON text sequences (RFC 7464) of datagrams, losses and the state of the path.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dunlin_net::clock;
use quinn_proto::{Connection, ConnectionStats};

/// A directory of records. Their number and their sizes are bounded.
#[derive(Debug)]
pub struct QlogDirectory {
    path: PathBuf,
    begun: AtomicUsize,
}

/// Connections that are recorded.
const MAX_FILES: usize = 100;
/// Bytes of a record.
const MAX_BYTES: usize = 10_000_000;
/// Bytes that are written at a time.
const CHUNK: usize = 32 * 1024;

impl QlogDirectory {
    /// Creates the directory if there is none.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self { path, begun: AtomicUsize::new(0) })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Begins the record of a connection; `None` if there are enough, or if the file cannot be created.
    pub(crate) fn begin(&self, remote: SocketAddr) -> Option<Box<Qlog>> {
        if self.begun.load(Ordering::Relaxed) >= MAX_FILES {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if number >= MAX_FILES {
            return None;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let name = format!("{time}-{number}-{}-{}.sqlog", remote.ip(), remote.port());
        let path = self.path.join(name);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!("http3: qlog {}: {error}", path.display());
                return None;
            }
        };
        let mut qlog = Qlog {
            record: Record::new(file),
            begun: clock::now(),
            recorded: clock::now(),
            last: ConnectionStats::default(),
        };
        qlog.write(format_args!(
            "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"title\":\"dunlin\",\"trace\":{{\
             \"vantage_point\":{{\"type\":\"server\"}},\"common_fields\":{{\"time_format\":\"relative\",\
             \"reference_time\":{time},\"protocol_type\":[\"QUIC\",\"HTTP3\"]}}}}}}"
        ));
        let (ip, port) = (remote.ip(), remote.port());
        qlog.event(
            clock::now(),
            "connectivity:connection_started",
            format_args!("\"src_ip\":\"{ip}\",\"src_port\":{port}"),
        );
        Some(Box::new(qlog))
    }
}

/// The record of a connection.
#[derive(Debug)]
pub(crate) struct Qlog {
    record: Record<File>,
    begun: Instant,
    /// The time of the last event. Events are in order, although some are recorded after others that began later.
    recorded: Instant,
    /// The statistics of the last event of each kind.
    last: ConnectionStats,
}

impl Qlog {
    fn write(&mut self, text: fmt::Arguments<'_>) {
        // A disk that is full ends the record, not the connection.
        let _ = self.record.write_all(format!("\u{1e}{text}\n").as_bytes());
    }

    fn event(&mut self, now: Instant, name: &str, data: fmt::Arguments<'_>) {
        self.recorded = self.recorded.max(now);
        let time = self.recorded.saturating_duration_since(self.begun).as_secs_f64() * 1e3;
        self.write(format_args!("{{\"time\":{time:.3},\"name\":\"{name}\",\"data\":{{{data}}}}}"));
    }

    pub(crate) fn received(&mut self, now: Instant, length: usize) {
        let name = "transport:datagrams_received";
        self.event(now, name, format_args!("\"count\":1,\"raw\":[{{\"length\":{length}}}]"));
    }

    /// Datagrams of `segment` bytes, but for the last.
    pub(crate) fn sent(&mut self, now: Instant, length: usize, segment: Option<usize>) {
        let segment = segment.unwrap_or(length).max(1);
        let lengths = (0..length).step_by(segment).map(|at| segment.min(length - at));
        let raw: Vec<_> = lengths.map(|length| format!("{{\"length\":{length}}}")).collect();
        let (count, raw) = (raw.len(), raw.join(","));
        let data = format_args!("\"count\":{count},\"raw\":[{raw}]");
        self.event(now, "transport:datagrams_sent", data);
    }

    /// Records what has changed of the path and of losses.
    pub(crate) fn update(&mut self, now: Instant, connection: &Connection) {
        let stats = connection.stats();
        let (path, last) = (stats.path, std::mem::replace(&mut self.last, stats).path);
        let lost = path.lost_packets - last.lost_packets;
        if lost > 0 {
            let bytes = path.lost_bytes - last.lost_bytes;
            let data = format_args!("\"count\":{lost},\"bytes\":{bytes}");
            self.event(now, "recovery:packets_lost", data);
        }
        if path.current_mtu != last.current_mtu {
            let (old, new) = (last.current_mtu, path.current_mtu);
            let data = format_args!("\"old\":{old},\"new\":{new}");
            self.event(now, "connectivity:mtu_updated", data);
        }
        if (path.rtt, path.cwnd) != (last.rtt, last.cwnd) {
            let (rtt, least) = (path.rtt.as_secs_f64() * 1e3, path.min_rtt.as_secs_f64() * 1e3);
            let (window, events) = (path.cwnd, path.congestion_events);
            self.event(
                now,
                "recovery:metrics_updated",
                format_args!(
                    "\"smoothed_rtt\":{rtt:.3},\"min_rtt\":{least:.3},\"congestion_window\":{window},\
                     \"congestion_events\":{events}"
                ),
            );
        }
    }
}

/// A file of whole events, up to a number of bytes.
struct Record<W: Write> {
    out: W,
    buffer: Vec<u8>,
    /// Where the event begins that is not complete.
    event: usize,
    /// Bytes that may still be written.
    left: usize,
}

impl<W: Write> Record<W> {
    fn new(out: W) -> Self {
        Self { out, buffer: Vec::new(), event: 0, left: MAX_BYTES }
    }

    fn pass(&mut self) -> io::Result<()> {
        let result = self.out.write_all(&self.buffer[..self.event]);
        self.buffer.drain(..self.event);
        self.event = 0;
        result
    }
}

impl<W: Write> fmt::Debug for Record<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<W: Write> Write for Record<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(bytes.len());
        }
        self.buffer.extend_from_slice(bytes);
        if !bytes.ends_with(b"\n") {
            return Ok(bytes.len());
        }
        let event = self.buffer.len() - self.event;
        match self.left.checked_sub(event) {
            Some(left) => {
                self.left = left;
                self.event = self.buffer.len();
                if self.event >= CHUNK {
                    self.pass()?;
                }
            }
            None => {
                self.left = 0;
                self.pass()?;
                self.buffer = Vec::new();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass()?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Record<W> {
    fn drop(&mut self) {
        // The events are those of a connection that has ended; a failure has no consequence.
        let _ = self.pass();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_bounded_and_has_whole_events() {
        let mut out = Vec::new();
        let event = [&[b'x'; 999][..], b"\n"].concat();
        {
            let mut record = Record::new(&mut out);
            for _ in 0..MAX_BYTES / 1000 + 500 {
                // In two parts, as the encoder writes them.
                record.write_all(&event[..10]).unwrap();
                record.write_all(&event[10..]).unwrap();
                assert!(record.buffer.len() <= CHUNK + 1000);
            }
        }
        assert_eq!(out.len(), MAX_BYTES);
        assert!(out.chunks(1000).all(|part| part == event));
    }

    #[test]
    fn the_number_of_records_is_bounded() {
        let directory = std::env::temp_dir().join(format!("qlog-{}", std::process::id()));
        let records = QlogDirectory::new(directory.clone()).unwrap();
        let begun = (0..MAX_FILES + 20)
            .filter_map(|number| records.begin(([127, 0, 0, 1], number as u16).into()))
            .count();
        assert_eq!(begun, MAX_FILES);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), MAX_FILES);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
