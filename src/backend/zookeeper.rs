//! `zk://host:port,host:port/path?acl=open`.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;
use synod_zk::{Access, ZkBackend, ZkOptions};

use crate::address::invalid;
use crate::plan::{Target, duration};

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&["acl", "tick"])?;
    let mut options = ZkOptions::new(target.hosts.clone());
    for (key, value) in &target.parameters {
        options = match (key.as_str(), value.as_str()) {
            ("acl", "open") => options.access(Access::Open),
            ("acl", "creator") => options.access(Access::Creator),
            ("acl", _) => return Err(invalid("acl is open or creator, as in ?acl=open")),
            (_, tick) => options.tick(duration("tick", tick)?),
        };
    }
    if let Some(credentials) = target.credentials {
        options = options.credentials(credentials.user, credentials.password);
    }
    Ok(Arc::new(ZkBackend::new(options)?))
}
