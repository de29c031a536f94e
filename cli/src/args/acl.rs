//! The arguments of `acl`.

use clap::Subcommand;
use synod::Path;

/// The actions on access lists.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AclAction {
    /// Print the access list of a node, as `acl set` takes it
    Get {
        /// The node
        path: Path,
    },
    /// Replace the access list of a node
    Set {
        /// The node
        path: Path,
        /// The list, like world:read,sasl:ann:all; also open or creator
        list: String,
        /// Only if the list has this version, as `acl get --json` shows it
        #[arg(long, value_name = "VERSION", conflicts_with = "recursive")]
        version: Option<u64>,
        /// Replace the lists of everything below it too
        #[arg(long, short)]
        recursive: bool,
    },
}

pub(crate) const ACL_NOTES: &str = "\
A list has entries scheme:id:permissions, separated by commas, as the setAcl of
ZooKeeper takes them:
  world:anyone:r              every client; world:r and world:read are the same
  auth::cdrwa                 the identities of this client, or creator:all
  digest:ann:HASH:rw          this user, with the hash of its password
  sasl:ann:rw  x509:CN=ann,O=shop:rw  ip:10.0.0.0/8:r
Permissions are letters, or names joined by +: c create, d delete (children),
r read, w write, a admin, or all. A list holds for its node alone. See
docs/access.md, also for etcd, where roles take the place of lists.

Exit codes: those of `synod --help`";
