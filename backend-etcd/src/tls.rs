//! [`Tls`]: how connections are encrypted.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use synod_core::error::Result;

/// The trusted authorities and the client's identity, as certificates in PEM. Names of servers are
/// always checked.
///
/// Needs the feature `tls`: without it, opening a session fails as
/// [`Unsupported`](synod_core::error::ErrorKind::Unsupported).
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, SecretString)>,
    pub(crate) server_name: Option<String>,
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
    pub fn trusting(authorities: impl Into<Vec<u8>>) -> Self {
        Self { authorities: Some(authorities.into()), ..Self::default() }
    }

    /// Sets the client's own identity: a certificate and its key.
    pub fn identity(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<SecretString>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Expects the servers' certificates to be for this name, whatever their addresses are.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
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

    /// The reason that these settings cannot be used, if a file is visibly not what it must be. An
    /// empty list of authorities would trust no server, and say so only as a failed handshake.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let has = |pem: &[u8], label: &str| {
            let label = label.as_bytes();
            pem.windows(label.len()).any(|window| window == label)
        };
        let has_certificate = |pem: &[u8]| has(pem, "-----BEGIN CERTIFICATE-----");
        if self.authorities.as_ref().is_some_and(|pem| !has_certificate(pem)) {
            return Some("there is no certificate in PEM among the authorities");
        }
        let (certificate, key) = self.identity.as_ref()?;
        if !has_certificate(certificate) {
            return Some("the client's certificate is no certificate in PEM");
        }
        let is_key = has(key.expose_secret().as_bytes(), "PRIVATE KEY-----");
        (!is_key).then_some("the client's key is no private key in PEM")
    }

    /// Returns whether the certificates, the key and the name are the same.
    #[cfg(feature = "tls")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same_identity = match (&self.identity, &other.identity) {
            (None, None) => true,
            (Some((certificate, key)), Some((others, others_key))) => {
                certificate == others && key.expose_secret() == others_key.expose_secret()
            }
            _ => false,
        };
        self.authorities == other.authorities
            && self.server_name == other.server_name
            && same_identity
    }

    /// The settings for the protocol, or the reason that they cannot be used.
    #[cfg(feature = "tls")]
    pub(crate) fn config(&self) -> Result<Arc<rustls::ClientConfig>, &'static str> {
        use rustls::ClientConfig;
        use rustls::pki_types::PrivateKeyDer;
        use rustls::pki_types::pem::PemObject as _;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| "there is no protocol in common")?
            .with_root_certificates(self.roots()?);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = certificates(certificate)
                    .ok_or("the client's certificate is no certificate in PEM")?;
                let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes())
                    .map_err(|_| "the client's key is no private key in PEM")?;
                let config = config.with_client_auth_cert(certificate, key);
                config.map_err(|_| "the client's certificate is not for its key")?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    #[cfg(feature = "tls")]
    fn roots(&self) -> Result<rustls::RootCertStore, &'static str> {
        let mut roots = rustls::RootCertStore::empty();
        let Some(authorities) = &self.authorities else {
            // Systems have certificates that no client can use, so those are left out. A system
            // without any trusts no server.
            let native = rustls_native_certs::load_native_certs();
            let _counts = roots.add_parsable_certificates(native.certs);
            return Ok(roots);
        };
        for authority in certificates(authorities)
            .ok_or("there is no certificate in PEM among the authorities")?
        {
            roots.add(authority).map_err(|_| "a certificate of an authority cannot be used")?;
        }
        Ok(roots)
    }
}

/// The certificates in a text, if all of them are valid and there is one.
#[cfg(feature = "tls")]
fn certificates(pem: &[u8]) -> Option<Vec<rustls::pki_types::CertificateDer<'static>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// An authority until the year 2126, for tests.
#[cfg(all(test, feature = "tls"))]
pub(crate) const CERTIFICATE: &str = "\
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_whether_there_is_an_identity_and_no_key() {
        let shown = format!("{:?}", Tls::new().identity("a certificate", "a key".to_owned()));
        assert_eq!(shown, "Tls { identity: true, server_name: None, .. }");
        let shown = format!("{:?}", Tls::new().server_name("etcd.example"));
        assert_eq!(shown, "Tls { identity: false, server_name: Some(\"etcd.example\"), .. }");
    }

    #[test]
    fn files_without_certificates_and_keys_are_refused() {
        const CERTIFICATE: &str = "# ours\n-----BEGIN CERTIFICATE-----\n";
        const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\n";

        let trusting = |pem: &str| Tls::trusting(pem).fault();
        let identity = |certificate: &str, key: &str| Tls::new().identity(certificate, key).fault();
        assert_eq!(Tls::new().fault(), None);
        assert_eq!(trusting(CERTIFICATE), None);
        assert_eq!(identity(CERTIFICATE, KEY), None);
        for none in ["", "\n", "no certificate", "-----BEGIN CERTIFICATE REQUEST-----\n", KEY] {
            assert!(trusting(none).is_some_and(|why| why.contains("authorities")), "{none:?}");
            let fault = identity(none, KEY);
            assert!(fault.is_some_and(|why| why.contains("certificate")), "{none:?}");
        }
        for none in ["", "no key", CERTIFICATE, "-----BEGIN PUBLIC KEY-----\n"] {
            let fault = identity(CERTIFICATE, none);
            assert!(fault.is_some_and(|why| why.contains("private key")), "{none:?}");
        }
    }
}
