//! `conformance`: tests a store against its contract and reports each case.

use std::io;

use serde_json::{Value, json};
use synod::{Config, Scheme};
use synod_conformance::law::{SIMULATED, UNCHECKED};
use synod_conformance::run::{Suite, Verdict};
use synod_conformance::{Case, cases};

use crate::args::Common;
use crate::command::store;
use crate::conformance::harness::{AnyStore, Memory};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

mod harness;

/// Runs the cases with `only` in their name.
pub(crate) fn run(common: &Common, only: Option<&str>) -> Result<(), Failure> {
    // Cases run on their own runtimes, which cannot start on a thread that already has one.
    std::thread::scope(|scope| scope.spawn(|| try_all(common, only)).join())
        .unwrap_or_else(|_panic| Err(Failure::plain("the suite itself failed; please report it")))
}

fn try_all(common: &Common, only: Option<&str>) -> Result<(), Failure> {
    let suite = suite(&store(common)?)?;
    let chosen: Vec<&Case> =
        cases().filter(|case| only.is_none_or(|text| case.name().contains(text))).collect();
    if chosen.is_empty() {
        return Err(Failure::plain("no case has that in its name; leave --only out to see all"));
    }
    let progress = Progress::new("cases", Some(chosen.len() as u64));
    let mut count = Count::default();
    let mut module = "";
    for case in chosen {
        let verdict = suite.run(case);
        count.add(&verdict);
        progress.suspend(|| print_report(common, case, &verdict, &mut module))?;
        progress.advance(1);
    }
    drop(progress);
    count.print_report(common, only.is_none())?;
    if count.failed == 0 { Ok(()) } else { Err(Failure::Told) }
}

/// The harness for this store: memory with all of its faults, in virtual time; any other store
/// through its public interface.
fn suite(url: &str) -> Result<Suite, Failure> {
    let config = Config::new(url)?;
    let backend = config.backend()?;
    if config.url.scheme() == Scheme::Mem {
        return Ok(Suite::new(Memory::new).on_paused_time());
    }
    let store = AnyStore::of(backend)?;
    Ok(Suite::new(move || store.clone()))
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed { .. } => self.failed += 1,
            Verdict::Skipped { .. } => self.skipped += 1,
        }
    }

    fn print_report(&self, common: &Common, all: bool) -> io::Result<()> {
        if common.json {
            return output::object(&json!({
                "passed": self.passed, "failed": self.failed, "skipped": self.skipped,
            }));
        }
        if all {
            output::line("\nlaws that no case checks on a store alone")?;
            for (law, why) in UNCHECKED {
                output::line(&format!("  {law:<9} {why}"))?;
            }
            output::line("\nlaws that the simulator checks: synod sim")?;
            for (law, why) in SIMULATED {
                output::line(&format!("  {law:<9} {why}"))?;
            }
        }
        let Self { passed, failed, skipped } = self;
        output::line(&format!("\n{passed} passed, {failed} failed, {skipped} skipped"))
    }
}

/// Reports one case, under the name of its module.
fn print_report<'a>(
    common: &Common,
    case: &'a Case,
    verdict: &Verdict,
    module: &mut &'a str,
) -> io::Result<()> {
    let (word, why) = match verdict {
        Verdict::Passed => ("ok", None),
        Verdict::Failed { why } => ("FAILED", Some(why.as_str())),
        Verdict::Skipped { why } => ("skipped", Some(why.as_str())),
    };
    if common.json {
        return output::object(&object(case, word, why));
    }
    let (inside, name) = case.name().rsplit_once("::").unwrap_or(("", case.name()));
    if *module != inside {
        *module = inside;
        output::line(&format!("\n{}", inside.replace("::", ", ")))?;
    }
    let laws = case.laws().map(|law| law.id).collect::<Vec<_>>().join(" ");
    output::line(&format!("  {word:<8} {}  ({laws})", name.replace('_', " ")))?;
    if let Some(why) = why {
        output::line(&format!("           {}", why.replace('\n', "\n           ")))?;
    }
    if matches!(verdict, Verdict::Failed { .. }) {
        for law in case.laws() {
            output::line(&format!("           {law}"))?;
        }
    }
    Ok(())
}

fn object(case: &Case, verdict: &str, why: Option<&str>) -> Value {
    let laws = case.laws().map(|law| law.id).collect::<Vec<_>>();
    json!({ "case": case.name(), "laws": laws, "verdict": verdict.to_lowercase(), "why": why })
}
