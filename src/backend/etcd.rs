//! `etcd://host:port,...?timeout=10s` names a cluster; `etcds://...?server_name=etcd.example` uses
//! TLS.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;
use synod_etcd::{EtcdBackend, EtcdOptions, Tls};

use crate::scheme::{Scheme, invalid};
use crate::servers::{Origin, ServersFrom};
use crate::target::{Target, Tls as Files, duration};
use crate::tls_file::{read, read_certificates};

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(EtcdBackend::new(options(target)?)?))
}

/// The options of a target on etcd.
pub(crate) fn options(target: Target) -> Result<EtcdOptions> {
    let secure = target.scheme == (Scheme::Etcd { tls: true });
    let own = if secure { "server_name" } else { "plaintext" };
    target.no_more_parameters(&["timeout", own])?;
    let mut options = EtcdOptions::new(target.hosts);
    options = match target.servers {
        Some(ServersFrom(Origin::Source(source))) => options.servers(source),
        Some(ServersFrom(Origin::Ensemble)) => options.follow_members(true),
        None => options,
    };
    let mut server_name = None;
    for (key, value) in target.parameters {
        match key.as_str() {
            "timeout" => options = options.timeout(duration("timeout", &value)?),
            "plaintext" => options = options.plaintext_auth(is_allowed(&value)?),
            _ => server_name = Some(value),
        }
    }
    if let Some(credentials) = target.credentials {
        options = options.user(credentials.user, credentials.password);
    }
    if secure {
        options = options.tls(tls(target.tls, server_name)?);
    }
    Ok(options)
}

fn is_allowed(value: &str) -> Result<bool> {
    match value {
        "allow" => Ok(true),
        "refuse" => Ok(false),
        _ => Err(invalid("plaintext is allow or refuse, as in ?plaintext=allow")),
    }
}

/// The settings that the files contain, which are read again for each connection.
fn tls(files: Files, server_name: Option<String>) -> Result<Tls> {
    Ok(read_tls(&files, server_name.as_ref())?
        .reload(move || read_tls(&files, server_name.as_ref())))
}

fn read_tls(files: &Files, server_name: Option<&String>) -> Result<Tls> {
    let tls = match &files.ca {
        Some(ca) => Tls::trusting(read_certificates(ca)?),
        None => Tls::new(),
    };
    let tls = server_name.into_iter().fold(tls, Tls::server_name);
    let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else { return Ok(tls) };
    Ok(tls.identity(read_certificates(certificate)?, read(key)?))
}
