//! [`Tls`]: the encryption of connections.

use std::fmt;

use secrecy::SecretString;

use crate::client::ZkError;
use crate::client::stream::Encryption;

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

    /// The reason that these settings cannot be used, if there is one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.encryption() {
            Err(ZkError::BadArguments(why)) => Some(why),
            _ => None,
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn encryption(&self) -> Result<Encryption, ZkError> {
        use std::sync::Arc;

        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use rustls::{ClientConfig, RootCertStore};
        use secrecy::ExposeSecret as _;

        let certificates = |pem: &str| {
            let all = CertificateDer::pem_slice_iter(pem.as_bytes());
            let all: Result<Vec<_>, _> = all.collect();
            all.ok().filter(|all| !all.is_empty())
        };
        let mut roots = RootCertStore::empty();
        let authorities = certificates(&self.authorities);
        for authority in authorities
            .ok_or(ZkError::BadArguments("there is no certificate in PEM among the authorities"))?
        {
            let added = roots.add(authority);
            added.map_err(|_| {
                ZkError::BadArguments("a certificate of an authority cannot be used")
            })?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| ZkError::BadArguments("there is no protocol in common"))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(Encryption::new(config.with_no_client_auth()));
        };
        let certificate = certificates(certificate)
            .ok_or(ZkError::BadArguments("the client's certificate is no certificate in PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
            .map_err(|_| ZkError::BadArguments("the client's key is no private key in PEM"))?;
        let config = config.with_client_auth_cert(certificate, key);
        config
            .map(Encryption::new)
            .map_err(|_| ZkError::BadArguments("the client's certificate is not for its key"))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    pub(crate) fn encryption(&self) -> Result<Encryption, ZkError> {
        Err(ZkError::Unimplemented)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    /// An authority until the year 2126.
    const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBbzCCARWgAwIBAgIUWqZlVMJJspckPcNxbtYYOXgyMLIwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBYTAgFw0yNjExMjgxODI4MzJaGA8yMTI2MTEwNDE4MjgzMlow
DDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABM92/3rMKqcU
7aDG002R0mUNIdIgQWSser86q6l1Vd/izH6TMK5YRHR9N8RhpfC2TcU1UZKAUVkt
cQ0j3U63R0qjUzBRMB0GA1UdDgQWBBTq2YHWgq2aseGcZAYXXk3G9BdFBDAfBgNV
HSMEGDAWgBTq2YHWgq2aseGcZAYXXk3G9BdFBDAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0gAMEUCICGRGR7nWrxsVBZvzipLUWQTn+z3LV/vllrWz20Ju6Ex
AiEAkF498jjZI8IUFa3flnYdCoYxbhgTEl+QdaAsgrpHssA=
-----END CERTIFICATE-----
";

    #[test]
    fn files_without_certificates_and_keys_are_refused() {
        for text in ["", "no certificate"] {
            let none = "there is no certificate in PEM among the authorities";
            assert_eq!(Tls::trusting(text).fault(), Some(none), "{text:?}");
        }
        let trusting = || Tls::trusting(CERTIFICATE);
        assert_eq!(trusting().fault(), None);
        for text in ["", "no certificate"] {
            let none = "the client's certificate is no certificate in PEM";
            assert_eq!(trusting().identity(text, "").fault(), Some(none), "{text:?}");
        }
        for text in ["", "no key", CERTIFICATE] {
            let none = "the client's key is no private key in PEM";
            assert_eq!(trusting().identity(CERTIFICATE, text).fault(), Some(none), "{text:?}");
        }
    }
}
