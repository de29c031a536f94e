//! Client crates as racers, `etcd-client` being that of a backend: used as their documentation
//! recommends, with their own guarantees only. They are the baseline for everything that cannot be
//! faster than one create and one delete.

pub mod etcd;
pub mod same;
pub mod zookeeper;
