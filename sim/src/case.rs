//! [`Case`]: everything that it takes to repeat a history, in a file or on a command line.

use std::fmt;

use serde::{Deserialize, Serialize};
use synod_core::choice::{Choice, Spot};
use synod_mem::cluster::{Fault, Personality, Rates, Site};

use crate::known;
use crate::report::Report;
use crate::setup::{Mending, Sim};
use crate::workload::{self, Workload};

/// Everything that it takes to repeat a history.
///
/// What is not said is as it is for any seed: every fault by the seed, every process there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Case {
    /// What the processes do, by its name.
    pub workload: String,
    /// Whose habits the store has, by its name.
    pub personality: String,
    /// Decides all that is not said here.
    pub seed: u64,
    /// The known mistake that is made, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<String>,
    /// The law that it breaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub law: Option<String>,
    /// Faults that never fire, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u8>,
    /// What is left of a larger history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrunk>,
}

/// What is left of a history when all is taken away that its failure does not need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Shrunk {
    /// The only faults that fire, each with its size.
    pub faults: Vec<(Spot<Site>, u64)>,
    /// Processes that are left out, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<u64>,
    /// How many rounds a process makes at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Where nothing is left to chance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still: Vec<Site>,
    /// Whether every fault could fire at its usual rate, and no swarm switches some of them off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steady: bool,
    /// Whether everything is mended in the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mended: bool,
}

/// Why a case cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadCase {
    /// No workload is called so.
    NoWorkload(String),
    /// No store is called so.
    NoPersonality(String),
    /// No fault has this number.
    NoFault(u8),
    /// No mistake is called so.
    NoMutant(String),
    /// Known mistakes are not compiled in.
    Honest,
    /// It is no case at all.
    NoCase(String),
}

impl Case {
    /// A seed of a workload.
    pub fn new(workload: impl Into<String>, personality: Personality, seed: u64) -> Self {
        Self {
            workload: workload.into(),
            personality: personality.to_string(),
            seed,
            mutant: None,
            law: None,
            without: Vec::new(),
            shrunk: None,
        }
    }

    /// Reads one from a file's text.
    ///
    /// # Errors
    ///
    /// [`BadCase::NoCase`] if it is none.
    pub fn from_json(text: &str) -> Result<Self, BadCase> {
        serde_json::from_str(text).map_err(|error| BadCase::NoCase(error.to_string()))
    }

    /// The text of its file.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        // A fault a line.
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            let deep = line.starts_with("      ") && !lines.is_empty();
            match lines.last_mut().filter(|_| deep) {
                Some(last) => *last = format!("{last} {}", line.trim_start()),
                None => lines.push(line.to_owned()),
            }
        }
        lines.join("\n") + "\n"
    }

    /// Runs it, with every line of its trace or with none.
    ///
    /// # Errors
    ///
    /// If it names something that is not there.
    pub fn run(&self, traced: bool) -> Result<Report, BadCase> {
        let workload = self.workload()?;
        self.run_in(&|sim| workload.prepare(sim), traced)
    }

    /// As [`Case::run`], with processes that come from elsewhere.
    pub(crate) fn run_in(
        &self,
        prepare: &dyn Fn(Sim) -> Sim,
        traced: bool,
    ) -> Result<Report, BadCase> {
        let sim = prepare(self.bare()?);
        let sim = if traced { sim.traced() } else { sim };
        known::run(sim, self.mutant.as_deref())
    }

    /// The workload that it names.
    ///
    /// # Errors
    ///
    /// [`BadCase::NoWorkload`] if there is none of this name.
    pub fn workload(&self) -> Result<&'static dyn Workload, BadCase> {
        workload::by_name(&self.workload).ok_or_else(|| BadCase::NoWorkload(self.workload.clone()))
    }

    /// The simulation, without anybody in it.
    fn bare(&self) -> Result<Sim, BadCase> {
        let personality = self.personality.parse();
        let personality =
            personality.map_err(|_| BadCase::NoPersonality(self.personality.clone()))?;
        let mut sim = Sim::new(self.seed).personality(personality);
        for number in &self.without {
            let fault = Fault::by_number(*number).ok_or(BadCase::NoFault(*number))?;
            sim = sim.rates(|rates| Rates::without(rates, fault));
        }
        let Some(shrunk) = &self.shrunk else { return Ok(sim) };
        sim = sim
            .choice(Choice::recorded(self.seed, shrunk.faults.iter().copied()))
            .absent(shrunk.absent.iter().copied())
            .rounds(shrunk.rounds.unwrap_or(u64::MAX))
            .still(shrunk.still.iter().copied());
        if shrunk.steady {
            sim = sim.steady();
        }
        Ok(if shrunk.mended { sim.mending(Mending::All) } else { sim })
    }

    /// A name for its file.
    pub fn file_name(&self) -> String {
        let what = self.mutant.as_deref().or(self.law.as_deref()).unwrap_or("case");
        format!("{}-{}-{what}-{:x}.json", self.workload, self.personality, self.seed)
    }
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
