//! The control protocol: one JSON document per line, in both directions.
//!
//! The generator begins with `hello`. The coordinator measures the offset of its clock (`ping`, `pong`), then has it run any
//! number of plans: `prepare`, `prepared`, `start`, `progress`, `done`.

use serde::{Deserialize, Serialize};

use crate::engine::{Conformance, Extras};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::progress::Snapshot;
use crate::verify::Reference;

/// Version of the protocol. Both ends must have the same.
pub const PROTOCOL: u32 = 1;
/// Time in seconds without a message after which the other end is taken for dead.
pub const SILENCE_SECONDS: u64 = 10;
/// Longest message in bytes. Plans contain the requests of a replay.
pub const MAX_MESSAGE: usize = 256 << 20;

/// A message of a generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGenerator {
    /// The first message.
    Hello(Hello),
    /// Response to a ping, at once.
    Pong {
        /// The number of the ping.
        number: u64,
        /// The generator's clock, in nanoseconds.
        clock: u64,
    },
    /// The plan can be run.
    Prepared,
    /// The plan cannot be run, or the run has failed.
    Failed {
        /// The reason, for a user.
        reason: String,
    },
    /// Counts of the run so far, several times a second.
    Progress(Snapshot),
    /// The run has ended.
    Done(Box<Done>),
}

/// The first message of a generator. Later versions of the protocol keep these fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the machine.
    pub name: String,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Done {
    /// The outcome.
    pub outcome: Outcome,
    /// With a modem pace: connections that were served at that pace.
    pub conformance: Conformance,
    /// The start of the load by the generator's clock, in nanoseconds.
    pub began: u64,
}

/// A message of the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGenerator {
    /// To be responded to at once.
    Ping {
        /// Repeated in the response.
        number: u64,
    },
    /// The next plan to run.
    Prepare(Box<Task>),
    /// Begins to run the plan.
    Start {
        /// The agreed instant by the generator's clock, in nanoseconds.
        at: u64,
    },
    /// Ends the run early.
    Stop,
    /// There is no other run.
    Bye {
        /// The reason why the generator is not used; empty if it was.
        reason: String,
    },
}

/// Everything that a generator needs for a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The plan, with the segment of the generator.
    pub plan: Plan,
    /// Inputs that are not part of the plan.
    pub extras: Extras,
    /// The expected bodies.
    pub reference: Reference,
    /// The user has permitted a target that is not the generator's machine.
    pub permitted: bool,
}

impl Hello {
    /// That of this program.
    #[must_use]
    pub fn own() -> Self {
        let uname = rustix::system::uname();
        Self {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: uname.nodename().to_string_lossy().into_owned(),
        }
    }

    /// Checks that this program understands the other.
    ///
    /// # Errors
    /// The versions differ.
    pub fn check(&self) -> Result<(), String> {
        let own = Self::own();
        if (self.protocol, &self.version) == (own.protocol, &own.version) {
            return Ok(());
        }
        Err(format!(
            "its dunlin has version {} (protocol {}), this one {} (protocol {}); install the same version there, or send this one with --copy",
            self.version, self.protocol, own.version, own.protocol
        ))
    }
}
