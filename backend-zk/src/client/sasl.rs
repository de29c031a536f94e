//! [`DigestMd5`]: logging in by SASL, mechanism DIGEST-MD5 (RFC 2831), as implemented by
//! ZooKeeper's servers.

use std::collections::BTreeMap;

use crate::client::zk_error::ZkError;

/// The service of these servers.
const URI: &str = "zookeeper/zk-sasl-md5";

/// The number of the response: there is one for each challenge's nonce.
const COUNT: &str = "00000001";

/// A login that has begun.
#[derive(Debug, Default)]
pub(super) struct DigestMd5 {
    /// The expected answer of the server to the response: it proves that the server knows the
    /// password.
    expected: Option<String>,
}

/// The next step after a challenge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Respond(Vec<u8>),
    Done,
}

impl DigestMd5 {
    /// Answers the next challenge. `nonce` has never been used before.
    pub(super) fn step(
        &mut self,
        (user, password): (&str, &str),
        challenge: &[u8],
        nonce: &str,
    ) -> Result<Step, ZkError> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| STRANGE)?;
        let fields = fields(challenge);
        let field = |name| fields.get(name).map(String::as_str);
        if let Some(expected) = &self.expected {
            // Otherwise the server does not know the user.
            let proved = field("rspauth") == Some(expected.as_str());
            return if proved { Ok(Step::Done) } else { Err(ZkError::AuthFailed) };
        }
        let offered = field("qop").is_none_or(|qop| qop.split(',').any(|it| it.trim() == "auth"));
        let (Some(theirs), true) = (field("nonce"), offered) else { return Err(STRANGE) };
        let realm = field("realm").unwrap_or_default();
        let secret = md5::compute([latin(user), latin(realm), latin(password)].join(&b':'));
        let secret = [&secret.0[..], format!(":{theirs}:{nonce}").as_bytes()].concat();
        let secret = hex(&secret);
        let read_created = |whose: &str| {
            let place = hex(format!("{whose}:{URI}").as_bytes());
            hex(format!("{secret}:{theirs}:{COUNT}:{nonce}:auth:{place}").as_bytes())
        };
        self.expected = Some(read_created(""));
        let response = format!(
            "charset=utf-8,username={},realm={},nonce={},nc={COUNT},cnonce={},digest-uri=\"{URI}\",maxbuf=65536,response={},qop=auth",
            quoted(user),
            quoted(realm),
            quoted(theirs),
            quoted(nonce),
            read_created("AUTHENTICATE"),
        );
        Ok(Step::Respond(response.into_bytes()))
    }
}

const STRANGE: ZkError = ZkError::Malformed("a challenge that is not of DIGEST-MD5");

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", md5::compute(bytes))
}

/// Encodes text in Latin-1 if possible, as the RFC demands.
fn latin(text: &str) -> Vec<u8> {
    let all: Result<Vec<u8>, _> = text.chars().map(|it| u8::try_from(u32::from(it))).collect();
    all.unwrap_or_else(|_| text.as_bytes().to_vec())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The fields of a challenge: names and values, which may be quoted, between commas.
fn fields(challenge: &str) -> BTreeMap<String, String> {
    let (mut fields, mut name, mut value) = (BTreeMap::new(), None, String::new());
    let (mut is_quoted, mut is_escaped) = (false, false);
    for character in challenge.chars().chain([',']) {
        match character {
            _ if is_escaped => {
                value.push(character);
                is_escaped = false;
            }
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '=' if !is_quoted && name.is_none() => name = Some(std::mem::take(&mut value)),
            ',' if !is_quoted => {
                let value = std::mem::take(&mut value);
                if let Some(name) = name.take() {
                    fields.entry(name.trim().to_owned()).or_insert(value);
                }
            }
            _ => value.push(character),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_cut_at_commas_outside_quotes() {
        let found = fields(r#"realm="a,\"b",nonce=x==, qop="auth,auth-int",algorithm=md5-sess"#);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let all = [
            ("algorithm", "md5-sess"),
            ("nonce", "x=="),
            ("qop", "auth,auth-int"),
            ("realm", "a,\"b"),
        ];
        assert_eq!(found, all);
        assert_eq!(fields(r"realm=a\b")["realm"], r"a\b", "nothing is escaped outside quotes");
    }

    #[test]
    fn text_is_latin_where_it_can_be() {
        assert_eq!(latin("né"), [b'n', 0xe9]);
        assert_eq!(latin("é€"), "é€".as_bytes());
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_refused() {
        let mut login = DigestMd5::default();
        let challenge = br#"realm="zk-sasl-md5",nonce="abc",charset=utf-8,qop="auth""#;
        let Ok(Step::Respond(response)) = login.step(("ann", "pw"), challenge, "xyz") else {
            panic!("it is a challenge")
        };
        let response = fields(&String::from_utf8(response).expect("it is text"));
        assert_eq!(response["username"], "ann");
        assert_eq!(response["digest-uri"], URI);
        assert_eq!(response["response"].len(), 32);
        let expected = login.expected.clone().expect("it was computed");
        let lie = login.step(("ann", "pw"), b"rspauth=00", "xyz");
        assert_eq!(lie, Err(ZkError::AuthFailed));
        let created_path = format!("rspauth={expected}");
        assert_eq!(login.step(("ann", "pw"), created_path.as_bytes(), "xyz"), Ok(Step::Done));
    }

    #[test]
    fn a_response_is_that_of_another_client() {
        // The example of RFC 2831 has another service; only the text that is hashed last differs.
        let secret = md5::compute("chris:elwood.innosoft.com:secret");
        let secret = [&secret.0[..], b":OA6MG9tEQGm2hh:OA6MHXh6VqTrRk"].concat();
        let (secret, place) = (hex(&secret), hex(b"AUTHENTICATE:imap/elwood.innosoft.com"));
        let whole = format!("{secret}:OA6MG9tEQGm2hh:{COUNT}:OA6MHXh6VqTrRk:auth:{place}");
        assert_eq!(hex(whole.as_bytes()), "d388dad90d4bbd760a152321f2143af7");
    }

    #[test]
    fn what_is_no_challenge_is_refused() {
        for challenge in [&b"\xff"[..], b"", b"realm=x", br#"nonce="a",qop="auth-conf""#] {
            let step = DigestMd5::default().step(("ann", "pw"), challenge, "xyz");
            assert_eq!(step, Err(STRANGE));
        }
    }
}
