//! The arguments of `export`, `import`, `cp` and `diff`, and their notes.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use synod::Path;

/// The nodes to print.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The node
    #[arg(default_value = "/")]
    pub(crate) path: Path,
    /// Print the access list of each node too, on ZooKeeper
    #[arg(long)]
    pub(crate) acl: bool,
}

/// The nodes to copy.
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// The node to copy, with everything below it
    pub(crate) from: Path,
    /// The node that it becomes
    #[arg(value_name = "TO")]
    pub(crate) target: Path,
    /// The store to write to, by its URL: the same one by default
    #[arg(long, value_name = "URL", conflicts_with = "to_profile")]
    pub(crate) to: Option<String>,
    /// The store of this name in the configuration file, to write to
    #[arg(long, value_name = "NAME")]
    pub(crate) to_profile: Option<String>,
    /// Treatment of nodes that exist; with fail, nothing is written if there is one
    #[arg(long, value_enum, value_name = "CHOICE", default_value = "fail")]
    pub(crate) on_existing: OnExisting,
    /// Copy the access lists too, from ZooKeeper to ZooKeeper
    #[arg(long)]
    pub(crate) acl: bool,
    /// Check everything, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The file to write to the store.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file; standard input by default
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Write below this node, in place of the node that was exported
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<Path>,
    /// Treatment of nodes that exist; with fail, nothing is written if there is one
    #[arg(long, value_enum, value_name = "CHOICE", default_value = "fail")]
    pub(crate) on_existing: OnExisting,
    /// Check everything, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The treatment of a node that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnExisting {
    /// Keep its data
    Skip,
    /// Replace its data
    Replace,
    /// Refuse the file
    Fail,
}

/// The two sides to compare.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("other").required(true).multiple(true))]
pub(crate) struct Diff {
    /// The node
    pub(crate) path: Path,
    /// The file to compare it with; - reads standard input
    #[arg(group = "other", conflicts_with_all = ["with", "with_profile", "with_path"])]
    pub(crate) file: Option<PathBuf>,
    /// The other store, by its URL: the same one by default
    #[arg(long, group = "other", value_name = "URL")]
    pub(crate) with: Option<String>,
    /// The other store, by its profile in the configuration file
    #[arg(long, group = "other", value_name = "NAME", conflicts_with = "with")]
    pub(crate) with_profile: Option<String>,
    /// The node of the other store: the same path by default
    #[arg(long, group = "other", value_name = "PATH")]
    pub(crate) with_path: Option<Path>,
}

pub(crate) const EXPORT_NOTES: &str = "\
The lines are sorted: each node before the nodes below it, siblings by name. The
same nodes print the same file, which suits version control. Data that is not
UTF-8 is in data_base64. The first line has the path, the last line the number
of nodes, by which `import` notices a file that was cut off.

Ephemeral nodes are left out and counted, as they belong to running programs.
No store tells the time to live of a node, so it is not in the file; `import`
takes one: \"ttl\":\"30s\". Access lists are in the file with --acl, except those of
directories that are no nodes. They have hashes of passwords. The nodes are read
one after the other, and none is older than the start: a program that writes
meanwhile may be exported half-way. The order of the items of a queue is not
kept on etcd.

Exit codes: those of `synod --help`";

pub(crate) const IMPORT_NOTES: &str = "\
The whole file is checked before the first write: that it is whole, each line,
the limits of the store, and with --on-existing fail that no node exists. From
standard input it is kept in a temporary file meanwhile. A part of a file is
imported without its first and last line. An import that was interrupted is
completed by --on-existing skip.

If the file has access lists, all its nodes get them in the end, also those whose
data is kept: on ZooKeeper. Until then they have the lists of new nodes. Other
stores leave them out, with a warning.

Exit codes:
  73   a node exists, with --on-existing fail
  otherwise those of `synod --help`";

pub(crate) const CP_NOTES: &str = "\
The nodes are read from the store of --store or --profile, and written as `import`
does, when all have been read:
  synod --profile old cp /app /app --to-profile new
Ephemeral nodes and times to live are not copied: see `export`.

Exit codes:
  73   a node exists, with --on-existing fail
  otherwise those of `synod --help`";

pub(crate) const DIFF_NOTES: &str = "\
A line for each node that differs:
  -    it is not in the file, or in the other store
  +    it is only there
  ~    its data differs
Ephemeral nodes and access lists do not count. Both sides are read one node after
the other.

Exit codes:
  0    no node differs    1    some do    2    anything that is not below
  otherwise those of `synod --help`";
