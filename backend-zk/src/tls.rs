//! [`Tls`]: how connections are encrypted.

use std::fmt;

use secrecy::SecretString;
use zookeeper_client::{Client, Connector, Error as ZkError};

/// The trusted authorities and the client's identity, as certificates in PEM. Names of servers are
/// always checked.
///
/// Needs the feature `tls`: without it,
/// [`ZkBackend::new`](crate::ZkBackend::new) refuses it as
/// [`Unsupported`](synod_core::error::ErrorKind::Unsupported).
#[derive(Clone)]
pub struct Tls {
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is encrypted"))]
    authorities: String,
    pub(crate) identity: Option<(String, SecretString)>,
}

impl Tls {
    /// Trusts the servers whose certificates these authorities signed.
    pub fn trusting(authorities: impl Into<String>) -> Self {
        Self { authorities: authorities.into(), identity: None }
    }

    /// Sets the client's own identity: a certificate and its key.
    pub fn identity(
        mut self,
        certificate: impl Into<String>,
        key: impl Into<SecretString>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    #[cfg(feature = "tls")]
    pub(crate) async fn connect(
        &self,
        connector: Connector,
        hosts: &str,
    ) -> Result<Client, ZkError> {
        use secrecy::ExposeSecret as _;
        use zookeeper_client::TlsOptions;

        // The crate uses the provider of the process, and panics if none is installed.
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let _first = provider.install_default().is_ok();
        let mut options = TlsOptions::new().with_pem_ca(&self.authorities)?;
        if let Some((certificate, key)) = &self.identity {
            options = options.with_pem_identity(certificate, key.expose_secret())?;
        }
        connector.with_tls(options).secure_connect(hosts).await
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with the feature it waits")]
    pub(crate) async fn connect(&self, _: Connector, _: &str) -> Result<Client, ZkError> {
        Err(ZkError::Unimplemented)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}
