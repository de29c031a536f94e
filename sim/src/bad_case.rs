//! [`BadCase`]: the reason why a case cannot be run.

use std::fmt;

use crate::workload;

/// The reason why a case cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadCase {
    /// There is no workload of this name.
    NoWorkload(String),
    /// There is no personality of this name.
    NoPersonality(String),
    /// There is no fault with this number.
    NoFault(u8),
    /// There is no mistake of this name.
    NoMutant(String),
    /// Known mistakes are not compiled in.
    Honest,
    /// The text is not a case.
    NoCase(String),
}

impl fmt::Display for BadCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWorkload(name) => {
                write!(f, "no workload is called {name:?}; there are ")?;
                let names: Vec<_> = workload::ALL.iter().map(|it| it.name()).collect();
                f.write_str(&names.join(", "))
            }
            Self::NoPersonality(name) => {
                write!(f, "{name:?} is none of ideal, zk, etcd and etcd-3.4")
            }
            Self::NoFault(number) => write!(f, "there is no fault F{number}"),
            Self::NoMutant(name) => write!(f, "no known mistake is called {name:?}"),
            Self::Honest => f.write_str(
                "this program was built without known mistakes, as one that is to be relied on \
                 should be; build it with the feature `mutants`",
            ),
            Self::NoCase(why) => write!(f, "this is no case: {why}"),
        }
    }
}

impl std::error::Error for BadCase {}
