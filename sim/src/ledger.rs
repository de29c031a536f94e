//! [`Ledger`]: compares the result of each write with the store's history.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{By, Personality};
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{Kind, Outcome};

use crate::findings::Truth;
use crate::process::Process;
use crate::user_mistake::UserMistake;

/// Writes, each with unique data, and their results. Clones are the same ledger.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<String, Line>>>);

/// One write.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// The number of commits when it was called, and when it returned.
    called: usize,
    returned: usize,
    told: Told,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// The write was applied.
    Done,
    /// The write was not applied, and never will be.
    Failed,
    /// Its effect is unknown.
    Unknown,
}

impl Told {
    /// Classifies a result.
    pub fn of<T>(result: &Result<Outcome<T>, Error>) -> Self {
        match result {
            Ok(Outcome::Committed(_)) => Self::Done,
            Ok(Outcome::Rejected(_)) => Self::Failed,
            Err(error) if error.effect() == Effect::None => Self::Failed,
            Err(_) => Self::Unknown,
        }
    }
}

impl Ledger {
    /// Runs a write of this data, or drops it if the fault fires. `None` if it was dropped.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the write: the effect of a dropped write is unknown.
    pub async fn write<T>(
        &self,
        me: &Process,
        data: impl Display,
        call: impl Future<Output = Result<Outcome<T>, Error>>,
    ) -> Option<Result<Outcome<T>, Error>> {
        let (data, called) = (data.to_string(), me.committed());
        let line = Line { called, returned: usize::MAX, told: Told::Unknown };
        self.lock().insert(data.clone(), line);
        let result = me.perhaps(call).await;
        if result.is_none() && !me.makes(UserMistake::DropMeansUnsent) {
            return None;
        }
        if let Some(line) = self.lock().get_mut(&data) {
            let told = result.as_ref().map_or(Told::Failed, Told::of);
            (line.returned, line.told) = (me.committed(), told);
        }
        result
    }

    /// L-OUT-1 to L-OUT-3: a failed write was never applied; an answered write was applied once,
    /// during the call; an unknown one was applied at most once.
    ///
    /// # Errors
    ///
    /// The law that was broken, and a description.
    pub fn check(&self, truth: &Truth) -> Result<(), (&'static str, String)> {
        let happened = happened(truth);
        for (data, line) in &*self.lock() {
            let times = happened.get(data.as_str()).map_or(&[][..], Vec::as_slice);
            line.check(times)
                .map_err(|(law, what)| (law, format!("the write of {data} {what}")))?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A commit that wrote something.
#[derive(Clone, Copy, Debug)]
struct Time {
    at: usize,
    /// `true` for a sequential create whose node was removed before the library could see it.
    undone: bool,
}

/// A node that exists.
#[derive(Clone, Copy, Debug)]
struct Held<'a> {
    data: &'a str,
    /// `true` if a sequential create made the node.
    drawn: bool,
    by: By,
}

/// The commits that wrote each data.
fn happened(truth: &Truth) -> BTreeMap<&str, Vec<Time>> {
    let mut happened: BTreeMap<&str, Vec<Time>> = BTreeMap::new();
    let mut holds: BTreeMap<&Path, Held<'_>> = BTreeMap::new();
    // etcd reuses names: the first request of a create may arrive after the node of the second was
    // deleted.
    let late = matches!(truth.personality, Personality::Etcd | Personality::Etcd34);
    for (index, entry) in truth.log.iter().enumerate() {
        for change in &entry.changes {
            let data = change.node.as_ref().and_then(|node| std::str::from_utf8(&node.data).ok());
            let Some(data) = data else {
                let held = holds.remove(&change.path);
                let undone = held.filter(|held| held.is_undone(entry.by, late));
                let times = undone.and_then(|held| happened.get_mut(held.data));
                if let Some(time) = times.and_then(|times| times.last_mut()) {
                    time.undone = true;
                }
                continue;
            };
            // Later writes do not change which create made the node.
            if change.kind == Kind::Created {
                let drawn = entry.drawn.contains(&change.path);
                holds.insert(&change.path, Held { data, drawn, by: entry.by });
            }
            let times = happened.entry(data).or_default();
            if times.last().is_none_or(|last| last.at != index) {
                times.push(Time { at: index, undone: false });
            }
        }
    }
    happened
}

impl Held<'_> {
    /// Returns `true` if the library may conclude that the create was never applied, or applied
    /// once. It searches for the node of a sequential create whose answer was lost, but a stranger
    /// has removed the node, or the process itself has removed the node of a delayed request.
    fn is_undone(self, by: By, late: bool) -> bool {
        self.drawn && (by == By::Stranger || late && by == self.by && by != By::Store)
    }
}

impl Line {
    fn check(&self, times: &[Time]) -> Result<(), (&'static str, String)> {
        let stayed = times.iter().filter(|time| !time.undone).count();
        let in_time = times.iter().any(|time| (self.called..self.returned).contains(&time.at));
        match self.told {
            Told::Failed if stayed > 0 => {
                Err(("L-OUT-1", "failed for certain, and happened".to_owned()))
            }
            Told::Unknown if stayed > 1 => Err(("L-OUT-3", format!("happened {stayed} times"))),
            Told::Done if times.is_empty() => {
                Err(("L-OUT-2", "was answered, and never happened".to_owned()))
            }
            Told::Done if stayed > 1 => {
                Err(("L-OUT-2", format!("was answered, and happened {stayed} times")))
            }
            Told::Done if !in_time => Err(("L-OUT-2", "happened at another time".to_owned())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_decides_how_often_a_write_may_have_happened() {
        let line = |told| Line { called: 3, returned: 6, told };
        let law = |told, times: &[usize]| {
            let times: Vec<_> = times.iter().map(|at| Time { at: *at, undone: false }).collect();
            line(told).check(&times).err().map(|(law, _)| law)
        };
        assert_eq!(law(Told::Done, &[4]), None);
        assert_eq!(law(Told::Done, &[6]), Some("L-OUT-2"));
        assert_eq!(law(Told::Done, &[2]), Some("L-OUT-2"));
        assert_eq!(law(Told::Done, &[]), Some("L-OUT-2"));
        assert_eq!(law(Told::Done, &[3, 4]), Some("L-OUT-2"));
        assert_eq!(law(Told::Failed, &[]), None);
        assert_eq!(law(Told::Failed, &[9]), Some("L-OUT-1"));
        assert_eq!(law(Told::Unknown, &[9]), None);
        assert_eq!(law(Told::Unknown, &[4, 9]), Some("L-OUT-3"));
        let again = [Time { at: 4, undone: true }, Time { at: 5, undone: false }];
        assert!(line(Told::Done).check(&again).is_ok());
    }

    #[test]
    fn only_a_sequential_create_is_excused_and_only_by_its_own_process_or_a_stranger() {
        let (ann, bob) = (By::Process(1), By::Process(2));
        let held = |drawn| Held { data: "x", drawn, by: ann };
        for late in [false, true] {
            assert!(held(true).is_undone(By::Stranger, late));
            assert_eq!(held(true).is_undone(ann, late), late);
            for by in [bob, By::Store] {
                assert!(!held(true).is_undone(by, late), "{by:?}");
            }
            for by in [ann, bob, By::Stranger, By::Store] {
                assert!(!held(false).is_undone(by, late), "{by:?}");
            }
        }
    }
}
