//! Gates: what stands between a route and its handler. Each lets a request pass, refuses it, or has
//! it wait.

mod access;
mod auth;
mod bandwidth;
mod concurrency;
mod https;
mod keyed;
mod methods;
mod network;
mod pass;
pub(crate) mod rate;
mod throttle;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::{FieldLines, Request};

pub(crate) use self::access::Access;
pub(crate) use self::auth::{Attempts, UserFile};
pub(crate) use self::auth::{Auth, Basic, Forward, Target, examine};
pub(crate) use self::bandwidth::{
    Bandwidth, BandwidthCounts, BandwidthRules, ConnectionPace, Pacer,
};
pub(crate) use self::concurrency::{Concurrency, ConcurrencyCounts, ConcurrencyRules};
pub(crate) use self::https::Https;
pub(crate) use self::methods::Methods;
pub(crate) use self::network::Network;
pub(crate) use self::pass::{Client, Pass};
pub(crate) use self::rate::{By, RateCounts, RateLimit, RateRules};
pub(crate) use self::throttle::{Limited, RouteCounts, Share, Throttle};
use crate::event_loop::Loop;
use crate::response::Response;

/// The gates of a route, each absent when the route does not ask for it.
#[derive(Debug, Default)]
pub struct Gates {
    pub(crate) https: Option<Https>,
    pub(crate) access: Option<Access>,
    pub(crate) methods: Option<Methods>,
    pub(crate) auth: Option<Auth>,
    pub(crate) limits: Vec<Arc<RateLimit>>,
    pub(crate) throttle: Option<Arc<Throttle>>,
}

/// The gates in the order in which they are asked.
const ORDER: [fn(&Gates, &Asker<'_, '_>) -> Verdict; 7] = [
    // Nothing is asked of a client in the clear that is to come by TLS.
    |gates, asker| gates.https.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)),
    |gates, asker| gates.access.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)),
    |gates, asker| gates.methods.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)),
    |gates, asker| gates.auth.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)),
    |gates, asker| rate::ask(&gates.limits, asker),
    |gates, asker| gates.throttle.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)),
    |gates, asker| gates.throttle.as_ref().map_or(Verdict::Pass, |gate| gate.ask_bandwidth(asker)),
];

/// A request that asks to pass.
pub(crate) struct Asker<'a, 'r> {
    pub(crate) ctx: &'a Rc<Loop>,
    pub(crate) request: &'a Request<'r>,
    pub(crate) pass: &'a Rc<Pass>,
    /// When it asks: the clock is read once for all gates.
    pub(crate) now: Instant,
    /// Bytes of the answer's body, if that is there and leaves before anything else is asked.
    pub(crate) at_once: Option<u64>,
}

/// What a gate says.
pub(crate) enum Verdict {
    Pass,
    Refuse(Refused),
    Wait(Waiting),
}

/// What comes of waiting.
pub(crate) type Waiting = Pin<Box<dyn Future<Output = Result<(), Refused>>>>;

/// An answer instead of the handler's.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    /// What the answer has besides.
    pub(crate) fields: FieldLines,
    /// The answer itself, when it is not the route's for that status.
    pub(crate) response: Option<Box<Response>>,
}

impl Refused {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, fields: FieldLines::default(), response: None }
    }

    /// With a further response field.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value);
        self
    }
}

impl Gates {
    /// Whether there is nothing to ask for.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { https, access, methods, auth, limits, throttle } = self;
        let limited = throttle.is_some() || !limits.is_empty();
        https.is_none() && access.is_none() && methods.is_none() && auth.is_none() && !limited
    }

    /// Asks only those gates that ask for who comes, and count nothing.
    pub(crate) fn ask_who(&self, asker: &Asker<'_, '_>) -> Verdict {
        match self.access.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)) {
            Verdict::Pass => self.auth.as_ref().map_or(Verdict::Pass, |gate| gate.ask(asker)),
            verdict => verdict,
        }
    }

    /// What is asked for, by the key of the configuration.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let access = self.access.iter().flat_map(Access::describe);
        let methods = self.methods.iter().map(|gate| ("methods", gate.allow().to_owned()));
        let auth = self.auth.iter().map(|gate| ("auth", gate.describe()));
        let limits: Vec<_> = self.limits.iter().map(|limit| limit.rules().to_string()).collect();
        let limits = (!limits.is_empty()).then(|| ("limit", limits.join(", ")));
        let throttle = self.throttle.iter().map(|gate| ("throttle", gate.to_string()));
        let https = self.https.iter().flat_map(Https::describe);
        https.chain(access).chain(methods).chain(auth).chain(limits).chain(throttle).collect()
    }

    /// Asks the gates from the one with that number on. When one has the request wait, its number
    /// comes with it: those behind it are to be asked afterwards.
    pub(crate) fn ask(&self, asker: &Asker<'_, '_>, first: usize) -> (usize, Verdict) {
        for (number, gate) in ORDER.iter().enumerate().skip(first) {
            match gate(self, asker) {
                Verdict::Pass => {}
                verdict => return (number, verdict),
            }
        }
        (ORDER.len(), Verdict::Pass)
    }
}
