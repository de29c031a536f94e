//! The workloads find the known mistakes: each one here is found, by this workload, within this
//! many seeds.

use synod_conformance::cases;
use synod_core::mutant::{self, Mutant};
use synod_sim::known::{Known, NUMBERED, TABLE};
use synod_sim::sweep::{self, Scope};
use synod_sim::workload::Workload as _;
use synod_sim::{Personality, Report, Sim, Site, workload};

const SEEDS: u64 = 400;

#[rustfmt::skip]
const CAUGHT: [(&str, &str, &str); 43] = [
    ("CasIgnoresVersion",        "registers", "L-KV-1"),
    ("CasInTwoSteps",            "registers", "L-KV-1"),
    ("RevisionFalls",            "registers", "L-KV-1"),
    ("StatOfBefore",             "registers", "L-KV-1"),
    ("LatestLags",               "registers", "L-KV-1 L-KV-2"),
    ("AppliesOneByOne",          "transfers", "L-KV-9 L-KV-12"),
    ("AppliesHalf",              "transfers", "L-KV-9 L-KV-12 L-OUT-1"),
    ("RejectedNamesLast",        "transfers", "L-KV-10"),
    ("RejectedWithoutPlace",     "transfers", "L-KV-10"),
    ("OpsBlindToEachOther",      "transfers", "L-KV-10"),
    ("ListingMixesRevisions",    "transfers", "L-KV-12"),
    ("AppliesTwice",             "sessions",  "L-OUT-1 L-OUT-2 L-OUT-3"),
    ("RetriesBlindly",           "tickets",   "L-OUT-1 L-OUT-2 L-SEQ-8 L-SEQ-9 L-SEQ-10"),
    ("LostReplyIsNone",          "tickets",   "L-OUT-1 L-OUT-2 L-SEQ-8 L-SEQ-10"),
    ("LateAfterRead",            "tickets",   "L-OUT-2 L-OUT-3 L-SEQ-8 L-SEQ-10"),
    ("ListingTellsOtherSequence","tickets",   "L-SEQ-2"),
    ("SequenceFalls",            "tickets",   "L-SEQ-2"),
    ("SequenceWraps",            "tickets",   "L-SEQ-2"),
    ("SequenceTwice",            "tickets",   "L-SEQ-2"),
    ("SequenceByCount",          "tickets",   "L-SEQ-2"),
    ("SequenceBeforeCommit",     "tickets",   "L-SEQ-2"),
    ("SequentialTwice",          "tickets",   "L-OUT-1 L-OUT-2 L-SEQ-8 L-SEQ-10"),
    ("LocalGoesBack",            "watchers",  "L-KV-3 L-KV-4"),
    ("WatchMissesChildUpdate",   "watchers",  "L-WAT-6"),
    ("WatchArmedAfterRead",      "watchers",  "L-WAT-6"),
    ("WatchFiresOnce",           "watchers",  "L-WAT-6"),
    ("WatchSilentAfterOutage",   "watchers",  "L-WAT-6"),
    ("GapUnreported",            "watchers",  "L-WAT-6"),
    ("EventDropped",             "watchers",  "L-WAT-6"),
    ("EventsOutOfOrder",         "watchers",  "L-WAT-3"),
    ("EventTwice",               "watchers",  "L-WAT-4"),
    ("NoRateMargin",             "tickets",   "L-SES-2"),
    ("LeaseExtendedByHope",      "tickets",   "L-SES-2"),
    ("CloseKeepsEphemerals",     "sessions",  "L-SES-7"),
    ("StuckMeansUnsent",         "transfers", "L-OUT-1"),
    ("DropMeansUnsent",          "transfers", "L-OUT-1"),
    ("AloneMeansOutage",         "registers", "L-SES-2"),
    ("SameIdsAgain",             "tickets",   "L-SEQ-8"),
    ("RefusedMeansUndone",       "transfers", "L-OUT-1"),
    ("BeatIsRead",               "sessions",  "L-SES-2"),
    ("BeatIsRead",               "mutex",     "L-SES-2"),
    ("OldDatesIgnored",          "mutex",     "L-MX-1 L-MX-2 L-MX-8"),
    ("BlindRepeat",              "tickets",   "L-OUT-2 L-OUT-3 L-SEQ-8 L-SEQ-10"),
];

