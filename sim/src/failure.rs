//! [`Failure`]: a history that failed, explained from its end.

use std::fmt;

use crate::cluster::{Fault, Rates, Site};

use crate::bad_case::BadCase;
use crate::case::Case;
use crate::diagram::Diagram;
use crate::findings::Violation;
use crate::report::Report;
use crate::setup::Sim;
use crate::shrink::{Smaller, shrink};

/// A history that failed, and its reduced form.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The case as it was found.
    pub case: Case,
    /// The law that was broken, in the reduced history if there is one.
    pub violation: Violation,
    /// The reduced history.
    pub smaller: Smaller,
    /// The report of the reduced history, with its trace.
    pub report: Report,
    /// The command that repeats the failure.
    pub again: String,
}

impl Failure {
    /// Reduces a case that failed, and explains it. `None` if it does not fail.
    ///
    /// # Errors
    ///
    /// If the case names something that does not exist.
    pub fn of(case: &Case) -> Result<Option<Self>, BadCase> {
        let workload = case.workload()?;
        Self::of_prepared(case, &|sim| workload.prepare(sim), &|_, _| ())
    }

    pub(crate) fn of_prepared(
        case: &Case,
        prepare: &dyn Fn(Sim) -> Sim,
        tried: &dyn Fn(usize, usize),
    ) -> Result<Option<Self>, BadCase> {
        let Some(smaller) = shrink(case, prepare, tried) else { return Ok(None) };
        let report = smaller.case.run_in(prepare, true)?;
        let Some(violation) = report.violation.clone() else { return Ok(None) };
        let case = Case { law: Some(violation.law.clone()), ..case.clone() };
        let again = command(&case);
        Ok(Some(Self { case, violation, smaller, report, again }))
    }

    /// The lanes of the reduced history.
    pub fn diagram(&self) -> Diagram {
        Diagram::of(&self.report)
    }

    /// The explanation without the lanes.
    pub fn summary(&self) -> String {
        let Violation { law, what, .. } = &self.violation;
        let mut lines = vec![format!("{law} is broken: {}", self.violation.sentence())];
        lines.push(format!("  {}", crate::diagram::short(&self.report, what)));
        lines.push(String::new());
        let mutant = self.case.mutant.as_ref().map(|it| format!(", with the mistake {it}"));
        lines.push(format!(
            "seed       {:#x} of {} on {}{}",
            self.case.seed,
            self.case.workload,
            self.case.personality,
            mutant.unwrap_or_default()
        ));
        lines.push(format!("processes  {}", self.report.names.join(", ")));
        lines.push(format!("faults     {}", expanded(&self.report.rates)));
        lines.push(format!("needs      {}", self.needs()));
        lines.push(format!("again      {}", self.again));
        lines.join("\n") + "\n"
    }

    /// The faults that the failure needs.
    fn needs(&self) -> String {
        let Some(shrunk) = &self.smaller.case.shrunk else { return String::new() };
        let faults: Vec<String> = shrunk
            .faults
            .iter()
            .map(|(spot, _)| format!("{} ({})", spot.site, self.report.name(spot.actor.get())))
            .collect();
        let left = match &faults[..] {
            [] => "no fault at all".to_owned(),
            faults => faults.join(", "),
        };
        let absent: Vec<_> = shrunk.absent.iter().map(|number| self.report.name(*number)).collect();
        let without = match &absent[..] {
            [] => String::new(),
            absent => format!("; not {}", absent.join(", ")),
        };
        let Smaller { faults_before, runs, .. } = &self.smaller;
        format!(
            "{left}{without}\n           (of {faults_before} faults that fired; shrunk in {runs} runs)"
        )
    }
}

/// The command that repeats a case.
pub(crate) fn command(case: &Case) -> String {
    let Case { workload, personality, seed, .. } = case;
    let mutant = case.mutant.as_ref().map(|it| format!(" --mutant {it}")).unwrap_or_default();
    let off = case.without.iter().filter_map(|number| Fault::by_number(*number));
    let without: Vec<_> = off.map(|fault| format!(" --without {fault}")).collect();
    format!(
        "synod sim replay {workload} --seed {seed:#x} --personality {personality}{mutant}{}",
        without.concat()
    )
}

/// Lists the rate of each fault, in thousandths.
fn expanded(rates: &Rates) -> String {
    let on: Vec<Site> = Site::all().filter(|site| rates.of(*site) > 0).collect();
    if on.is_empty() {
        return "none".to_owned();
    }
    let mut text = String::from("of 1000 times: ");
    let mut width = text.len();
    for (nth, site) in on.iter().enumerate() {
        let comma = if nth + 1 < on.len() { ", " } else { "" };
        let part = format!("{site} {}{comma}", rates.of(*site));
        if width + part.len() > 85 {
            text.truncate(text.trim_end().len());
            text.push_str("\n           ");
            width = 0;
        }
        width += part.len();
        text.push_str(&part);
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The default width of a page.
        const WIDTH: usize = 130;
        let width = f.width().unwrap_or(WIDTH);
        writeln!(f, "{}", self.summary())?;
        write!(f, "{}\n{}", self.diagram().text(width), crate::diagram::LEGEND)
    }
}
