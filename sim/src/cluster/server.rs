//! [`Server`]: one of the servers that clients connect to.

use std::collections::VecDeque;

use synod_core::clock::Instant;
use synod_mem::state_machine::Tree;

use crate::cluster::answer::Answer;
use crate::cluster::learner::Learner;
use crate::cluster::link::Request;

/// A follower, which answers, serves watches and lags.
#[derive(Debug)]
pub(super) struct Server {
    /// The number of log entries that it has applied.
    pub(super) applied: usize,
    /// The times at which it will apply each of the next entries.
    pub(super) follows: VecDeque<Instant>,
    /// Work that waits until it has applied a number of entries.
    pub(super) waiting: Vec<(usize, Waiting)>,
    /// A copy of its tree, created when a read lags, and the number of log entries in it.
    pub(super) copy: Option<(Tree, usize)>,
    pub(super) frozen: bool,
    pub(super) learner: Learner,
}

/// Work for when a server has caught up.
#[derive(Debug)]
pub(super) enum Waiting {
    Serve(Box<Request>),
    Answer(Box<Request>, Box<Answer>),
}

impl Server {
    pub(super) fn new() -> Self {
        let (follows, waiting, learner) = (VecDeque::new(), Vec::new(), Learner::default());
        Self { applied: 0, follows, waiting, copy: None, frozen: false, learner }
    }
}
