//! The commands that are missing from this build: `--help` lists them, and calling one reports how
//! to build it.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::failure::Failure;
use crate::usage::USAGE;

/// Each command with a feature of the same name, `true` if this build has it, and its description.
const COMMANDS: [(&str, bool, &str); 3] = [
    ("bench", cfg!(feature = "bench"), "Measure how fast a store is"),
    ("conformance", cfg!(feature = "conformance"), "Test a store against its contract"),
    ("sim", cfg!(feature = "sim"), "Run processes on a simulated store with faults"),
];

/// The features that extend other commands, and `true` if this build has them.
const OTHERS: [(&str, bool); 4] = [
    ("zookeeper", cfg!(feature = "zookeeper")),
    ("etcd", cfg!(feature = "etcd")),
    ("tls", cfg!(feature = "tls")),
    ("sasl", cfg!(feature = "sasl")),
];

/// Adds the absent commands, so that they are listed and recognized.
pub(crate) fn listed(command: Command) -> Command {
    absent().fold(command, |command, (name, about)| {
        let about = format!("{about} (needs the feature `{name}`)");
        // Without the feature the arguments mean nothing: any are accepted.
        let any = Arg::new("any").hide(true).num_args(0..).value_parser(ValueParser::os_string());
        let any = any.action(ArgAction::Append).trailing_var_arg(true).allow_hyphen_values(true);
        command.subcommand(Command::new(name).about(about).after_help(how_to_build(name)).arg(any))
    })
}

/// The error if the arguments call an absent command.
pub(crate) fn called(matches: &ArgMatches) -> Option<Failure> {
    let called = matches.subcommand_name()?;
    let (name, _) = absent().find(|(name, _)| *name == called)?;
    let text = format!("`synod {name}` is not in this build; {}", how_to_build(name));
    Some(Failure::Exit(USAGE, Some(text)))
}

fn absent() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().filter(|(_, is_built, _)| !is_built).map(|(name, _, about)| (*name, *about))
}

/// The command that builds this feature in addition to the features of this build.
fn how_to_build(feature: &str) -> String {
    let built = COMMANDS.iter().map(|(name, is_built, _)| (*name, *is_built)).chain(OTHERS);
    let built = built.filter(|(_, is_built)| *is_built).map(|(name, _)| name);
    let features: Vec<_> = std::iter::once(feature).chain(built).collect();
    format!("build it with: cargo install --path cli --features {}", features.join(","))
}
