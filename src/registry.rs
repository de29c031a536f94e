//! [`register`]: adds a store of another crate to those that URLs can name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::Backend;

use crate::scheme::{Scheme, invalid};
use crate::target::{Credentials, Target, Tls};

type Open = dyn Fn(&Opening) -> Result<Arc<dyn Backend>> + Send + Sync;

/// The stores that this program added, by scheme. A scheme is never removed.
static REGISTERED: Mutex<BTreeMap<&'static str, Arc<Open>>> = Mutex::new(BTreeMap::new());

/// Adds a store to this program: from now on `open` opens every URL that starts with `scheme://`,
/// in [`connect`](crate::connect()), [`Config`](crate::Config) and everything that is built on
/// them, such as the `synod` command.
///
/// The session's options, the deadlines, the path of the URL as namespace and tracing are the same
/// for every store. `open` makes the backend and sends nothing yet. Settings that `open` does not
/// read are an error, so that none is ignored silently: unknown parameters, credentials, TLS files.
///
/// # Errors
///
/// [`Invalid`](ErrorKind::Invalid) if `scheme` is one of synod's own, is registered already, or is
/// malformed. A scheme is a lower case letter, then lower case letters, digits, `+`, `-` and `.`.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "mem")] {
/// use std::sync::Arc;
///
/// // In place of a backend of your own.
/// use synod::mem::MemBackend;
///
/// synod::register("shelf", |opening| {
///     let name = opening.parameter("name").unwrap_or("default");
///     Ok(Arc::new(MemBackend::named(name)))
/// })?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let client = synod::connect("shelf:///app?name=orders&session=5s").await?;
/// client.close().await
/// # })?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register(
    scheme: &str,
    open: impl Fn(&Opening) -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
) -> Result<()> {
    if !is_scheme(scheme) {
        return Err(refused(format!(
            "{scheme:?} is no scheme of a URL: a lower case letter, then lower case letters, digits, +, - and ."
        )));
    }
    if Scheme::built_in(scheme).is_some() {
        return Err(refused(format!("{scheme}:// is a store of synod itself")));
    }
    let mut registered = registered();
    if registered.contains_key(scheme) {
        return Err(refused(format!("{scheme}:// is registered already")));
    }
    // Registrations are never removed, so the scheme can live as long as the program.
    registered.insert(String::leak(scheme.to_owned()), Arc::new(open));
    Ok(())
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::Invalid, "registering a store").because(why)
}

fn is_scheme(text: &str) -> bool {
    let mut letters = text.bytes();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|letter| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"+-.".contains(&letter)
        })
}

fn registered() -> MutexGuard<'static, BTreeMap<&'static str, Arc<Open>>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registered scheme that equals `text`.
pub(crate) fn scheme(text: &str) -> Option<&'static str> {
    registered().get_key_value(text).map(|(scheme, _)| *scheme)
}

/// Every registered scheme, sorted.
pub(crate) fn schemes() -> Vec<&'static str> {
    registered().keys().copied().collect()
}

/// Opens a registered store, and rejects the settings that it did not read.
pub(crate) fn open(scheme: &'static str, target: Target) -> Result<Arc<dyn Backend>> {
    let open = registered().get(scheme).cloned();
    let open = open.ok_or_else(|| invalid(format!("{scheme}:// is not registered")))?;
    let opening = Opening { scheme, target, asked: Mutex::default() };
    let backend = open(&opening)?;
    opening.refuse_the_rest()?;
    Ok(backend)
}

/// The settings of a URL and a config for a registered store: the argument of the function that
/// opens it.
///
/// `Debug` hides the password.
pub struct Opening {
    scheme: &'static str,
    target: Target,
    asked: Mutex<Asked>,
}

/// The settings that were read.
#[derive(Debug, Default)]
struct Asked {
    hosts: bool,
    credentials: bool,
    tls: bool,
    parameters: Vec<String>,
}

impl Opening {
    /// The scheme, as registered.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The part of the URL between `//` and the path, split at commas and decoded; empty if there
    /// is none.
    pub fn hosts(&self) -> &[String] {
        self.asked().hosts = true;
        &self.target.hosts
    }

    /// User and password, from the URL or the config.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.asked().credentials = true;
        self.target.credentials.as_ref()
    }

    /// The TLS files, from the URL or the config. All are `None` if none was named.
    pub fn tls(&self) -> &Tls {
        self.asked().tls = true;
        &self.target.tls
    }

    /// The parameter of the URL with this name, decoded. `session`, `timeout`, `connect`,
    /// `lazy` and the TLS files are synod's own and never among them.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.asked().parameters.push(name.to_owned());
        let found = self.target.parameters.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses parts of the URL that the backend did not read.
    fn refuse_the_rest(&self) -> Result<()> {
        let asked = self.asked();
        let scheme = self.scheme;
        if !asked.hosts && !self.target.hosts.is_empty() {
            return Err(invalid(format!("{scheme}:// has no hosts; write {scheme}:///path")));
        }
        if !asked.credentials && self.target.credentials.is_some() {
            return Err(invalid(format!(
                "{scheme}:// knows no users; leave user and password out"
            )));
        }
        if !asked.tls && self.target.tls != Tls::default() {
            return Err(invalid(format!("there are TLS files, and {scheme}:// does not use TLS")));
        }
        let known: Vec<&str> = asked.parameters.iter().map(String::as_str).collect();
        self.target.no_more_parameters(&known)
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("target", &self.target).finish_non_exhaustive()
    }
}
