//! [`Tls`]: how connections are encrypted.

use std::fmt;

use etcd_client::Error as EtcdError;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::transport::Endpoint;

/// The trusted authorities and the client's identity, as certificates in PEM. Names of servers are
/// always checked.
///
/// Needs the feature `tls`: without it, opening a session fails as
/// [`Unsupported`](synod_core::error::ErrorKind::Unsupported).
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, SecretString)>,
    server_name: Option<String>,
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

    #[cfg(feature = "tls")]
    pub(crate) fn configure(&self, endpoint: Endpoint) -> Result<Endpoint, EtcdError> {
        use tonic::transport::{Certificate, ClientTlsConfig, Identity};

        let tls = ClientTlsConfig::new();
        let mut tls = match &self.authorities {
            Some(authorities) => tls.ca_certificate(Certificate::from_pem(authorities)),
            None => tls.with_enabled_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key.expose_secret()));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(endpoint.tls_config(tls)?)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    pub(crate) fn configure(&self, _: Endpoint) -> Result<Endpoint, EtcdError> {
        Err(EtcdError::GRpcStatus(tonic::Status::unimplemented(
            "this program was built without the feature `tls` of synod",
        )))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

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
