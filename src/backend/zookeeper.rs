//! `zk://host:port,host:port/path?acl=open`.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;
use synod_zk::{Access, ZkBackend, ZkOptions};

use crate::address::invalid;
use crate::plan::Target;

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&["acl", "tick"])?;
    let mut options = ZkOptions::new(target.hosts.clone());
    match target.parameter("acl") {
        None => {}
        Some("open") => options = options.access(Access::Open),
        Some("creator") => options = options.access(Access::Creator),
        Some(_) => return Err(invalid("acl is open or creator, as in ?acl=open")),
    }
    if let Some(tick) = target.duration("tick")? {
        options = options.tick(tick);
    }
    if let Some(credentials) = target.credentials {
        options = options.credentials(credentials.user, credentials.password);
    }
    Ok(Arc::new(ZkBackend::new(options)?))
}
