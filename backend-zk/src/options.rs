//! [`ZkOptions`]: the servers, the credentials and the access rights.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{ServerList, ServerSource};

use crate::acl::Acl;
use crate::client::connector::MAX_ANSWER;
use crate::tls::Tls;

/// The servers, the credentials, and the access rights of the nodes that the client creates.
///
/// `Debug` hides the password.
#[derive(Clone)]
#[non_exhaustive]
pub struct ZkOptions {
    /// The servers, each `host:port` or `host`.
    pub hosts: Vec<String>,
    /// The source of the servers. `None`: [`hosts`](Self::hosts) are all servers.
    pub servers: Option<Arc<dyn ServerSource>>,
    /// The servers are those that the ensemble reports, with [`hosts`](Self::hosts) as the last
    /// resort.
    pub follow_ensemble: bool,
    /// User and password.
    pub credentials: Option<(String, SecretString)>,
    /// The login to the servers.
    pub login: Login,
    /// Further identities of the client, each user and password.
    pub identities: Vec<(String, SecretString)>,
    /// The encryption of connections. `None`: connections are not encrypted.
    pub tls: Option<Tls>,
    /// The access rights of new nodes. Without credentials, this must be given.
    pub access: Option<Access>,
    /// The access lists of new nodes at and below a path. The longest path decides; `access` is for
    /// all others. Paths are those of the servers.
    pub acls: BTreeMap<Path, Acl>,
    /// The longest `tickTime` of the servers. It bounds the delay after which their leader learns
    /// of a heartbeat. The default is 3 s, which is that of the servers, or half of a session's
    /// time to live if that is less: with default settings, servers give no shorter session. Set it
    /// where the tick is longer than 3 s, or where `minSessionTimeout` is less than two ticks; and
    /// where the tick is shorter, as in ZooKeeper's sample configuration with 2 s, for sessions
    /// that are certain for longer.
    pub tick: Option<Duration>,
    /// The maximum length of an answer, in bytes: 256 MiB by default. Servers have no limit for the
    /// answer to a read of many nodes. A longer answer fails as
    /// [`TooLarge`](synod_core::error::ErrorKind::TooLarge), unless it can be read in parts.
    pub max_answer: usize,
    /// Omits listings in directories where the session is the only contender.
    pub(crate) listing_cache: bool,
    /// The heartbeat that keeps a session alive.
    pub heartbeat: Heartbeat,
    /// User and password may be sent unencrypted to servers on other machines.
    pub plaintext_auth: bool,
}

/// The heartbeat that keeps a session alive; the choice decides what an answer proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heartbeat {
    /// `sync`, which the leader of the servers answers. It writes nothing. A leader that has lost
    /// its quorum answers it until it notices; its successor gives every session its full time
    /// again.
    Sync,
    /// A transaction with one check, which only a leader with a quorum answers. It costs a write to
    /// the servers' logs in each tenth of a session's time.
    Write,
}

/// The login of the client to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// User and password in plain text. The servers have no list of users: every combination of
    /// user and password is an identity of its own.
    Digest,
    /// SASL, mechanism DIGEST-MD5: the servers have a list of users. Needs the feature `sasl`:
    /// without it, [`ZkBackend::new`](crate::ZkBackend::new) refuses it as
    /// [`Unsupported`](synod_core::error::ErrorKind::Unsupported).
    Sasl,
}

/// The clients that may read and write the nodes that this client creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Clients with the same credentials only.
    Creator,
    /// Every client that can connect to a server.
    Open,
}

impl Access {
    /// The list of a node.
    pub(crate) fn acl(self) -> Acl {
        match self {
            Self::Creator => Acl::creator(),
            Self::Open => Acl::open(),
        }
    }
}

/// The limits of the maximum length of an answer. Lengths are numbers of 31 bits.
const ANSWERS: RangeInclusive<usize> = 1 << 16..=(1 << 31) - 1;

