//! What is done with a finished exchange: access log, reverse DNS.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub enum Format { Combined }
impl Format { pub fn parse(_: &str) -> Result<Self, String> { Ok(Self::Combined) } }
pub struct AccessLog;
impl AccessLog {
    pub fn open(_: &Path, _: Format) -> io::Result<Arc<Self>> { Ok(Arc::new(Self)) }
    pub fn reopen(&self) {}
    pub fn close(&self, _: Duration) {}
}
pub struct LoopLog;
impl LoopLog { pub fn new(_: &Arc<AccessLog>) -> Self { Self } pub fn record(&mut self, _: &Exchange<'_>) {} pub fn flush(&mut self) {} }
pub struct Exchange<'a> { pub peer: IpAddr, pub peer_name: Option<&'a str>, pub user: Option<&'a [u8]>, pub started_secs: u64, pub started_nanos: u32, pub duration_ns: u64, pub method: &'a [u8], pub target: &'a [u8], pub version: &'static str, pub status: u16, pub body_bytes: u64, pub referer: Option<&'a [u8]>, pub user_agent: Option<&'a [u8]>, pub host: Option<&'a [u8]>, pub site: &'a str, pub cache: &'static str, pub coding: &'static str, pub connection: u64 }
pub struct ReverseDnsSettings { pub resolver: Option<std::net::SocketAddr>, pub timeout: Duration, pub entries: usize, pub ttl: Duration, pub concurrent: usize }
pub struct ReverseDns;
impl ReverseDns { pub fn new(_: ReverseDnsSettings) -> io::Result<Arc<Self>> { Ok(Arc::new(Self)) } pub fn name(&self, _: IpAddr) -> Option<Arc<str>> { None } }
