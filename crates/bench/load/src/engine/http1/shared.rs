//! State that a worker shares with its connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use dunlin_http::http1::client::HeadCache;
use rustix::event::epoll;

use super::timers::Timers;
use crate::engine::job::Job;
use crate::engine::recorder::Recorder;
use crate::plan::Reuse;
use crate::segment::Segment;

/// State that a worker shares with its connections.
pub(super) struct Shared<'a> {
    pub(super) job: &'a Job,
    pub(super) epoll: OwnedFd,
    pub(super) recorder: Recorder,
    pub(super) timers: Timers,
    pub(super) buffer: Vec<u8>,
    pub(super) head_cache: HeadCache,
    /// Requests that can be in flight on a connection.
    pub(super) depth: usize,
    /// Requests on a connection before the client closes it.
    pub(super) max_requests: u32,
    /// Connections that are being established.
    pub(super) connecting: u64,
    /// Connections on which no byte has arrived yet. Counted only with a modem pace.
    pub(super) silent: u32,
    /// Slots whose connection can take a request; open model over requests.
    pub(super) offered: VecDeque<u32>,
    /// Slots whose connection is to be opened.
    pub(super) to_open: Vec<u32>,
}

/// Size of the read buffer in bytes.
const BUFFER: usize = 1 << 20;

impl<'a> Shared<'a> {
    /// Returns the initial state of the worker that sends a part of the run.
    pub(super) fn new(job: &'a Job, part: Segment) -> io::Result<Self> {
        let plan = &job.plan;
        Ok(Self {
            job,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            recorder: Recorder::new(job, part),
            timers: Timers::default(),
            buffer: vec![0; BUFFER],
            head_cache: HeadCache::default(),
            depth: plan.pipeline as usize,
            max_requests: max_requests(plan.reuse),
            connecting: 0,
            silent: 0,
            offered: VecDeque::new(),
            to_open: Vec::new(),
        })
    }

    /// Adds a slot to those whose connection can take a request.
    #[inline]
    pub(super) fn offer(&mut self, index: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.offered.push_back(index);
        }
    }

    /// Adds a slot to those whose connection is to be opened.
    pub(super) fn reopen(&mut self, index: u32) {
        self.to_open.push(index);
    }
}

/// Returns the number of requests on each connection before the client closes it.
fn max_requests(reuse: Reuse) -> u32 {
    match reuse {
        Reuse::Never => 1,
        Reuse::Requests(count) => count,
        Reuse::Kept => u32::MAX,
    }
}
