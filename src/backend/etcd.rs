//! `etcd://host:port,...` is a cluster; `etcds://` one that talks TLS.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;
use synod_etcd::{EtcdBackend, EtcdOptions, Tls};

use crate::address::{Scheme, invalid};
use crate::config::Tls as Files;
use crate::plan::Target;

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&[])?;
    let mut options = EtcdOptions::new(target.hosts);
    if let Some(credentials) = target.credentials {
        options = options.user(credentials.user, credentials.password);
    }
    if target.scheme == (Scheme::Etcd { tls: true }) {
        options = options.tls(tls(&target.tls)?);
    }
    Ok(Arc::new(EtcdBackend::new(options)?))
}

fn tls(files: &Files) -> Result<Tls> {
    let tls = match &files.ca {
        Some(ca) => Tls::trusting(read(ca)?),
        None => Tls::new(),
    };
    let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else { return Ok(tls) };
    let key = String::from_utf8(read(key)?).map_err(|_not_text| {
        invalid("the key of the TLS certificate is not written in PEM, which is text")
    })?;
    Ok(tls.identity(read(certificate)?, key))
}

fn read(file: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| {
        invalid(format!("the TLS file {} cannot be read", file.display())).caused_by(error)
    })
}
