//! `zk://host:port,host:port/path?acl=open` names a cluster; `zks://` uses TLS.

use std::sync::Arc;

use secrecy::SecretString;
use synod_core::error::Result;
use synod_core::store::Backend;
use synod_zk::{Access, Heartbeat, Login, Tls, ZkBackend, ZkOptions};

use crate::scheme::{Scheme, invalid};
use crate::target::{Target, Tls as Files, duration};
use crate::tls_file::{read, read_certificates};

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&["acl", "auth", "heartbeat", "plaintext", "tick"])?;
    let mut options = ZkOptions::new(target.hosts.clone());
    if let Some(servers) = target.servers {
        options = options.servers(servers.into_source());
    }
    for (key, value) in &target.parameters {
        options = match (key.as_str(), value.as_str()) {
            ("acl", "open") => options.access(Access::Open),
            ("acl", "creator") => options.access(Access::Creator),
            ("acl", _) => return Err(invalid("acl is open or creator, as in ?acl=open")),
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
    if target.scheme == (Scheme::ZooKeeper { tls: true }) {
        options = options.tls(tls(&target.tls)?);
    }
    Ok(Arc::new(ZkBackend::new(options)?))
}

fn tls(files: &Files) -> Result<Tls> {
    let Some(ca) = &files.ca else {
        return Err(invalid(
            "zks:// has no default CA: name the file of the server's CA, as in ?ca=/etc/ssl/ca.pem",
        ));
    };
    let mut tls = Tls::trusting(read_certificates(ca)?);
    if let (Some(certificate), Some(key)) = (&files.certificate, &files.key) {
        tls = tls.identity(read_certificates(certificate)?, SecretString::from(read(key)?));
    }
    Ok(tls)
}
