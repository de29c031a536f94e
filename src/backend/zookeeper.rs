//! `zk://host:port,host:port/path?acl=open` names a cluster; `zks://` uses TLS.

use std::sync::Arc;

use secrecy::SecretString;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Backend;
use synod_zk::{Access, Acl, Heartbeat, Login, Tls, ZkBackend, ZkOptions};

use crate::scheme::{Scheme, invalid};
use crate::servers::{Origin, ServersFrom};
use crate::target::{Target, Tls as Files, duration};
use crate::tls_file::{read, read_certificates};

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&["acl", "auth", "heartbeat", "plaintext", "tick"])?;
    let mut options = ZkOptions::new(target.hosts.clone());
    options = match target.servers {
        Some(ServersFrom(Origin::Source(source))) => options.servers(source),
        Some(ServersFrom(Origin::Ensemble)) => options.follow_ensemble(true),
        None => options,
    };
    for (key, value) in &target.parameters {
        options = match (key.as_str(), value.as_str()) {
            ("acl", lists) => access(options, lists)?,
            ("auth", "digest") => options.login(Login::Digest),
            ("auth", "sasl") => options.login(Login::Sasl),
            ("auth", _) => return Err(invalid("auth is digest or sasl, as in ?auth=sasl")),
            ("heartbeat", "sync") => options.heartbeat(Heartbeat::Sync),
            ("heartbeat", "write") => options.heartbeat(Heartbeat::Write),
            ("heartbeat", _) => {
                return Err(invalid("heartbeat is sync or write, as in ?heartbeat=write"));
            }
            ("plaintext", "allow") => options.plaintext_auth(true),
            ("plaintext", "refuse") => options.plaintext_auth(false),
            ("plaintext", _) => {
                return Err(invalid("plaintext is allow or refuse, as in ?plaintext=allow"));
            }
            (_, tick) => options.tick(duration("tick", tick)?),
        };
    }
    if let Some(credentials) = target.credentials {
        options = options.credentials(credentials.user, credentials.password);
    }
    for identity in target.identities {
        options = options.add_identity(identity.user, identity.password);
    }
    if target.scheme == (Scheme::ZooKeeper { tls: true }) {
        options = options.tls(tls(target.tls)?);
    }
    Ok(Arc::new(ZkBackend::new(options)?))
}

/// Reads `open`, `creator` and `PATH=LIST`, separated by `;`.
fn access(mut options: ZkOptions, lists: &str) -> Result<ZkOptions> {
    for part in lists.split(';') {
        options = match (part, part.split_once('=')) {
            ("open" | "creator", _) if options.access.is_some() => {
                return Err(invalid("acl has open or creator once, for all other paths"));
            }
            ("open", _) => options.access(Access::Open),
            ("creator", _) => options.access(Access::Creator),
            (_, Some((path, list))) => {
                let (path, list) = (Path::new(path)?, list.parse::<Acl>()?);
                if options.acls.contains_key(&path) {
                    return Err(invalid(format!("acl has two lists for {path}")));
                }
                options.acl(path, list)
            }
            _ => {
                return Err(invalid(
                    "acl is open, creator or lists by path, as in ?acl=open or \
                     ?acl=/public=world:anyone:r,auth::cdrwa;/=auth::cdrwa",
                ));
            }
        };
    }
    Ok(options)
}

/// The settings that the files contain, which are read again for each connection.
fn tls(files: Files) -> Result<Tls> {
    Ok(read_tls(&files)?.reload(move || read_tls(&files)))
}

fn read_tls(files: &Files) -> Result<Tls> {
    let mut tls = match &files.ca {
        Some(ca) => Tls::trusting(read_certificates(ca)?),
        None => Tls::new(),
    };
    if let (Some(certificate), Some(key)) = (&files.certificate, &files.key) {
        tls = tls.identity(read_certificates(certificate)?, SecretString::from(read(key)?));
    }
    Ok(tls)
}