/// The first of these seeds that finds a mistake, and the law.
fn first(known: Known, seeds: u64, make: impl Fn(u64) -> Sim) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| Some((seed, known.run(make(seed)).violation?.law)))
}

#[test]
fn every_mistake_of_the_table_is_caught_by_its_law() {
    let mut holes = Vec::new();
    for (name, of, laws) in CAUGHT {
        let known = Known::by_name(name).expect("there is such a mistake");
        let workload = workload::by_name(of).expect("there is such a workload");
        let personalities = [Personality::Zk, Personality::Etcd, Personality::Ideal];
        let caught = first(known, SEEDS, |seed| {
            let personality = personalities[usize::try_from(seed % 3).expect("small")];
            workload.prepare(Sim::new(seed).personality(personality))
        });
        println!("{known:<26} {of:<10} {caught:?}");
        if !caught.as_ref().is_some_and(|(_, by)| laws.split(' ').any(|law| law == by)) {
            holes.push(format!("{known} by {of}: {caught:?}"));
        }
    }
    assert!(holes.is_empty(), "{holes:#?}");
}

/// Checks the workload of its row, or a case that fails under it in `dev/mutants`.
#[test]
fn each_mistake_with_a_number_is_found_by_a_law_that_is_named_for_it() {
    for (number, named) in NUMBERED {
        let named: Vec<&str> = named.split(' ').collect();
        let row = TABLE.iter().find(|row| row.number == *number);
        let row = row.unwrap_or_else(|| panic!("{number} is in no row"));
        let fails = |case: &synod_conformance::Case| match row.known {
            Known::Door(mutant) => case.breaks().contains(&mutant),
            Known::Store(mistake) => case.catches().contains(&mistake),
            _ => false,
        };
        let of_cases = cases().filter(|case| fails(case)).flat_map(synod_conformance::Case::laws);
        let found: Vec<&str> = of_cases.map(|law| law.id).chain([row.law]).collect();
        let told = named.iter().any(|law| found.contains(law));
        assert!(told, "{number}, {}: {found:?} instead of {named:?}", row.known);
    }
    assert_eq!(TABLE.iter().filter(|row| !row.number.is_empty()).count(), NUMBERED.len());
}

#[test]
fn what_the_wrapper_does_without_a_mistake_breaks_nothing() {
    // No workload here uses the operations of these mistakes, so the wrapper itself would be the
    // cause of a finding. The numbers of counters are not text.
    let all: [(&str, &[&str]); 2] =
        [("TextOnly", &["counter", "promotion"]), ("NamesCarryData", &[])];
    for (name, but) in all {
        let known = Known::by_name(name).expect("there is such a mistake");
        for workload in workload::ALL.iter().filter(|it| !but.contains(&it.name())) {
            let caught = first(known, 40, |seed| workload.prepare(Sim::new(seed)));
            assert_eq!(caught, None, "{name} in {}", workload.name());
        }
    }
}

#[test]
fn what_a_sweep_finds_is_a_case_that_can_be_repeated() {
    let small = workload::small().next().expect("there is one");
    let mut scope = Scope::two_faults().by_seed();
    scope.sites = vec![Site::ReplyLost, Site::Behind];
    let swept = mutant::with(Mutant::LooksWithoutSync, || {
        let swept = |seed| {
            let make = || small.prepare(Sim::new(seed).personality(Personality::Zk));
            Some(sweep::exhaust(&scope, make)).filter(|swept| swept.broken.is_some())
        };
        (0..8).find_map(swept)
    });
    let swept = swept.expect("it is found");
    let law = |report: &Report| report.violation.as_ref().map(|it| it.law.clone());
    let broken = law(swept.broken.as_ref().expect("it is found"));
    let mut case = swept.case(small.name()).expect("it can be repeated");
    assert_eq!(
        law(&case.run(false).expect("it runs")),
        None,
        "nothing is wrong without the mistake"
    );
    case.mutant = Some(Mutant::LooksWithoutSync.to_string());
    assert_eq!(law(&case.run(false).expect("it runs")), broken);
}
