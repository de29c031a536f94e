//! synod
mod address;
pub use address::{Address, Credentials, Scheme};
