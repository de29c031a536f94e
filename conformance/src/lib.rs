//! Empty.

pub mod server;
