//! The parts of a connection below TLS and HTTP. Nothing here knows a request or the configuration.
//!
//! # Time
//! [`clock`] has the sources of time and the [`Clock`](clock::Clock) of a worker, a copy that costs no system call.
//! [`deadlines`] and [`timer`] wait for moments: a worker checks all deadlines together once a tick, for which it waits
//! by one timer of the kernel. [`watchdog`] measures the time without progress.
//!
//! # Connections
//! [`listener`] opens listening sockets and accepts connections. [`stream`] has the byte streams of connections: TCP,
//! Unix sockets, and memory for tests. [`address`] has the addresses of clients. [`connections`] is the table of one worker's connections with the deadline
//! of each; [`connection_limits`] has what workers share: the number of connections of each address, and which worker
//! closes a connection to make room for a new one. [`proxy_protocol`] reads the header that a proxy sends first.
//! [`sock_diag`] has what the kernel knows of a TCP connection.
//!
//! # Blocking work and the system
//! [`blocking`] has bounded thread pools. [`spawn`] starts programs, [`temp_files`] creates temporary files, and
//! [`log_limiter`] bounds the messages that clients can cause.
//!
//! # Contract
//! A worker is one thread with a runtime of its own. Types with interior mutability but without a lock ([`Clock`],
//! [`Connections`], [`Deadlines`]) belong to one worker; the others can be shared by threads. A worker calls
//! [`Clock::update`], [`Connections::scan`] and [`Deadlines::expire`] once per [`TICK`], and wakes what they return:
//!
//! ```
//! use std::rc::Rc;
//!
//! use dunlin_net::clock::{self, Clock};
//! use dunlin_net::connections::Connections;
//! use dunlin_net::deadlines::Deadlines;
//! use tokio::sync::Notify;
//!
//! fn tick(clock: &Clock, connections: &Connections, deadlines: &Deadlines) {
//!     clock.update();
//!     let scan = connections.scan(clock.now(), false);
//!     for waker in scan.expired.into_iter().chain(deadlines.expire(clock::now())) {
//!         waker.wake();
//!     }
//! }
//!
//! // The worker waits for this when it has neither connections nor deadlines.
//! let ticker = Rc::new(Notify::new());
//! tick(&Clock::new(), &Connections::default(), &Deadlines::new(ticker));
//! ```
//!
//! # Tests
//! The feature `testing` adds `clock::manual`, a clock that a test stops and advances, the streams of
//! [`stream::memory`], and pools that run work on the thread of the caller. It is not for servers: each reading of the
//! time then checks whether the test has stopped it.
//!
//! [`Clock`]: clock::Clock
//! [`Clock::update`]: clock::Clock::update
//! [`Connections`]: connections::Connections
//! [`Connections::scan`]: connections::Connections::scan
//! [`Deadlines`]: deadlines::Deadlines
//! [`Deadlines::expire`]: deadlines::Deadlines::expire
//! [`TICK`]: clock::TICK

pub mod address;
pub mod blocking;
pub mod clock;
pub mod connection_limits;
pub mod connections;
pub mod deadlines;
pub mod listener;
pub mod log_limiter;
pub mod proxy_protocol;
pub mod sock_diag;
pub mod spawn;
pub mod stream;
pub mod temp_files;
pub mod timer;
pub mod watchdog;
