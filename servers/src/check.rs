//! Checks of the record of a run: they find the laws that real servers and clients broke.

mod breaches;
pub mod crews;
pub mod defect;
pub mod events;
pub mod families;
pub mod holders;
mod items;
pub mod lives;
pub mod outcomes;
pub mod queues;
pub mod record;
pub mod sight;
pub mod tickets;