impl ZkOptions {
    /// Options for these servers, each `host:port` or `host`, without credentials.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        let hosts = hosts.into_iter().map(Into::into).collect();
        Self {
            hosts,
            servers: None,
            follow_ensemble: false,
            credentials: None,
            login: Login::Digest,
            identities: Vec::new(),
            tls: None,
            access: None,
            acls: BTreeMap::new(),
            tick: None,
            max_answer: MAX_ANSWER,
            listing_cache: true,
            heartbeat: Heartbeat::Sync,
            plaintext_auth: false,
        }
    }

    /// Sets the source of the servers, which is read again while clients use the backend. Without
    /// hosts the first session waits for it; with hosts, they are the servers until it was read.
    ///
    /// A client whose server is not in the list any more continues its session at another server.
    /// If it reaches none of the list, it returns to the server that it left.
    pub fn servers(mut self, source: impl ServerSource) -> Self {
        self.servers = Some(Arc::new(source));
        self
    }

    /// Sets whether the servers are those of the ensemble's dynamic configuration, which is read
    /// with each connection and after each change. The hosts remain as the last resort, also if the
    /// configuration names addresses that this client cannot reach.
    ///
    /// A client stays at its server as long as that answers. Each server's certificate is checked
    /// against its own name. With TLS the ports are that of the hosts, which must have the same
    /// one: the configuration names only the ports for connections that are not encrypted.
    pub fn follow_ensemble(mut self, follows: bool) -> Self {
        self.follow_ensemble = follows;
        self
    }

    /// Sets user and password.
    pub fn credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<SecretString>,
    ) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// Sets the login to the servers.
    pub fn login(mut self, login: Login) -> Self {
        self.login = login;
        self
    }

    /// Adds an identity of the client, beside the user of [`credentials`](Self::credentials):
    /// another user and password of the scheme `digest`. The client has the permissions of all its
    /// identities, and `creator` in a list means each of them.
    #[doc(alias = "addauth")]
    #[doc(alias = "add_auth")]
    pub fn add_identity(
        mut self,
        user: impl Into<String>,
        password: impl Into<SecretString>,
    ) -> Self {
        self.identities.push((user.into(), password.into()));
        self
    }

    /// Sets the encryption of connections.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the access rights of new nodes.
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Sets the access list of new nodes at and below a path, until a list for a longer path.
    ///
    /// It holds for directories and containers that are created for other nodes, too. Those never
    /// give the permission to write. Nodes that exist keep their lists.
    pub fn acl(mut self, path: Path, acl: Acl) -> Self {
        self.acls.insert(path, acl);
        self
    }

    /// Sets the longest tick of the servers.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// Sets the maximum length of an answer, from 64 KiB to 2 GiB.
    pub fn max_answer(mut self, bytes: usize) -> Self {
        self.max_answer = bytes;
        self
    }

    /// Sets the heartbeat that keeps a session alive.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets whether user and password may be sent unencrypted to servers on other machines.
    pub fn plaintext_auth(mut self, allowed: bool) -> Self {
        self.plaintext_auth = allowed;
        self
    }

    /// Switches the listing cache, for tests: without it, a listing follows each create of a
    /// ticket, also where the session is the only contender.
    #[doc(hidden)]
    pub fn listing_cache(mut self, is_on: bool) -> Self {
        self.listing_cache = is_on;
        self
    }

    /// Validates the options, and returns them with the access rights resolved.
    pub(crate) fn checked(mut self) -> Result<(Self, Access)> {
        if self.hosts.is_empty() && self.servers.is_none() {
            return Err(invalid("no servers are named"));
        }
        if self.follow_ensemble && self.servers.is_some() {
            return Err(invalid("the servers are of a source, or follow the ensemble; say one"));
        }
        if self.hosts.iter().any(|host| is_odd(host)) {
            return Err(invalid(ODD));
        }
        let mut users = self.credentials.iter().chain(&self.identities).map(|(user, _)| user);
        if users.any(|user| user.is_empty() || user.contains(':')) {
            return Err(invalid("a user's name is not empty and holds no colon"));
        }
        if self.tls.is_some() && !cfg!(feature = "tls") {
            return Err(Error::new(ErrorKind::Unsupported, DOING)
                .because("this program was built without the feature `tls` of synod"));
        }
        if let Some(fault) = self.tls.as_ref().and_then(Tls::fault) {
            return Err(invalid(fault));
        }
        if self.login == Login::Sasl {
            if !cfg!(feature = "sasl") {
                return Err(Error::new(ErrorKind::Unsupported, DOING)
                    .because("this program was built without the feature `sasl` of synod"));
            }
            if self.credentials.is_none() {
                return Err(invalid("a login by SASL needs user and password"));
            }
        }
        if self.keeps_to_this_machine() && !self.hosts.iter().all(|host| is_local(host)) {
            return Err(invalid(IN_CLEAR));
        }
        if self.tick.is_some_and(|tick| tick.is_zero()) {
            return Err(invalid("the servers' tick is more than zero"));
        }
        if !ANSWERS.contains(&self.max_answer) {
            return Err(invalid("the longest answer is from 64 KiB to 2 GiB"));
        }
        let known = self.credentials.is_some()
            || !self.identities.is_empty()
            || self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        if let Some(fault) = self.acls.values().find_map(Acl::fault) {
            return Err(invalid(fault));
        }
        if !known && self.acls.values().any(Acl::has_creator) {
            return Err(invalid(
                "an access list with auth or creator needs the identity of the creator: give user \
                 and password",
            ));
        }
        let access = match (self.access, known) {
            (Some(Access::Creator), false) => {
                return Err(invalid(
                    "Access::Creator needs the identity of the creator: give user and password",
                ));
            }
            (Some(access), _) => access,
            (None, true) => Access::Creator,
            // Never used.
            (None, false) if self.acls.contains_key(&Path::root()) => Access::Open,
            (None, false) => {
                return Err(invalid(
                    "the access rights of new nodes are not set: give user and password, or let \
                     every client use them with Access::Open (in a URL, ?acl=open)",
                ));
            }
        };
        self.access = Some(access);
        Ok((self, access))
    }
}

