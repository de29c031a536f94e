//! The etcd backend on a cluster in memory that does what a script says.

mod effects;
mod members;
#[expect(dead_code, reason = "some of it is for what is still to be mended")]
mod peer;
mod sessions;
mod users;
mod watching;
mod world;
