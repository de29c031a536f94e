//! `etcd://host:port,...` is a cluster; `etcds://` one that talks TLS.

use std::sync::Arc;

use secrecy::SecretString;
use synod_core::error::Result;
use synod_core::store::Backend;
use synod_etcd::{EtcdBackend, EtcdOptions};

use crate::address::{Scheme, invalid};
use crate::plan::Target;

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&[])?;
    let mut options = EtcdOptions::new(target.hosts);
    if let Some(credentials) = target.credentials {
        options = options.user(credentials.user, credentials.password);
    }
    if target.scheme == (Scheme::Etcd { tls: true }) {
        options = options.tls();
    }
    if let Some(ca) = &target.tls.ca {
        options = options.ca(read(ca)?);
    }
    if let (Some(certificate), Some(key)) = (&target.tls.certificate, &target.tls.key) {
        let key = String::from_utf8(read(key)?).map_err(|_not_text| {
            invalid("the key of the TLS certificate is not written in PEM, which is text")
        })?;
        options = options.identity(read(certificate)?, SecretString::from(key));
    }
    Ok(Arc::new(EtcdBackend::new(options)?))
}

fn read(file: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| {
        invalid(format!("the TLS file {} cannot be read", file.display())).caused_by(error)
    })
}
