//! [`Acl`]: an access list, as ZooKeeper's own tools write it.

use std::fmt;
use std::net::IpAddr;
use std::ops::BitOr;
use std::str::FromStr;
use std::sync::Arc;

use synod_core::error::{Error, ErrorKind, Result};

/// The access list of a node: the permissions of each identity. A client has the permissions of
/// every entry that names one of its identities.
///
/// The text is that of ZooKeeper's `setAcl`: entries `scheme:id:permissions`, separated by commas.
/// `open` and `creator` are whole lists.
///
/// ```
/// let list: synod_zk::Acl = "world:anyone:r,auth::cdrwa".parse()?;
/// assert_eq!(list, "world:read,creator:all".parse()?);
/// # Ok::<(), synod_core::error::Error>(())
/// ```
///
/// A list holds for its node only, and not for the nodes below. The permissions to create and to
/// delete a node are those of its parent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Acl(Arc<[AclEntry]>);

/// One entry of an access list.
///
/// `Debug` hides the hash of a password.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AclEntry {
    /// The kind of the identity: `world`, `auth`, `digest`, `sasl`, `x509`, `ip`, or the name of a
    /// plugin of the servers.
    pub scheme: String,
    /// The identity: `anyone` of `world`; empty for `auth`, which means every identity of the
    /// client that writes the list; `user:hash` of `digest`; a user of `sasl`; the subject of an
    /// `x509` certificate; an address or a network `address/bits` of `ip`.
    pub id: String,
    /// The permissions of the identity.
    pub permissions: Permissions,
}

/// A set of permissions. The text is the letters `cdrwa`, or names joined by `+`, or `all`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(i32);

impl Permissions {
    /// Reads the node's data and lists its children.
    pub const READ: Self = Self(1);
    /// Sets the node's data.
    pub const WRITE: Self = Self(1 << 1);
    /// Creates children.
    pub const CREATE: Self = Self(1 << 2);
    /// Deletes children.
    pub const DELETE: Self = Self(1 << 3);
    /// Sets the access list, and reads it in full.
    pub const ADMIN: Self = Self(1 << 4);
    /// Every permission.
    pub const ALL: Self = Self(0b1_1111);

    /// In the order of ZooKeeper's tools.
    const NAMED: [(char, &str, Self); 5] = [
        ('c', "create", Self::CREATE),
        ('d', "delete", Self::DELETE),
        ('r', "read", Self::READ),
        ('w', "write", Self::WRITE),
        ('a', "admin", Self::ADMIN),
    ];

    /// Returns whether all of these permissions are in the set.
    pub const fn contains(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The permissions that a server sent.
    pub(crate) const fn of_bits(bits: i32) -> Self {
        Self(bits & Self::ALL.0)
    }

    pub(crate) const fn bits(self) -> i32 {
        self.0
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Acl {
    /// A list of these entries. The servers refuse an empty list.
    pub fn new(entries: impl IntoIterator<Item = AclEntry>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// Every permission, for every client.
    pub fn open() -> Self {
        Self::new([AclEntry::new("world", "anyone", Permissions::ALL)])
    }

    /// Every permission, for clients with an identity of the client that writes the list.
    pub fn creator() -> Self {
        Self::new([AclEntry::new("auth", "", Permissions::ALL)])
    }

    /// The entries.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// The same list without the permission to write the node itself. An entry without any
    /// permission is left out, but servers refuse an empty list.
    pub(crate) fn without_writing(&self) -> Self {
        let entries = self.0.iter().cloned().map(|mut entry| {
            entry.permissions = entry.permissions.without(Permissions::WRITE);
            entry
        });
        let left = Self::new(entries.clone().filter(|entry| !entry.permissions.is_empty()));
        if left.0.is_empty() { Self::new(entries) } else { left }
    }

    /// The length in a request.
    pub(crate) fn size(&self) -> usize {
        /// A number and two lengths.
        const NUMBERS: usize = 12;

        self.0.iter().map(|entry| NUMBERS + entry.scheme.len() + entry.id.len()).sum()
    }

    /// Returns whether an entry means the identities of the client that writes the list.
    pub(crate) fn has_creator(&self) -> bool {
        self.0.iter().any(|entry| entry.scheme == "auth")
    }

    /// The reason that servers would refuse the list, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.0.is_empty() {
            return Some("an access list has an entry, as in world:anyone:r".to_owned());
        }
        self.0.iter().find_map(AclEntry::fault)
    }
}

impl AclEntry {
    /// An entry: see the fields.
    pub fn new(scheme: impl Into<String>, id: impl Into<String>, permissions: Permissions) -> Self {
        Self { scheme: scheme.into(), id: id.into(), permissions }
    }

    /// The reason that this is not an entry. It never has the identity in it: in the place of a
    /// hash, that may be a password.
    fn fault(&self) -> Option<String> {
        let Self { scheme, id, permissions } = self;
        if permissions.is_empty() {
            return Some(format!("an entry of {scheme} gives a permission"));
        }
        let is_right = match scheme.as_str() {
            "world" => id == "anyone",
            "auth" => id.is_empty(),
            "digest" => is_digest(id),
            "ip" => is_network(id),
            _ => !scheme.is_empty() && !id.is_empty(),
        };
        let form = match scheme.as_str() {
            "world" => "the only identity of world is anyone, as in world:anyone:r",
            "auth" => "auth has no identity, as in auth::cdrwa",
            "digest" => {
                "digest needs user:hash, where the hash is SHA-1 of user:password in Base64 and \
                 never the password, as in digest:ann:ymUFk1NUd8pG9RKGTgHKqRMiFmU=:cdrwa"
            }
            "ip" => "ip needs an address or a network, as in ip:10.0.0.0/8:r",
            "sasl" => "sasl needs a user, as in sasl:ann:cdrwa",
            "x509" => "x509 needs the subject of a certificate, as in x509:CN=ann,O=shop:cdrwa",
            _ => "an entry needs a scheme and an identity",
        };
        (!is_right).then(|| form.to_owned())
    }
}

/// Returns whether this is a user with the Base64 text of 20 bytes.
fn is_digest(id: &str) -> bool {
    const LENGTH: usize = 28;

    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    id.split_once(':').is_some_and(|(user, hash)| {
        let digits = hash.strip_suffix('=').unwrap_or_default();
        !user.is_empty() && hash.len() == LENGTH && digits.chars().all(is_base64)
    })
}

fn is_network(id: &str) -> bool {
    let (address, bits) = id.split_once('/').map_or((id, None), |(at, bits)| (at, Some(bits)));
    address.parse::<IpAddr>().is_ok_and(|address| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|bits| bits <= most))
    })
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "reading an access list").because(why.into())
}

