//! Faults on real servers: clients in separate processes, faults of clients and servers, and a
//! record of all events that is checked at the end.
//!
//! A [`Client`](client::Client) is a process that executes calls on request, and reports when it
//! sent a call and when it was answered, by a clock that all processes of a machine share. So a
//! stopped client really stops: its heartbeat, its clock and its user's code. All events are
//! written to one [`Book`](book::Book); `check` compares it with the [`Fact`](entry::Fact)s that
//! the servers kept.

pub mod book;
pub mod client;
mod crew_post;
mod crowd;
pub mod deed;
pub mod entry;
pub(crate) mod family_post;
pub mod holder;
pub mod holding;
mod post;
mod posts;
mod queue_post;
mod report;
pub mod worker;
