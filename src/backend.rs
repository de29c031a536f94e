//! One module per backend: builds a [`Backend`](synod_core::store::Backend) from the configuration.
//! For a backend that is not compiled in, the error names the feature that enables it.

#[cfg(not(all(feature = "etcd", feature = "file", feature = "mem", feature = "zookeeper")))]
mod absent;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "mem")]
mod mem;
#[cfg(test)]
mod tests;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(not(feature = "etcd"))]
pub(crate) use absent::open as etcd;
#[cfg(not(feature = "file"))]
pub(crate) use absent::open as file;
#[cfg(not(feature = "mem"))]
pub(crate) use absent::open as mem;
#[cfg(not(feature = "zookeeper"))]
pub(crate) use absent::open as zookeeper;
#[cfg(feature = "etcd")]
pub(crate) use etcd::open as etcd;
#[cfg(feature = "etcd")]
pub(crate) use etcd::options as etcd_options;
#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) use file::file_backend;
#[cfg(feature = "file")]
pub(crate) use file::open as file;
#[cfg(feature = "mem")]
pub(crate) use mem::open as mem;
#[cfg(feature = "zookeeper")]
pub(crate) use zookeeper::open as zookeeper;
