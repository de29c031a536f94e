//! The etcd backend on a cluster in memory that follows a script.

mod client;
mod deposed;
mod doors;
mod effects;
mod judge;
mod listings;
mod locker;
mod members;
#[expect(dead_code, reason = "some of it is for what is still to be mended")]
mod peer;
mod restored;
mod resuming;
mod sessions;
mod soak;
mod ttl_nodes;
mod users;
mod watching;
mod world;
