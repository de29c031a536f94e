//! synod
mod address;
pub use address::{Address, Credentials, Scheme};
#[cfg(feature = "mem")]
pub use synod_mem as mem;
pub use synod_core::{path, store, error};
