//! One message to a name server, and the response to it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How often a message is sent by UDP.
const ATTEMPTS: u32 = 2;
/// Maximum wait for a response by UDP.
const WAIT: Duration = Duration::from_secs(2);
/// Maximum wait for a response by TCP.
const WAIT_TCP: Duration = Duration::from_secs(5);

/// A response as it was received, and what it means.
pub(crate) struct Response {
    pub(crate) bytes: Vec<u8>,
    pub(crate) message: Message,
}

/// Sends a message by UDP, and by TCP if the response is too long for UDP or if there is none.
///
/// # Errors
/// The server has not responded, or its response cannot be read: a sentence that names the server.
pub(crate) async fn exchange(server: SocketAddr, message: &Message) -> Result<Response, String> {
    let failed = |what: &dyn std::fmt::Display| format!("name server {server}: {what}");
    let bytes = message.to_vec().map_err(|error| failed(&error))?;
    for _ in 0..ATTEMPTS {
        match timeout(WAIT, by_udp(server, message, &bytes)).await {
            Ok(Ok(response)) if response.message.truncation => break,
            Ok(Ok(response)) => return Ok(response),
            // It listens for TCP alone, or a network on the way does not forward UDP.
            Ok(Err(_)) => break,
            Err(_) => {}
        }
    }
    match timeout(WAIT_TCP, by_tcp(server, message, &bytes)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&"it has not responded")),
    }
}

async fn by_udp(server: SocketAddr, sent: &Message, bytes: &[u8]) -> io::Result<Response> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Another sender may guess the port.
        if let Some(response) = response(sent, &buffer[..length]) {
            return Ok(response);
        }
    }
}

async fn by_tcp(server: SocketAddr, sent: &Message, bytes: &[u8]) -> io::Result<Response> {
    let mut stream = TcpStream::connect(server).await?;
    // A message of this program has a few hundred bytes.
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let mut received = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut received).await?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "its response cannot be read");
    response(sent, &received).ok_or_else(invalid)
}

/// Returns the response to the message, if the bytes are one.
fn response(sent: &Message, bytes: &[u8]) -> Option<Response> {
    let message = Message::from_vec(bytes).ok()?;
    let is_response = message.id == sent.id
        && message.message_type == MessageType::Response
        && message.op_code == sent.op_code
        // A server that rejects a message may leave its first section out.
        && (message.queries.is_empty() || message.queries == sent.queries);
    is_response.then(|| Response { bytes: bytes.to_vec(), message })
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{OpCode, Query};
    use hickory_proto::rr::{Name, RecordType};
    use tokio::net::TcpListener;

    use super::*;

    fn query() -> Message {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii("a.example.").unwrap(), RecordType::TXT));
        message
    }

    fn response_to(query: &Message) -> Message {
        let mut message = Message::response(query.id, OpCode::Query);
        message.add_queries(query.queries.clone());
        message
    }

    #[test]
    fn only_the_response_to_the_message_is_taken() {
        let sent = query();
        let is_taken = |message: &Message| response(&sent, &message.to_vec().unwrap()).is_some();
        assert!(is_taken(&response_to(&sent)));
        assert!(!is_taken(&sent), "it is no response");
        let mut other = response_to(&sent);
        other.metadata.id = !sent.id;
        assert!(!is_taken(&other), "it has another ID");
        let mut other = response_to(&sent);
        other.queries.clear();
        assert!(is_taken(&other));
        other.add_query(Query::query(Name::from_ascii("b.example.").unwrap(), RecordType::TXT));
        assert!(!is_taken(&other), "it is for another name");
        assert!(response(&sent, b"short").is_none());
    }

    #[tokio::test]
    async fn a_truncated_response_is_requested_by_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let datagrams = UdpSocket::bind(server).await.unwrap();
        let serve = async {
            let mut buffer = [0; 512];
            let (length, client) = datagrams.recv_from(&mut buffer).await.unwrap();
            let received = Message::from_vec(&buffer[..length]).unwrap();
            let mut short = response_to(&received);
            short.metadata.truncation = true;
            datagrams.send_to(&short.to_vec().unwrap(), client).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sent = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut sent).await.unwrap();
            let whole = response_to(&Message::from_vec(&sent).unwrap()).to_vec().unwrap();
            stream.write_u16(whole.len() as u16).await.unwrap();
            stream.write_all(&whole).await.unwrap();
        };
        let sent = query();
        let (received, ()) = tokio::join!(exchange(server, &sent), serve);
        assert!(!received.unwrap().message.truncation);
    }

    #[tokio::test]
    async fn a_server_that_sends_nothing_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        drop(listener);
        let error = exchange(server, &query()).await.err().unwrap();
        assert!(error.starts_with(&format!("name server {server}: ")), "{error}");
    }
}
