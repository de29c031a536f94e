//! The etcd backend on a cluster in memory that does what a script says.

mod effects;
mod peer;
mod sessions;
mod watching;
mod world;
