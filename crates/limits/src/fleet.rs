//! Simulated servers that share a limit: the real limits, the store in memory, a manual clock. For tests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dunlin_config::{RateKey, RateRules};

use crate::lease::{Granted, INTERVAL};
use crate::ledger::Ledger;
use crate::rate::RateLimit;
use crate::shared_rate::{ClientReport, Servers};

/// Duration of a step. A response of the store takes one.
pub const STEP: Duration = Duration::from_millis(5);

/// Servers, their store, and the time.
#[derive(Debug)]
pub struct Fleet {
    rules: RateRules,
    members: Vec<Member>,
    ledger: Ledger,
    random: u64,
    origin: Instant,
    elapsed: Duration,
    /// The store is reachable.
    pub is_connected: bool,
    /// Exchanges with the store.
    pub exchanges: u64,
}

#[derive(Debug)]
struct Member {
    limit: RateLimit,
    servers: Servers,
    /// Time of the next exchange.
    due: Duration,
    /// Responses of the store that are on their way.
    responses: VecDeque<(ClientReport, Granted)>,
    /// It takes part.
    is_there: bool,
}

/// Returns the rules of a shared limit for all requests together, per second.
pub fn rules(requests: u32, burst: u32) -> RateRules {
    RateRules {
        requests,
        period: Duration::from_secs(1),
        burst,
        by: RateKey::Address,
        sends_fields: false,
        dry_run: false,
        status: 429,
        shared: true,
    }
}

impl Fleet {
    /// Servers with these rules; `seed` determines when each exchanges with the store.
    pub fn new(count: usize, rules: &RateRules, seed: u64) -> Self {
        let origin = dunlin_net::clock::now();
        let mut fleet = Self {
            rules: rules.clone(),
            members: Vec::new(),
            ledger: Ledger::default(),
            random: seed | 1,
            origin,
            elapsed: Duration::from_secs(1),
            is_connected: true,
            exchanges: 0,
        };
        (0..count).for_each(|_| fleet.join());
        fleet
    }

    /// Adds a server.
    pub fn join(&mut self) {
        let servers = Servers::default();
        let limit = RateLimit::shared(self.rules.clone(), "site\n/*", &servers);
        let due = self.elapsed + self.pause();
        let responses = VecDeque::new();
        self.members.push(Member { limit, servers, due, responses, is_there: true });
        self.count();
    }

    /// Removes a server, with what it has.
    pub fn leave(&mut self, server: usize) {
        self.members[server].is_there = false;
        self.count();
    }

    /// The servers see each other.
    fn count(&mut self) {
        let there = self.members.iter().filter(|member| member.is_there).count() as u32;
        self.members.iter().for_each(|member| member.servers.set(there));
    }

    /// Counts requests of one client at a server. Returns how many are allowed.
    pub fn requests(&mut self, server: usize, client: &str, count: usize) -> usize {
        let now = self.origin + self.elapsed;
        let member = &self.members[server];
        if !member.is_there {
            return 0;
        }
        (0..count).filter(|_| member.limit.request(client, now).allowed).count()
    }

    /// Passes the time of a step.
    pub fn step(&mut self) {
        self.elapsed += STEP;
        let now = self.origin + self.elapsed;
        for index in 0..self.members.len() {
            let pause = self.pause();
            let Member { limit, servers, due, responses, is_there } = &mut self.members[index];
            for (report, granted) in responses.drain(..) {
                limit.grant(&report, granted, now);
            }
            if *due > self.elapsed || !*is_there {
                continue;
            }
            *due += pause;
            if !self.is_connected {
                limit.disconnect();
                continue;
            }
            let Some(terms) = limit.terms() else { continue };
            for report in limit.reports(now) {
                let nanos = self.elapsed.as_nanos() as u64;
                let count = servers.count();
                let granted =
                    self.ledger.exchange(&terms, count, report.client, report.report, nanos);
                responses.push_back((report, granted));
                self.exchanges += 1;
            }
        }
    }

    /// From half of the interval to one and a half.
    fn pause(&mut self) -> Duration {
        INTERVAL.mul_f64(0.5 + self.random())
    }

    /// Returns a number from 0 to 1.
    pub fn random(&mut self) -> f64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the number of requests in a step that come at random, `rate` per second on average.
    pub fn arrivals(&mut self, rate: f64) -> usize {
        let mean = rate * STEP.as_secs_f64();
        let (whole, part) = (mean.floor(), mean.fract());
        whole as usize + usize::from(self.random() < part)
    }
}
