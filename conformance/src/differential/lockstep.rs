//! [`Lockstep`]: several stores that execute the same program, step by step.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use synod_core::error::{Effect, ErrorKind};
use synod_core::random::Random;
use synod_core::store::{Revision, Sequence, SessionEnd, Version};

use crate::differential::comparison::{Agreement, Comparison, plain};
use crate::differential::events::{Listener, Observed};
use crate::differential::generate::Palette;
use crate::differential::model::Model;
use crate::differential::neutral::{Entry, Told};
use crate::differential::program::{Act, Ask, Program, Reach, Step, Verb};
use crate::differential::side::Side;
use crate::harness::{Ability, Harness};

/// The stores to compare. The others are compared with the first.
#[derive(Debug)]
pub(crate) struct Lockstep {
    sides: Vec<Side>,
    random: Random,
    /// `true` if the sessions may still be busy with an abandoned program.
    left: bool,
}

/// The first difference between two stores.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// `None` at the end, when the trees or the events are compared.
    step: Option<usize>,
    why: String,
    answers: Vec<String>,
}

/// The part of a program that was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Whole,
    /// Only a part: up to a container that only one store still had, or a store that did not
    /// answer.
    Part,
}

/// The state of one program during a run.
struct Course {
    model: Model,
    comparison: Vec<Comparison>,
    observed: Vec<Observed>,
    /// The sessions that are over, and the reasons.
    over: BTreeMap<usize, SessionEnd>,
}

impl Lockstep {
    pub(crate) async fn new(stores: &[Arc<dyn Harness>]) -> Self {
        let mut sides = Vec::new();
        for (number, store) in stores.iter().enumerate() {
            sides.push(Side::new(number, store.clone()).await);
        }
        // Every run uses new directories, even with the same seed.
        Self { sides, random: Random::from_system(), left: false }
    }

    pub(crate) fn palette(&self) -> Palette {
        let all = |ability| self.sides.iter().all(|side| side.profile.can(ability));
        Palette { ttl: all(Ability::TtlNodes), expiry: all(Ability::Expiry) }
    }

    /// Runs a program on every store, up to the first difference.
    pub(crate) async fn run(&mut self, program: &Program) -> Result<Ran, Difference> {
        let (random, left) = (self.random.clone(), self.left);
        join_all(self.sides.iter_mut().map(|side| side.begin(&random, left))).await;
        self.left = true;
        let comparison = self.sides.iter().skip(1).map(|_| Comparison::default()).collect();
        let (model, observed) = (Model::default(), Vec::new());
        let mut course = Course { model, comparison, observed, over: BTreeMap::new() };
        for (number, step) in program.steps.iter().enumerate() {
            let answers = self.perform(step, &mut course.model).await;
            let agreed = course.compare(number, step, &answers);
            match agreed.map_err(|why| Difference::at(number, why, &answers))? {
                Agreement::Parted { for_good: true } => return Ok(Ran::Part),
                Agreement::Same | Agreement::Parted { for_good: false } => {}
            }
        }
        self.compare_trees(&mut course).await?;
        self.compare_events(&course).await?;
        self.left = false;
        Ok(Ran::Whole)
    }

    async fn perform(&mut self, step: &Step, model: &mut Model) -> Vec<Told> {
        if let Step::Commit { acts, .. } = step {
            model.tried(acts);
        }
        let model = &*model;
        join_all(self.sides.iter_mut().map(|side| side.perform(step, model))).await
    }

    async fn compare_trees(&self, course: &mut Course) -> Result<(), Difference> {
        let trees = join_all(self.sides.iter().map(Side::tree)).await;
        let (place, reach) = (String::new(), Reach::Subtree);
        let ask = Ask { place, reach, names_only: false, local: false };
        let same = course.views(&ask, &trees.iter().collect::<Vec<_>>(), true);
        same.map_err(|why| Difference::in_the_end(why, &trees))
    }

