//! WebSocket (RFC 6455), server side: bytes in, events out.
//!
//! [`handshake`] has the fields by which client and server agree on it. A [`Receiver`] reads the frames of the client:
//! feed it what arrives, at any split. Messages pass through it in parts, so that it holds none of them. [`frame`] writes
//! the frames of the server. Extensions are not supported: reserved bits break the protocol.
//!
//! ```
//! use dunlin_http::websocket::{Receiver, WebSocketEvent, frame};
//!
//! let mut receiver = Receiver::new(1 << 20);
//! // "Hello", masked, as RFC 6455 §5.7 shows it.
//! let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
//! let mut at = 0;
//! let event = receiver.next(&mut input, &mut at)?;
//! assert_eq!(event, WebSocketEvent::Data { data: 6..11, is_text: true, is_end: true });
//! assert_eq!(&input[6..11], b"Hello");
//! assert_eq!(receiver.next(&mut input, &mut at)?, WebSocketEvent::More);
//!
//! let mut output = Vec::new();
//! frame::write(frame::opcode::TEXT, b"Hello", &mut output);
//! assert_eq!(output, b"\x81\x05Hello");
//! # Ok::<(), dunlin_http::websocket::Violation>(())
//! ```

pub mod frame;
pub mod handshake;
mod receiver;
mod utf8;

pub use receiver::{Receiver, Violation, WebSocketEvent};
