//! The client crates that the backends are built on, as racers: used as their documentation says,
//! with no promises beyond their own. What cannot be faster than one create and one delete is
//! measured against those.

pub mod etcd;
pub mod same;
pub mod zookeeper;