    async fn compare_events(&mut self, course: &Course) -> Result<(), Difference> {
        let listening = self.sides.iter_mut().enumerate();
        let heard = join_all(listening.map(|(store, side)| course.listen(store, side))).await;
        let none = Difference { step: None, why: String::new(), answers: Vec::new() };
        let why = heard.into_iter().collect::<Result<Vec<()>, String>>();
        why.map(drop).map_err(|why| Difference { why, ..none })
    }
}

impl Course {
    /// Compares the answers to a step, and updates the model.
    fn compare(
        &mut self,
        number: usize,
        step: &Step,
        answers: &[Told],
    ) -> Result<Agreement, String> {
        if let Some(hung) = answers.iter().find(|told| matches!(told, Told::Nothing { .. })) {
            return Err(format!("{hung}"));
        }
        // A store may be unreachable at any time. The answer is then unknown.
        let silent = |told: &Told| {
            matches!(told, Told::Failed { kind: ErrorKind::Unreachable, effect: Effect::None, .. })
        };
        if answers.iter().any(silent) {
            return Ok(Agreement::Parted { for_good: true });
        }
        match step {
            Step::Commit { who, acts, look } => {
                let agreement = self.outcomes(acts, answers)?;
                if agreement == Agreement::Same {
                    self.committed((number, *who), acts, answers);
                    self.looks(look.as_ref(), answers)?;
                }
                return Ok(agreement);
            }
            Step::Read { who, ask } => self.read(*who, ask, answers)?,
            Step::Observe { who, ask } => {
                self.read(*who, ask, answers)?;
                if matches!(answers[0], Told::Viewed(_)) {
                    self.observed.push(Observed { step: number, who: *who, ask: ask.clone() });
                }
            }
            Step::Close { who } | Step::Expire { who } => {
                all_plain(answers)?;
                if let Told::Over(why) = answers[0] {
                    self.over.entry(*who).or_insert(why);
                    self.model.ended(number, *who, answers.len());
                }
            }
        }
        Ok(Agreement::Same)
    }

    fn outcomes(&mut self, acts: &[Act], answers: &[Told]) -> Result<Agreement, String> {
        let mut all = Agreement::Same;
        for (comparison, other) in self.comparison.iter_mut().zip(&answers[1..]) {
            match comparison.outcome(acts, &self.model, (&answers[0], other))? {
                Agreement::Same => {}
                Agreement::Parted { for_good } => {
                    let before = all == Agreement::Parted { for_good: true };
                    all = Agreement::Parted { for_good: for_good || before };
                }
            }
        }
        Ok(all)
    }

    /// Updates the model for a transaction that all stores committed.
    fn committed(&mut self, step: (usize, usize), acts: &[Act], answers: &[Told]) {
        let Some(dones) = answers.iter().map(done_by).collect::<Option<Vec<_>>>() else { return };
        let when = |index: usize| {
            let each = dones.iter().map(|(revision, done)| {
                done.get(index).and_then(|done| done.stat).map(|stat| stat.modified).or(*revision)
            });
            each.collect::<Vec<Option<Revision>>>()
        };
        let revisions: Vec<_> = (0..acts.len()).map(when).collect();
        self.model.did(step, acts, &revisions);
        for (index, act) in acts.iter().enumerate() {
            let of_all = || dones.iter().filter_map(|(_, done)| done.get(index));
            let drawn: Vec<Sequence> = of_all().filter_map(|done| done.sequence).collect();
            if drawn.len() == answers.len() {
                self.model.drawn(&act.place, drawn);
            }
            if changes_version(act) {
                self.know(&act.place, of_all(), answers.len());
            }
        }
    }

