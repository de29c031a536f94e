//! Faults on real servers: clients as processes of their own, what is done to them and to their
//! servers, and a record of it all that is checked in the end.
//!
//! A [`Client`](client::Client) is a process that does what it is told and tells when it called and
//! when it was answered, by a clock that all processes of a machine share. So a client that is
//! stopped really stands still: its heartbeat, its clock and its user's code. Everything that
//! happens goes into one [`Book`](book::Book); `check` reads it against the [`Fact`](entry::Fact)s
//! that the servers kept.

pub mod book;
pub mod client;
pub mod entry;
pub mod holder;
pub mod holding;
pub mod worker;
