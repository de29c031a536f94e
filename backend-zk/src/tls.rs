//! [`Tls`]: the encryption of connections.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use synod_core::error::Result;

use crate::client::ZkError;

/// The trusted authorities and the client's identity, as certificates in PEM. Names of servers are
/// always checked.
///
/// Needs the feature `tls`: without it,
/// [`ZkBackend::new`](crate::ZkBackend::new) refuses it as
/// [`Unsupported`](synod_core::error::ErrorKind::Unsupported).
#[derive(Clone, Default)]
pub struct Tls {
    /// `None`: those of this system.
    authorities: Option<String>,
    pub(crate) identity: Option<(String, SecretString)>,
    pub(crate) source: Option<Source>,
}

/// Returns the current settings.
#[derive(Clone)]
pub(crate) struct Source(
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is encrypted"))]
    Arc<dyn Fn() -> Result<Tls> + Send + Sync>,
);

impl Source {
    #[cfg(feature = "tls")]
    pub(crate) fn read(&self) -> Result<Tls> {
        (self.0)()
    }
}

impl Tls {
    /// Trusts the servers whose certificates the authorities of this system signed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the servers whose certificates these authorities signed.
    pub fn trusting(authorities: impl Into<String>) -> Self {
        Self { authorities: Some(authorities.into()), ..Self::default() }
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

    /// Reads the settings again for each new connection, for certificates that are renewed. While
    /// they cannot be read or used, the last ones stay in use, and a warning is logged.
    ///
    /// `source` is called by the task of the connection, so it returns soon: it reads files.
    pub fn reload(mut self, source: impl Fn() -> Result<Self> + Send + Sync + 'static) -> Self {
        self.source = Some(Source(Arc::new(source)));
        self
    }

    /// The reason that these settings cannot be used, if there is one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.config() {
            Err(ZkError::BadArguments(why)) => Some(why),
            _ => None,
        }
    }

    /// Returns whether the certificates and the key are the same.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is encrypted"))]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same_identity = match (&self.identity, &other.identity) {
            (None, None) => true,
            (Some((certificate, key)), Some((others, others_key))) => {
                certificate == others && key.expose_secret() == others_key.expose_secret()
            }
            _ => false,
        };
        self.authorities == other.authorities && same_identity
    }

    #[cfg(feature = "tls")]
    pub(crate) fn config(&self) -> Result<Arc<rustls::ClientConfig>, ZkError> {
        use rustls::ClientConfig;
        use rustls::pki_types::PrivateKeyDer;
        use rustls::pki_types::pem::PemObject as _;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| ZkError::BadArguments("there is no protocol in common"))?
            .with_root_certificates(self.roots()?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(Arc::new(config.with_no_client_auth()));
        };
        let certificate = certificates(certificate)
            .ok_or(ZkError::BadArguments("the client's certificate is no certificate in PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
            .map_err(|_| ZkError::BadArguments("the client's key is no private key in PEM"))?;
        let config = config.with_client_auth_cert(certificate, key);
        config
            .map(Arc::new)
            .map_err(|_| ZkError::BadArguments("the client's certificate is not for its key"))
    }

    #[cfg(feature = "tls")]
    fn roots(&self) -> Result<rustls::RootCertStore, ZkError> {
        let mut roots = rustls::RootCertStore::empty();
        let Some(authorities) = &self.authorities else {
            // Systems have certificates that no client can use, so those are left out.
            let (added, _unusable) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                return Err(ZkError::BadArguments(NO_SYSTEM_AUTHORITIES));
            }
            return Ok(roots);
        };
        for authority in certificates(authorities)
            .ok_or(ZkError::BadArguments("there is no certificate in PEM among the authorities"))?
        {
            let added = roots.add(authority);
            added.map_err(|_| {
                ZkError::BadArguments("a certificate of an authority cannot be used")
            })?;
        }
        Ok(roots)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn config(&self) -> Result<(), ZkError> {
        Err(ZkError::Unimplemented)
    }
}

#[cfg(feature = "tls")]
const NO_SYSTEM_AUTHORITIES: &str = "this system has no list of authorities: install its package of CA certificates, or name the \
     file of the servers' CA (in a URL, ?ca=FILE)";

/// The certificates in a text, if all of them are valid and there is one.
#[cfg(feature = "tls")]
fn certificates(pem: &str) -> Option<Vec<rustls::pki_types::CertificateDer<'static>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use synod_core::error::{Error, ErrorKind};

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

    #[test]
    fn the_authorities_of_the_system_are_used_if_there_are_any() {
        let is_empty = rustls_native_certs::load_native_certs().certs.is_empty();
        assert_eq!(Tls::new().fault(), is_empty.then_some(NO_SYSTEM_AUTHORITIES));
    }

    /// The first connection uses the new settings; broken ones and those of no file change nothing.
    #[test]
    fn settings_are_read_for_each_connection_and_broken_ones_are_not_used() {
        use std::sync::Mutex;

        use crate::client::encryption::Encryption;

        let file = Arc::new(Mutex::new(Some(CERTIFICATE.to_owned())));
        let source = {
            let file = file.clone();
            move || {
                let error = || Error::new(ErrorKind::Invalid, "reading");
                file.lock().expect("no panic").clone().map(Tls::trusting).ok_or_else(error)
            }
        };
        let encryption = Encryption::new(&Tls::trusting(CERTIFICATE).reload(source));
        let encryption = encryption.expect("valid");
        let first = encryption.config();
        // Sessions of TLS are resumed as long as nothing changes.
        assert!(Arc::ptr_eq(&first, &encryption.config()));
        for broken in [None, Some(String::new()), Some("no certificate".to_owned())] {
            *file.lock().expect("no panic") = broken;
            assert!(Arc::ptr_eq(&first, &encryption.config()));
        }
        *file.lock().expect("no panic") = Some(format!("# renewed\n{CERTIFICATE}"));
        let renewed = encryption.config();
        assert!(!Arc::ptr_eq(&first, &renewed));
        // All sessions of a backend use the same settings.
        assert!(Arc::ptr_eq(&renewed, &encryption.clone().config()));
    }
}