    fn know<'a>(&mut self, place: &str, told: impl Iterator<Item = &'a Entry>, stores: usize) {
        let versions: Vec<Version> =
            told.filter_map(|entry| entry.stat).map(|stat| stat.version).collect();
        if versions.len() == stores {
            self.model.know(place, versions);
        }
    }

    fn looks(&mut self, look: Option<&Ask>, answers: &[Told]) -> Result<(), String> {
        let mut looks = Vec::new();
        for told in answers {
            if let Told::Committed { look: seen, .. } | Told::Rejected { look: seen, .. } = told {
                if seen.is_some() != look.is_some() {
                    return Err("a look that was not asked for, or none that was".into());
                }
                looks.extend(seen.clone().map(Told::Viewed));
            }
        }
        match look {
            Some(ask) if looks.len() == answers.len() => {
                self.views(ask, &looks.iter().collect::<Vec<_>>(), true)
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self, who: usize, ask: &Ask, answers: &[Told]) -> Result<(), String> {
        all_plain(answers)?;
        if !matches!(answers[0], Told::Viewed(_)) {
            return Ok(());
        }
        if !ask.local {
            self.model.inform(who);
        }
        // Answers that may lag cannot be compared.
        let latest = self.model.is_informed(who);
        self.views(ask, &answers.iter().collect::<Vec<_>>(), latest)
    }

    fn views(&mut self, ask: &Ask, views: &[&Told], latest: bool) -> Result<(), String> {
        let entries: Vec<&[Entry]> = views
            .iter()
            .map(|told| match told {
                Told::Viewed(entries) => Ok(entries.as_slice()),
                other => Err(format!("no view: {other}")),
            })
            .collect::<Result<_, _>>()?;
        if !latest {
            return Ok(());
        }
        for (comparison, other) in self.comparison.iter_mut().zip(&entries[1..]) {
            comparison.view(ask, &self.model, (entries[0], other))?;
        }
        for seen in entries[0] {
            let of_all = entries.iter().filter_map(|of| of.iter().find(|e| e.place == seen.place));
            self.know(&seen.place, of_all, entries.len());
        }
        Ok(())
    }

    async fn listen(&self, store: usize, side: &mut Side) -> Result<(), String> {
        let Side { watches, translate, profile, .. } = side;
        for (observed, watch) in self.observed.iter().zip(watches) {
            let (model, translate, patience) = (&self.model, &*translate, profile.patience);
            let listener = Listener { store, observed, model, translate, patience };
            let over = self.over.get(&observed.who).copied();
            let told = listener.listen(watch, over.is_some()).await;
            let wrong = match told {
                Ok(told) if told == over => continue,
                Ok(told) => format!("the end is {told:?}, and the session's is {over:?}"),
                Err(wrong) => wrong,
            };
            let step = observed.step + 1;
            return Err(format!("store {store}, what was observed in step {step}: {wrong}"));
        }
        Ok(())
    }
}

fn done_by(told: &Told) -> Option<(Option<Revision>, &Vec<Entry>)> {
    match told {
        Told::Committed { revision, done, .. } => Some((*revision, done)),
        _ => None,
    }
}

fn all_plain(answers: &[Told]) -> Result<(), String> {
    answers[1..].iter().try_for_each(|other| plain(&answers[0], other))
}

fn changes_version(act: &Act) -> bool {
    matches!(act.verb, Verb::Create { .. } | Verb::Draw { .. } | Verb::Set { .. })
}

impl Difference {
    fn at(step: usize, why: String, answers: &[Told]) -> Self {
        Self { step: Some(step), ..Self::in_the_end(why, answers) }
    }

    fn in_the_end(why: String, answers: &[Told]) -> Self {
        Self { step: None, why, answers: answers.iter().map(ToString::to_string).collect() }
    }

    /// The number of steps that show it, if not all are needed.
    pub(crate) fn steps(&self) -> Option<usize> {
        self.step.map(|step| step + 1)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "in step {}: {}", step + 1, self.why)?,
            None => write!(f, "in the end: {}", self.why)?,
        }
        for (store, answer) in self.answers.iter().enumerate() {
            write!(f, "\n  store {store}: {answer}")?;
        }
        Ok(())
    }
}
