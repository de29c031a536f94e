//! The arguments of `queue`.

use std::time::Duration;

#[cfg(unix)]
use std::ffi::OsString;
#[cfg(unix)]
use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};

use crate::time::time;

/// The actions on a queue.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueueAction {
    /// Put an item into the queue
    Put(Put),
    /// Wait for an item, print it, and remove it from the queue
    #[command(after_help = TAKE_NOTES)]
    Take(Take),
    /// List the items: one line each, in order
    List,
    /// List the dead letters: items that were rejected, or delivered too often, with the reasons of
    /// their failed deliveries
    Dead,
    /// Count the items that can be delivered, are delayed, are claimed, or are dead letters
    Stats,
    /// Move dead letters back to the items
    Revive {
        /// The names or the ids of the dead letters, as `dead` shows them
        #[arg(required_unless_present = "all", value_name = "NAME")]
        names: Vec<String>,
        /// Move all of them
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Remove items or dead letters, whether they are claimed or not
    Remove {
        /// The names or the ids of the items, as `list` and `dead` show them
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Run a command for each item, which reads its data as standard input
    #[cfg(unix)]
    #[command(after_help = CONSUME_NOTES)]
    Consume(Consume),
}

/// `queue PATH put`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Put {
    /// The data; without it, or with -, standard input
    #[arg(default_value = "-", hide_default_value = true)]
    pub(crate) data: String,
    /// The id of the item: nothing is put while the queue has an item with this id
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// An item with a lower number is delivered earlier: 0 to 999, and 100 without this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=999))]
    pub(crate) priority: Option<u16>,
    /// Time before which the item is not delivered, like 30s; a plain number is seconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) delay: Option<Duration>,
}

/// `queue PATH take`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Take {
    /// Give up with exit code 75 if there is no item within this time, like 30s; a plain number is
    /// seconds
    #[arg(long, short = 'w', value_name = "TIME", value_parser = time, conflicts_with = "no_wait")]
    pub(crate) timeout: Option<Duration>,
    /// Give up with exit code 75 at once if there is no item
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Print the bytes as they are, without a trailing newline
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

/// `queue PATH consume`.
#[cfg(unix)]
#[derive(Clone, Debug, Args)]
pub(crate) struct Consume {
    /// Run up to this many commands at once
    #[arg(long, short = 'n', value_name = "N", default_value = "1")]
    pub(crate) at_once: NonZeroUsize,
    /// Move an item to the dead letters after this number of deliveries, instead of 25
    #[arg(long, value_name = "N")]
    pub(crate) max_deliveries: Option<NonZeroU32>,
    /// Reject an item whose command ends with this exit code, like 65: it is a dead letter without
    /// a retry. May be repeated
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) reject_on: Vec<u8>,
    /// Time that a command may take to end after SIGTERM: 2s, or a quarter of the session's time
    /// to live if that is less
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command and its arguments; after -- if it begins with a hyphen
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const TAKE_NOTES: &str = "\
The item is printed first and removed then: if its reader has ended, it stays in
the queue, and the exit code is 1. If the command is killed between the two, the item is delivered again.

Exit codes:
  75   there is no item
  otherwise those of `synod --help`";

#[cfg(unix)]
const CONSUME_NOTES: &str = "\
An item is acknowledged when its command ends with exit code 0. Otherwise it is
put back for a time, from one second to 15 minutes, which is doubled with each of
its deliveries; after the last one it is a dead letter, and at once if the code is
one of --reject-on. Others are worked on meanwhile. While a command runs, no other consumer has its item; it is ended when
the claim is lost, and when this process is killed. What a command has left
running in its process group is ended with it.

The command finds the path of the queue in SYNOD_PATH, the name of the item in
SYNOD_ITEM and its id in SYNOD_ID, how often it was delivered in SYNOD_DELIVERED,
and a number that is larger for each later delivery in SYNOD_TOKEN.

Signals are passed on to the commands. After Ctrl-C or SIGTERM nothing more is
claimed, and synod ends when the commands have.

Exit codes:
  0    it was stopped by a signal
  126  the command cannot be run    127  there is no such command
  otherwise those of `synod --help`";
