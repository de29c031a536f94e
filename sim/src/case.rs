//! [`Case`]: everything needed to repeat a history, in a file or on a command line.

use crate::cluster::{Fault, Personality, Rates, Site};
use serde::{Deserialize, Serialize};
use synod_testkit::choice::{Choice, Spot};

use crate::bad_case::BadCase;
use crate::known;
use crate::report::Report;
use crate::setup::{Mending, Sim};
use crate::workload::{self, Workload};

/// The parameters that repeat a history.
///
/// An absent field has its default value: the seed decides every fault, and every process is
/// present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Case {
    /// The name of the workload.
    pub workload: String,
    /// The name of the personality of the store.
    pub personality: String,
    /// Decides everything that the other fields leave open.
    pub seed: u64,
    /// The name of the known mistake to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<String>,
    /// The law that it breaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub law: Option<String>,
    /// Faults that never fire, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u8>,
    /// The reductions of a larger history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrunk>,
}

/// A history reduced to the parts that its failure needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Shrunk {
    /// The only faults that fire, each with its size.
    pub faults: Vec<(Spot<Site>, u64)>,
    /// The numbers of the omitted processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<u64>,
    /// The maximum number of rounds that a process makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// The sites that always take their first option.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still: Vec<Site>,
    /// `true` if every fault could fire at its default rate, without a swarm that switches some of
    /// them off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steady: bool,
    /// `true` if everything is repaired at the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mended: bool,
}

impl Case {
    /// An ordinary run of a workload with a seed.
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

    /// Reads a case from the text of a file.
    ///
    /// # Errors
    ///
    /// [`BadCase::NoCase`] if the text is invalid.
    pub fn from_json(text: &str) -> Result<Self, BadCase> {
        serde_json::from_str(text).map_err(|error| BadCase::NoCase(error.to_string()))
    }

    /// The text of its file.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        // One line per fault.
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

    /// Runs the case. With `traced` it keeps the lines of its trace.
    ///
    /// # Errors
    ///
    /// If the case names something that does not exist.
    pub fn run(&self, traced: bool) -> Result<Report, BadCase> {
        let workload = self.workload()?;
        self.run_in(&|sim| workload.prepare(sim), traced)
    }

    /// Like [`Case::run`], with processes that `prepare` adds.
    pub(crate) fn run_in(
        &self,
        prepare: &dyn Fn(Sim) -> Sim,
        traced: bool,
    ) -> Result<Report, BadCase> {
        let sim = prepare(self.bare()?);
        let sim = if traced { sim.traced() } else { sim };
        known::run(sim, self.mutant.as_deref())
    }

    /// Its workload.
    ///
    /// # Errors
    ///
    /// [`BadCase::NoWorkload`] if there is no workload of this name.
    pub fn workload(&self) -> Result<&'static dyn Workload, BadCase> {
        workload::by_name(&self.workload).ok_or_else(|| BadCase::NoWorkload(self.workload.clone()))
    }

    /// The simulation without processes.
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

    /// The name of the run: the workload, the store and the seed.
    pub fn name(&self) -> String {
        let what = self.mutant.as_deref().or(self.law.as_deref()).unwrap_or("case");
        format!("{}-{}-{what}-{:x}", self.workload, self.personality, self.seed)
    }
}
