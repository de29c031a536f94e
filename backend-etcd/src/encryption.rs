//! [`Encryption`]: the encryption of connections, with certificates that may be renewed.

use std::fmt;
#[cfg(feature = "tls")]
use std::io;
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use http::Uri;
use tower::BoxError;

#[cfg(feature = "tls")]
use crate::tls::Source;
use crate::tls::Tls;
use crate::wire::{Connect, Io};

/// The encryption of the connections of all sessions of a backend.
#[derive(Clone)]
pub(crate) struct Encryption {
    #[cfg(feature = "tls")]
    source: Option<Source>,
    #[cfg(feature = "tls")]
    current: Arc<Mutex<Current>>,
}

/// The last usable settings.
#[cfg(feature = "tls")]
struct Current {
    tls: Tls,
    config: Arc<rustls::ClientConfig>,
    /// Later settings were read and cannot be used.
    is_outdated: bool,
}

#[cfg(feature = "tls")]
impl Encryption {
    /// Encrypts with these settings.
    ///
    /// # Errors
    ///
    /// The reason that the settings cannot be used.
    pub(crate) fn new(tls: &Tls) -> Result<Self, &'static str> {
        let (config, source, tls) = (tls.config()?, tls.source.clone(), tls.clone());
        let current = Arc::new(Mutex::new(Current { tls, config, is_outdated: false }));
        Ok(Self { source, current })
    }

    /// The settings of a new connection, and the name in the certificate of its server, if that is
    /// not the name of its host.
    fn config(&self) -> (Arc<rustls::ClientConfig>, Option<String>) {
        // Read before the lock is taken: the source is code of the caller.
        let read = self.source.as_ref().map(|source| source.read().map_err(|e| e.to_string()));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = match read {
            None => None,
            Some(Ok(tls)) if tls.is_same(&current.tls) => {
                current.is_outdated = false;
                None
            }
            Some(Ok(tls)) => match tls.config() {
                Ok(config) => Some(Ok((tls, config))),
                Err(why) => Some(Err(why.to_owned())),
            },
            Some(Err(error)) => Some(Err(error)),
        };
        match renewed {
            Some(Ok((tls, config))) => {
                tracing::info!("the certificates have changed: new connections use the new ones");
                *current = Current { tls, config, is_outdated: false };
            }
            // Once, and not for each attempt to connect.
            Some(Err(error)) if !current.is_outdated => {
                tracing::warn!(
                    error,
                    "the new certificates cannot be used: connections use the last ones"
                );
                current.is_outdated = true;
            }
            _ => {}
        }
        (current.config.clone(), current.tls.server_name.clone())
    }

    /// Encrypts a connection to a server.
    async fn around(&self, to: &Uri, io: Box<dyn Io>) -> Result<Box<dyn Io>, BoxError> {
        use hyper_util::rt::TokioIo;
        use rustls::pki_types::ServerName;
        use tokio_rustls::TlsConnector;

        let (config, name) = self.config();
        let host = to.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.unwrap_or_else(|| host.to_owned()))?;
        let stream = TlsConnector::from(config).connect(name, TokioIo::new(io)).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let why = "the server does not offer HTTP/2 over TLS";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
        }
        Ok(Box::new(TokioIo::new(stream)))
    }
}

#[cfg(not(feature = "tls"))]
impl Encryption {
    #[expect(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
    pub(crate) fn new(_tls: &Tls) -> Result<Self, &'static str> {
        Ok(Self {})
    }

    #[expect(clippy::unused_async, reason = "with the feature it waits")]
    async fn around(&self, _: &Uri, _: Box<dyn Io>) -> Result<Box<dyn Io>, BoxError> {
        // `Link::open` has refused this.
        Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
    }
}

/// Encrypts the connections that another opens.
pub(crate) struct Encrypted {
    pub(crate) way: Arc<dyn Connect>,
    pub(crate) encryption: Encryption,
}

#[async_trait]
impl Connect for Encrypted {
    async fn connect(&self, to: Uri) -> Result<Box<dyn Io>, BoxError> {
        let io = self.way.connect(to.clone()).await?;
        self.encryption.around(&to, io).await
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use synod_core::error::{Error, ErrorKind};

    use super::*;
    use crate::tls::CERTIFICATE;

    /// Broken settings and those of no file change nothing.
    #[test]
    fn settings_are_read_for_each_connection_and_broken_ones_are_not_used() {
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
        let first = encryption.config().0;
        assert_eq!(first.alpn_protocols, [b"h2"]);
        // Sessions of TLS are resumed as long as nothing changes.
        assert!(Arc::ptr_eq(&first, &encryption.config().0));
        for broken in [None, Some(String::new()), Some("no certificate".to_owned())] {
            *file.lock().expect("no panic") = broken;
            assert!(Arc::ptr_eq(&first, &encryption.config().0));
        }
        *file.lock().expect("no panic") = Some(format!("# renewed\n{CERTIFICATE}"));
        let renewed = encryption.config().0;
        assert!(!Arc::ptr_eq(&first, &renewed));
        // All sessions of a backend use the same settings.
        assert!(Arc::ptr_eq(&renewed, &encryption.clone().config().0));
    }
}
