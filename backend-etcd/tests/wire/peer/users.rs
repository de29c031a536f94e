//! [`Users`]: names, passwords and the tokens that are issued for them.

use tonic::Code;

use super::message::AuthenticateRequest;
use super::refusal::Refusal;

/// The only user, if a login is required.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    only: Option<(String, String)>,
    /// The current revision of the users; tokens contain the revision at which they were issued.
    revision: u64,
    /// Tokens with a lower number are not valid.
    valid_from: u64,
    given: u64,
    /// True if requests about leases need a login too, as since 3.5.30.
    pub(crate) guards_leases: bool,
}

impl Users {
    pub(crate) fn require(&mut self, name: &str, password: &str) {
        self.only = Some((name.into(), password.into()));
    }

    /// Simulates an added user: earlier signed tokens are refused.
    pub(crate) fn change(&mut self) {
        self.revision += 1;
    }

    /// Simulates that all tokens have expired.
    pub(crate) fn forget_tokens(&mut self) {
        self.valid_from = self.given;
    }

    pub(crate) fn disable(&mut self) {
        self.only = None;
    }

    /// Issues a token.
    pub(crate) fn authenticate(
        &mut self,
        request: &AuthenticateRequest,
    ) -> Result<String, Refusal> {
        let Some((name, password)) = &self.only else {
            let why = "authentication is not enabled";
            return Err(Refusal::etcd(Code::FailedPrecondition, why));
        };
        if (name, password) != (&request.name, &request.password) {
            let why = "authentication failed, invalid user ID or password";
            return Err(Refusal::etcd(Code::InvalidArgument, why));
        }
        self.given += 1;
        Ok(format!("{}.{}", self.revision, self.given - 1))
    }

    /// Checks that a request with this token is permitted.
    pub(crate) fn check(&self, token: Option<&str>) -> Result<(), Refusal> {
        if self.only.is_none() {
            return Ok(());
        }
        let Some(token) = token else {
            return Err(Refusal::etcd(Code::InvalidArgument, "user name is empty"));
        };
        let parsed = token.split_once('.').and_then(|(revision, number)| {
            Some((revision.parse::<u64>().ok()?, number.parse::<u64>().ok()?))
        });
        match parsed {
            Some((_, number)) if number < self.valid_from => Err(invalid_token()),
            Some((revision, _)) if revision < self.revision => {
                Err(Refusal::etcd(Code::InvalidArgument, "revision of auth store is old"))
            }
            Some(_) => Ok(()),
            None => Err(invalid_token()),
        }
    }
}

fn invalid_token() -> Refusal {
    Refusal::etcd(Code::Unauthenticated, "invalid auth token")
}
