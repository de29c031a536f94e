//! [`Encryption`]: the encryption of connections, with certificates that may be renewed.

use std::fmt;
use std::io;
#[cfg(feature = "tls")]
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;

use crate::client::zk_error::ZkError;
#[cfg(feature = "tls")]
use crate::tls::Source;
use crate::tls::Tls;

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
    /// If the settings cannot be used.
    pub(crate) fn new(tls: &Tls) -> Result<Self, ZkError> {
        let (config, source, tls) = (tls.config()?, tls.source.clone(), tls.clone());
        let current = Arc::new(Mutex::new(Current { tls, config, is_outdated: false }));
        Ok(Self { source, current })
    }

    /// The settings of a new connection.
    pub(crate) fn config(&self) -> Arc<rustls::ClientConfig> {
        // Read before the lock is taken: the source is code of the caller.
        let read = self.source.as_ref().map(|source| source.read().map_err(|e| e.to_string()));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = match read {
            None => return current.config.clone(),
            Some(Ok(tls)) if tls.is_same(&current.tls) => {
                current.is_outdated = false;
                return current.config.clone();
            }
            Some(Ok(tls)) => match tls.config() {
                Ok(config) => Ok((tls, config)),
                Err(ZkError::BadArguments(why)) => Err(why.to_owned()),
                Err(error) => Err(error.to_string()),
            },
            Some(Err(error)) => Err(error),
        };
        match renewed {
            Ok((tls, config)) => {
                tracing::info!("the certificates have changed: new connections use the new ones");
                *current = Current { tls, config, is_outdated: false };
            }
            // Once, and not for each attempt to connect.
            Err(error) if !current.is_outdated => {
                tracing::warn!(
                    error,
                    "the new certificates cannot be used: connections use the last ones"
                );
                current.is_outdated = true;
            }
            Err(_) => {}
        }
        current.config.clone()
    }

    pub(super) async fn around(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        use rustls::pki_types::ServerName;
        use tokio_rustls::TlsConnector;

        let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.config());
        connector.connect(name, stream).await
    }
}

#[cfg(not(feature = "tls"))]
impl Encryption {
    pub(crate) fn new(_tls: &Tls) -> Result<Self, ZkError> {
        Err(ZkError::Unimplemented)
    }

    #[expect(clippy::unused_async, reason = "with the feature it waits")]
    pub(super) async fn around(&self, _host: &str, _stream: TcpStream) -> io::Result<TcpStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}
