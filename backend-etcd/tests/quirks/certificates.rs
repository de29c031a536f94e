//! [`Certificates`]: an authority, and a certificate of it for servers and clients.

use std::process::Command;

use synod_conformance::server::etcd::Flavour;
use synod_conformance::server::home::Home;
use synod_etcd::Tls;

pub(crate) struct Certificates(Home);

/// Makes them in this directory.
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

impl Certificates {
    pub(crate) fn new() -> Self {
        let home = Home::new("certificates").expect("temporary");
        let mut sh = Command::new("sh");
        let made = sh.args(["-c", SCRIPT, "certificates"]).arg(home.path()).output();
        assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
        Self(home)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).expect("just made")
    }

    /// Who trusts the authority.
    pub(crate) fn trusted(&self) -> Tls {
        Tls::trusting(self.read("ca.pem"))
    }

    /// Servers that show theirs, and want to see those of their clients if it is `mutual`.
    pub(crate) fn flavour(&self, mutual: bool) -> Flavour {
        let mut flavour = Flavour::default();
        flavour.tls = true;
        let files = ["ca.pem", "both.pem", "both.key"];
        flavour.files = files.map(|name| (name.to_owned(), self.read(name))).to_vec();
        let shown = "--cert-file {home}/both.pem --key-file {home}/both.key";
        let wanted = "--trusted-ca-file {home}/ca.pem --client-cert-auth";
        let arguments = if mutual { format!("{shown} {wanted}") } else { shown.to_owned() };
        flavour.arguments = arguments.split_whitespace().map(str::to_owned).collect();
        flavour
    }
}
