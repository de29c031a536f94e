//! [`Identity`]: the login of a client.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
#[cfg(feature = "sasl")]
use synod_core::random::Random;

/// The identity of a client at the servers.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    Nobody,
    /// User and password in plain text.
    Digest(UserPassword),
    /// By SASL, with a source of numbers that are never used again.
    #[cfg(feature = "sasl")]
    Sasl(UserPassword, Random),
}

/// `Debug` hides the password.
#[derive(Clone)]
pub(crate) struct UserPassword(pub(crate) String, pub(crate) SecretString);

impl UserPassword {
    pub(super) fn plain(&self) -> Vec<u8> {
        let Self(user, password) = self;
        format!("{user}:{}", password.expose_secret()).into_bytes()
    }

    #[cfg(feature = "sasl")]
    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.0, self.1.expose_secret())
    }
}

impl fmt::Debug for UserPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserPassword").field(&self.0).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_sent_as_they_are() {
        let login = UserPassword("ann".to_owned(), "a:b".into());
        assert_eq!(login.plain(), b"ann:a:b");
        #[cfg(feature = "sasl")]
        assert_eq!(login.parts(), ("ann", "a:b"));
    }
}