impl ZkOptions {
    /// The servers, with their ports. Those of a source are validated as the hosts are.
    pub(crate) fn server_list(&self) -> ServerList {
        let hosts = self.hosts.iter().map(|host| with_port(host)).collect();
        let local_only = self.keeps_to_this_machine();
        let check = move |host: &str| {
            if is_odd(host) {
                return Err(invalid(ODD));
            }
            if local_only && !is_local(host) {
                return Err(invalid(IN_CLEAR));
            }
            Ok(with_port(host))
        };
        match &self.servers {
            Some(source) => ServerList::following(hosts, source.clone(), check),
            None if self.follow_ensemble => ServerList::of_ensemble(hosts, check),
            None => ServerList::fixed(hosts),
        }
    }

    /// Returns whether user and password may be sent to servers on this machine only.
    fn keeps_to_this_machine(&self) -> bool {
        let has_digest = self.credentials.is_some() && self.login == Login::Digest;
        let has_password = has_digest || !self.identities.is_empty();
        has_password && self.tls.is_none() && !self.plaintext_auth
    }
}

const ODD: &str = "a server is host:port or host, and nothing else";
const IN_CLEAR: &str = "user and password would be sent unencrypted: use TLS (zks://), or allow it with \
     ZkOptions::plaintext_auth (in a URL, ?plaintext=allow)";

fn is_odd(host: &str) -> bool {
    let odd = |c: char| c == ',' || c == '/' || c.is_whitespace() || c.is_control();
    host.is_empty() || host.contains(odd)
}

/// A server with its port, by default ZooKeeper's.
pub(crate) fn with_port(host: &str) -> String {
    const USUAL: u16 = 2181;

    match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{USUAL}"),
    }
}