impl FromStr for Permissions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let by_name = |name: &str| Self::NAMED.iter().find(|known| known.1 == name);
        let by_letter = |letter: char| Self::NAMED.iter().find(|known| known.0 == letter);
        let names: Option<Vec<_>> = text.split('+').map(by_name).collect();
        let all = names.or_else(|| text.chars().map(by_letter).collect()).unwrap_or_default();
        if all.is_empty() {
            return Err(invalid(
                "permissions are letters of cdrwa, or create, delete, read, write and admin joined \
                 by +, or all",
            ));
        }
        Ok(all.into_iter().fold(Self(0), |set, known| set | known.2))
    }
}

impl FromStr for AclEntry {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| {
            invalid("an entry of an access list is scheme:id:permissions, as in world:anyone:r")
        })?;
        let (id, permissions) = rest.rsplit_once(':').unwrap_or(("", rest));
        let (scheme, id) = match (scheme, id) {
            ("world", "") => ("world", "anyone"),
            ("creator" | "auth", id) => ("auth", id),
            ("world" | "digest" | "sasl" | "x509" | "ip", id) => (scheme, id),
            _ => {
                return Err(invalid(
                    "the scheme of an access list is world, auth or creator, digest, sasl, x509 or \
                     ip",
                ));
            }
        };
        let entry = Self::new(scheme, id, permissions.parse()?);
        entry.fault().map_or(Ok(entry), |fault| Err(invalid(fault)))
    }
}

impl FromStr for Acl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "open" => return Ok(Self::open()),
            "creator" => return Ok(Self::creator()),
            _ => {}
        }
        let mut entries: Vec<AclEntry> = Vec::new();
        let mut rest = Some(text);
        while let Some(all) = rest {
            // The subject of a certificate has commas itself: it ends with the permissions.
            let commas = all.match_indices(',').map(|(at, _)| at).chain([all.len()]);
            let ends_well = |end: &usize| {
                !all.starts_with("x509:")
                    || all[..*end].rsplit_once(':').is_some_and(|(before, permissions)| {
                        before != "x509" && permissions.parse::<Permissions>().is_ok()
                    })
            };
            let end = commas.clone().find(ends_well).unwrap_or(all.len());
            entries.push(all[..end].parse()?);
            rest = all.get(end + 1..);
        }
        Ok(Self::new(entries))
    }
}

impl BitOr for Permissions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = Self::NAMED.iter().filter(|known| self.contains(known.2));
        f.write_str(&letters.map(|known| known.0).collect::<String>())
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({self})")
    }
}

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.scheme, self.id, self.permissions)
    }
}

impl fmt::Debug for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, id, permissions } = self;
        match id.split_once(':').filter(|_| scheme == "digest") {
            Some((user, _)) => write!(f, "{scheme}:{user}:***:{permissions}"),
            None if scheme == "digest" => write!(f, "{scheme}:***:{permissions}"),
            None => write!(f, "{scheme}:{id}:{permissions}"),
        }
    }
}

impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{entry}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ymUFk1NUd8pG9RKGTgHKqRMiFmU=";

    fn list(text: &str) -> Acl {
        text.parse().expect("valid")
    }

    #[test]
    fn permissions_are_what_the_servers_call_them() {
        for (text, bits, letters) in [
            ("r", 1, "r"),
            ("read", 1, "r"),
            ("rw", 3, "rw"),
            ("write+read", 3, "rw"),
            ("acdrw", 31, "cdrwa"),
            ("rrr", 1, "r"),
            ("all", 31, "cdrwa"),
            ("create+delete+admin", 28, "cda"),
        ] {
            let permissions: Permissions = text.parse().expect("valid");
            assert_eq!((permissions.bits(), permissions.to_string().as_str()), (bits, letters));
            assert_eq!(permissions.to_string().parse::<Permissions>().ok(), Some(permissions));
        }
        for odd in ["", "x", "R", "read+", "+", "read,write", "all+read", "r+w", "read write"] {
            assert!(odd.parse::<Permissions>().is_err(), "{odd:?}");
        }
    }

    #[test]
    fn a_list_is_read_as_its_text_says() {
        for (text, shown) in [
            ("open", "world:anyone:cdrwa"),
            ("creator", "auth::cdrwa"),
            ("world:r,creator:all", "world:anyone:r,auth::cdrwa"),
            ("world:anyone:read+create,sasl:ann:w", "world:anyone:cr,sasl:ann:w"),
            (
                "ip:10.0.0.0/8:r,ip:fd00::1/64:rw,ip:::1:r",
                "ip:10.0.0.0/8:r,ip:fd00::1/64:rw,ip:::1:r",
            ),
            ("x509:CN=ann,O=shop,C=de:all,world:r", "x509:CN=ann,O=shop,C=de:cdrwa,world:anyone:r"),
            ("world:r,x509:CN=a:rw,x509:CN=b,O=c:r", "world:anyone:r,x509:CN=a:rw,x509:CN=b,O=c:r"),
        ] {
            assert_eq!(list(text).to_string(), shown);
            assert_eq!(list(shown), list(text));
        }
        assert_eq!(list("open"), Acl::open());
        assert_eq!(list("creator"), Acl::creator());
        let digest = format!("digest:ann:{HASH}:cdrwa,world:r");
        assert_eq!(list(&digest).entries()[0].id, format!("ann:{HASH}"));
        assert!(!format!("{:?}", list(&digest)).contains(HASH));
    }

    #[test]
    fn a_malformed_list_is_refused_with_the_right_form_and_without_the_identity() {
        let short = &HASH[1..];
        for (text, form) in [
            ("", "scheme:id:permissions"),
            ("open,creator", "scheme:id:permissions"),
            ("world:anyone:r,", "scheme:id:permissions"),
            ("world:ann:r", "world:anyone:r"),
            ("auth:ann:r", "auth::cdrwa"),
            ("wrold:anyone:r", "the scheme of an access list"),
            ("world:anyone:", "cdrwa"),
            ("world:anyone:x", "cdrwa"),
            ("x509:CN=a,O=b", "cdrwa"),
            ("x509::r", "subject of a certificate"),
            ("sasl::r", "sasl:ann"),
            ("ip:10.0.0.256:r", "10.0.0.0/8"),
            ("ip:10.0.0.0/33:r", "10.0.0.0/8"),
            ("ip:::1/129:r", "10.0.0.0/8"),
            ("digest:ann:canary-7f3a:r", "never the password"),
            ("digest:canary-7f3a:r", "never the password"),
            ("digest:ann:canary-7f3a", "cdrwa"),
            (&format!("digest:ann:{short}:r"), "never the password"),
            (&format!("digest::{HASH}:r"), "never the password"),
        ] {
            let refused = text.parse::<Acl>().expect_err(text);
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.to_string().contains(form), "{text:?}: {refused}");
            assert!(!format!("{refused} {refused:?}").contains("canary"), "{refused}");
        }
        assert!(Acl::new([]).fault().is_some());
        let none = Permissions::READ.without(Permissions::READ);
        assert!(Acl::new([AclEntry::new("sasl", "ann", none)]).fault().is_some());
        // A plugin of the servers has rules of its own.
        let plugin = AclEntry::new("jwt", "ann", Permissions::READ);
        assert_eq!(Acl::new([plugin]).fault(), None);
    }

    #[test]
    fn a_list_without_writing_has_an_entry() {
        for (text, shown) in [
            ("open", "world:anyone:cdra"),
            ("world:w,creator:all", "auth::cdra"),
            ("world:w", "world:anyone:"),
        ] {
            assert_eq!(list(text).without_writing().to_string(), shown);
        }
    }
}
