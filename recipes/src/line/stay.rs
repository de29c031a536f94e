//! [`Stay`]: the metrics and the span of a hold.

use synod_core::clock::{self, Instant};
use tracing::Span;
use tracing::field::{Empty, debug, display};

use crate::line::meter;
use crate::line::ticket_node::TicketNode;

/// Measures how long something is held, and reports it when dropped.
pub(super) struct Stay {
    pub(super) recipe: &'static str,
    since: Instant,
    span: Span,
}

impl Stay {
    pub(super) fn of(node: &TicketNode, recipe: &'static str) -> Self {
        let (ticket, token) = (node.path(), node.token());
        let path = ticket.parent().map(display);
        let span = tracing::debug_span!("holding", recipe, path, %ticket, %token, held = Empty);
        Self { recipe, since: clock::now(), span }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let held = clock::elapsed(self.since);
        meter::held(self.recipe, held);
        self.span.record("held", debug(held));
    }
}
