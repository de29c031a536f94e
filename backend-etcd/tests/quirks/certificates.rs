//! [`Certificates`]: a certificate authority, and a certificate of it for servers and clients.

use std::process::Command;

use synod_etcd::Tls;
use synod_servers::etcd::Flavour;
use synod_servers::home::Home;

pub(crate) struct Certificates(Home);

/// Creates the certificates in the current directory.
const SCRIPT: &str = r#"
set -e
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
    -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=both \
    -keyout both.key -out both.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >ext
openssl x509 -req -in both.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
    -out both.pem
"#;

/// A key that signs tokens, and one that checks them.
const TOKEN_KEYS: &str = r#"
set -e
cd "$1"
openssl genrsa -out jwt.key 2048
openssl rsa -in jwt.key -pubout -out jwt.pub
"#;

/// Runs a script of openssl in a new directory.
fn made_by(script: &str) -> Home {
    let home = Home::new("certificates").expect("temporary");
    let mut sh = Command::new("sh");
    let made = sh.args(["-c", script, "certificates"]).arg(home.path()).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    home
}

fn files(home: &Home, names: &[&str]) -> Vec<(String, Vec<u8>)> {
    let file = |name: &&str| {
        ((*name).to_owned(), std::fs::read(home.path().join(name)).expect("just made"))
    };
    names.iter().map(file).collect()
}

/// Servers whose tokens are signed, and contain the revision of users and roles at which they were
/// issued.
pub(crate) fn signed_tokens(ttl: &str) -> Flavour {
    let home = made_by(TOKEN_KEYS);
    let mut flavour = Flavour::default();
    flavour.files = files(&home, &["jwt.key", "jwt.pub"]);
    let keys = "pub-key={home}/jwt.pub,priv-key={home}/jwt.key";
    let kind = format!("jwt,{keys},sign-method=RS256,ttl={ttl}");
    flavour.arguments = vec!["--auth-token".to_owned(), kind];
    flavour
}

impl Certificates {
    pub(crate) fn new() -> Self {
        Self(made_by(SCRIPT))
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).expect("just made")
    }

    /// A client that trusts the authority.
    pub(crate) fn trusted(&self) -> Tls {
        Tls::trusting(self.read("ca.pem"))
    }

    pub(crate) fn write(&self, name: &str, text: &[u8]) {
        std::fs::write(self.0.path().join(name), text).expect("there is room");
    }

    /// Replaces the files of another.
    pub(crate) fn copy_to(&self, other: &Self) {
        for name in ["ca.pem", "both.pem", "both.key"] {
            other.write(name, &self.read(name));
            other.write(&format!("server-{name}"), &self.read(name));
        }
    }

    /// A client that trusts the authority, with a certificate of it.
    pub(crate) fn known(&self) -> Tls {
        let key = String::from_utf8(self.read("both.key")).expect("PEM is text");
        self.trusted().identity(self.read("both.pem"), key)
    }

    /// Servers that read the files of [`copy_to`](Self::copy_to) where they are, and require a
    /// certificate of their clients.
    pub(crate) fn flavour_in_place(&self) -> Flavour {
        let mut flavour = Flavour::default();
        flavour.tls = true;
        let home = self.0.path().display();
        let arguments = format!(
            "--cert-file {home}/server-both.pem --key-file {home}/server-both.key \
             --trusted-ca-file {home}/server-ca.pem --client-cert-auth"
        );
        flavour.arguments = arguments.split_whitespace().map(str::to_owned).collect();
        flavour
    }

    /// Servers with a certificate of this authority, which require one of their clients if it is
    /// `mutual`.
    pub(crate) fn flavour(&self, mutual: bool) -> Flavour {
        let mut flavour = Flavour::default();
        flavour.tls = true;
        flavour.files = files(&self.0, &["ca.pem", "both.pem", "both.key"]);
        let shown = "--cert-file {home}/both.pem --key-file {home}/both.key";
        let wanted = "--trusted-ca-file {home}/ca.pem --client-cert-auth";
        let arguments = if mutual { format!("{shown} {wanted}") } else { shown.to_owned() };
        flavour.arguments = arguments.split_whitespace().map(str::to_owned).collect();
        flavour
    }
}
