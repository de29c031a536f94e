//! [`Outbox`]: sends requests, in the order of the calls.

use tokio::sync::{mpsc, oneshot};

use crate::client::answer::{Answer, Reply};
use crate::client::event::StateWatcher;
use crate::client::request::{Message, Order, Request};
use crate::client::watches::WatchRequest;
use crate::client::zk_error::ZkError;

/// The channel to the task that owns the session. When the last one is dropped, the task ends the
/// session.
#[derive(Debug)]
pub(super) struct Outbox {
    orders: mpsc::UnboundedSender<Order>,
    states: StateWatcher,
}

impl Outbox {
    pub(super) fn new(orders: mpsc::UnboundedSender<Order>, states: StateWatcher) -> Self {
        Self { orders, states }
    }

    /// Follows the session's state from now on.
    pub(super) fn states(&self) -> StateWatcher {
        let mut states = self.states.clone();
        let _current = states.state();
        states
    }

    pub(super) fn send<T>(
        &self,
        message: Message,
        watch: Option<WatchRequest>,
        decode: fn(Reply) -> Result<T, ZkError>,
    ) -> Answer<T> {
        let (reply, coming) = oneshot::channel();
        let request = Request { message, watch, reply };
        match self.orders.send(Order::Send(request)) {
            Ok(()) => Answer::new(coming, decode),
            Err(_over) => Answer::unsent(self.states.clone().state().error(), decode),
        }
    }
}