/// Returns whether a server is on this machine, judged by its name.
fn is_local(host: &str) -> bool {
    let host = with_port(host);
    let name = host.rsplit_once(':').map_or("", |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

pub(crate) const DOING: &str = "reading the options for ZooKeeper";

fn invalid(why: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, DOING).because(why)
}

impl fmt::Debug for ZkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkOptions")
            .field("hosts", &self.hosts)
            .field("servers", &self.servers)
            .field("follow_ensemble", &self.follow_ensemble)
            .field("user", &self.credentials.as_ref().map(|(user, _)| user))
            .field("login", &self.login)
            .field("identities", &self.identities.iter().map(|it| &it.0).collect::<Vec<_>>())
            .field("tls", &self.tls)
            .field("access", &self.access)
            .field("acls", &self.acls)
            .field("tick", &self.tick)
            .field("max_answer", &self.max_answer)
            .field("heartbeat", &self.heartbeat)
            .field("plaintext_auth", &self.plaintext_auth)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_access_or_credentials_are_refused() {
        let refused =
            ZkOptions::new(["localhost:2181"]).checked().expect_err("no access was configured");
        assert!(refused.to_string().contains("?acl=open"), "{refused}");
        let known = ZkOptions::new(["localhost"]).credentials("ann", "canary-7f3a".to_owned());
        assert_eq!(known.clone().checked().expect("valid").1, Access::Creator);
        assert!(!format!("{known:?}").contains("canary"), "{known:?}");
        let open = ZkOptions::new(["[::1]:2181"]).access(Access::Open);
        assert_eq!(open.checked().expect("valid").1, Access::Open);
    }

    #[test]
    fn a_password_is_sent_in_clear_only_if_that_is_allowed() {
        let known = |hosts: &[&str]| {
            let options = ZkOptions::new(hosts.iter().copied());
            options.credentials("ann", "canary-7f3a".to_owned())
        };
        for hosts in
            [&["zk1"][..], &["10.0.0.1:2181"], &["localhost", "zk1"], &["[2001:db8::1]:2181"]]
        {
            let refused = known(hosts).checked().expect_err("it would be sent in clear");
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{hosts:?}");
            assert!(refused.to_string().contains("?plaintext=allow"), "{refused}");
            assert!(known(hosts).plaintext_auth(true).checked().is_ok(), "{hosts:?}");
        }
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1", "127.1.2.3:2181", "[::1]:2181", "[::1]"]
        {
            assert!(known(&[host]).checked().is_ok(), "{host}");
        }
        let more = |host: &str| {
            let options = ZkOptions::new([host]).access(Access::Open).login(Login::Digest);
            options.add_identity("bob", "canary-7f3a".to_owned())
        };
        assert!(more("zk1").checked().is_err() && more("localhost").checked().is_ok());
        assert!(more("zk1").plaintext_auth(true).checked().is_ok());
        // Without credentials there is no secret to send.
        assert!(ZkOptions::new(["zk1"]).access(Access::Open).checked().is_ok());
    }

    #[test]
    fn odd_servers_and_users_are_refused() {
        for hosts in [vec![], vec![""], vec!["a,b"], vec!["tcp://a"], vec!["a/b"], vec!["a b"]] {
            let refused = ZkOptions::new(hosts.clone()).access(Access::Open).checked();
            assert_eq!(refused.expect_err("odd").kind(), ErrorKind::Invalid, "{hosts:?}");
        }
        for user in ["", "a:b"] {
            let options = || ZkOptions::new(["localhost"]);
            for odd in [
                options().credentials(user, "canary-7f3a".to_owned()),
                options().add_identity("ann", "pw".to_owned()).add_identity(user, "canary-7f3a"),
            ] {
                assert!(!format!("{odd:?}").contains("canary"), "{odd:?}");
                let refused = odd.checked().expect_err("odd");
                assert!(!format!("{refused} {refused:?}").contains("canary"));
            }
        }
        assert!(ZkOptions::new(["h"]).access(Access::Creator).checked().is_err());
    }

    #[test]
    fn lists_that_no_server_would_take_are_refused() {
        let list = |text: &str| text.parse::<Acl>().expect("valid");
        let options = |path: &str, acl: Acl| {
            let options = ZkOptions::new(["localhost"]).access(Access::Open);
            options.acl(Path::new(path).expect("valid"), acl)
        };
        for acl in [Acl::new([]), Acl::creator(), list("world:r,creator:all")] {
            let refused = options("/a", acl.clone()).checked().expect_err("no identity");
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{acl}");
        }
        let known = options("/a", Acl::creator()).credentials("ann", "canary-7f3a".to_owned());
        assert!(known.checked().is_ok());
        let known = options("/a", Acl::creator()).add_identity("ann", "canary-7f3a");
        assert!(known.checked().is_ok());
        // A list for the root decides for all paths.
        let root = ZkOptions::new(["localhost"]).acl(Path::root(), list("world:cdr"));
        assert!(root.checked().is_ok());
        let other = ZkOptions::new(["localhost"]).acl(Path::new("/a").expect("valid"), Acl::open());
        assert!(other.checked().is_err());
    }

    #[test]
    fn the_longest_answer_has_a_length_that_can_be() {
        for (bytes, is_valid) in
            [(0, false), (65_535, false), (65_536, true), (2_147_483_647, true), (1 << 31, false)]
        {
            let options = ZkOptions::new(["localhost"]).access(Access::Open).max_answer(bytes);
            assert_eq!(options.checked().is_ok(), is_valid, "{bytes}");
        }
    }

    #[test]
    fn a_server_has_zookeepers_port_unless_it_has_one() {
        for (host, whole) in [
            ("zk1", "zk1:2181"),
            ("zk1:7", "zk1:7"),
            ("zk1:seven", "zk1:seven:2181"),
            ("[::1]", "[::1]:2181"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(with_port(host), whole);
        }
    }
}
