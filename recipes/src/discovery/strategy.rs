//! [`Strategy`]: which of several instances is chosen. Pure.

use std::fmt;
use std::sync::Arc;

use synod_core::path::Path;
use synod_core::random::Random;

use crate::discovery::endpoint::Endpoint;
use crate::discovery::instance::Instance;

/// How a [`Provider`](crate::Provider) chooses an instance.
#[non_exhaustive]
pub enum Strategy<T> {
    /// One after the other, in the order of their ids. One that comes or goes does not disturb the order.
    RoundRobin,
    /// Any, each with the same probability.
    Random,
    /// The same one as long as it may be chosen, and then any other.
    Sticky,
    /// Any, with a probability that is proportional to its weight. One without weight is never chosen.
    Weighted(WeightOf<T>),
}

/// The weight of an instance.
type WeightOf<T> = Arc<dyn Fn(&Instance<T>) -> u32 + Send + Sync>;

impl<T> Strategy<T> {
    /// [`Strategy::Weighted`] by a function.
    pub fn weighted(weight: impl Fn(&Instance<T>) -> u32 + Send + Sync + 'static) -> Self {
        Self::Weighted(Arc::new(weight))
    }

    /// Among instances in the order of their ids, the one that follows the last one that was chosen.
    pub(super) fn pick(
        &self,
        may: &[Arc<Endpoint<T>>],
        weights: &[u32],
        last: Option<&Path>,
        random: &Random,
    ) -> Option<Arc<Endpoint<T>>> {
        let any = || number(random.below(length(may.len()))).and_then(|at| may.get(at));
        let picked = match self {
            Self::RoundRobin => {
                let next = may.iter().find(|it| last.is_none_or(|last| it.path > *last));
                next.or_else(|| may.first())
            }
            Self::Random => any(),
            Self::Sticky => may.iter().find(|it| Some(&it.path) == last).or_else(any),
            Self::Weighted(_) => heavy(weights, random).and_then(|at| may.get(at)),
        };
        picked.cloned()
    }

    /// The weights of these instances, if they matter. Code of the application.
    pub(super) fn weights(&self, may: &[Arc<Endpoint<T>>]) -> Vec<u32> {
        match self {
            Self::Weighted(weight) => may.iter().map(|it| weight(&it.instance)).collect(),
            _ => Vec::new(),
        }
    }
}

/// A place, with a probability that is proportional to its weight.
fn heavy(weights: &[u32], random: &Random) -> Option<usize> {
    let all: u64 = weights.iter().copied().map(u64::from).sum();
    if all == 0 {
        return None;
    }
    let mut left = random.below(all);
    weights.iter().position(|&weight| {
        let is_it = left < u64::from(weight);
        left = left.saturating_sub(u64::from(weight));
        is_it
    })
}

fn length(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

fn number(drawn: u64) -> Option<usize> {
    usize::try_from(drawn).ok()
}

impl<T> Clone for Strategy<T> {
    fn clone(&self) -> Self {
        match self {
            Self::RoundRobin => Self::RoundRobin,
            Self::Random => Self::Random,
            Self::Sticky => Self::Sticky,
            Self::Weighted(weight) => Self::Weighted(weight.clone()),
        }
    }
}

impl<T> fmt::Debug for Strategy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "RoundRobin",
            Self::Random => "Random",
            Self::Sticky => "Sticky",
            Self::Weighted(_) => "Weighted",
        })
    }
}

#[cfg(test)]
mod tests {
    use synod_core::store::{Revision, Stat, Version};

    use super::*;

    fn all(names: &str) -> Vec<Arc<Endpoint<u32>>> {
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        let one = |name: char| Endpoint {
            instance: Instance::new("web", "here").id(name),
            path: Path::new(&format!("/web/{name}")).expect("valid"),
            stat,
        };
        names.chars().map(|name| Arc::new(one(name))).collect()
    }

    /// What is chosen one after the other, from one set after the other.
    fn chosen(strategy: &Strategy<u32>, sets: &[&str]) -> String {
        let (random, mut last) = (Random::seeded(7), None);
        let picked = sets.iter().filter_map(|names| {
            let may = all(names);
            let weights = strategy.weights(&may);
            let picked = strategy.pick(&may, &weights, last.as_ref(), &random)?;
            last = Some(picked.path.clone());
            Some(picked.instance.id.clone())
        });
        picked.collect()
    }

    #[test]
    fn each_has_its_turn_although_others_come_and_go() {
        let by_turns = |sets: &[&str]| chosen(&Strategy::RoundRobin, sets);
        assert_eq!(by_turns(&["abc"; 7]), "abcabca");
        assert_eq!(by_turns(&["abc", "bc", "bc", "abc", "acd", "acd"]), "abcacd");
        assert_eq!(by_turns(&["", "b", "", "b"]), "bb");
    }

    #[test]
    fn one_that_is_stuck_to_stays_while_it_is_there() {
        let sticky = chosen(&Strategy::Sticky, &["abc"; 20]);
        assert!(sticky.chars().all(|it| sticky.starts_with(it)), "{sticky}");
        let moved = chosen(&Strategy::Sticky, &["a", "abc", "bc", "abc", "abc"]);
        assert!(["aabbb", "aaccc"].contains(&&*moved), "{moved}");
    }

    #[test]
    fn any_is_chosen_by_its_weight() {
        let count = |of: &str, name: char| of.matches(name).count();
        let any = chosen(&Strategy::Random, &["abcd"; 400]);
        assert!("abcd".chars().all(|name| (60..140).contains(&count(&any, name))), "{any}");
        let weight = |it: &Instance<u32>| match &*it.id {
            "a" => 0,
            "b" => 1,
            _ => u32::MAX,
        };
        let heavy = chosen(&Strategy::weighted(weight), &["abcd"; 400]);
        assert!(!heavy.contains('a') && count(&heavy, 'c') > 140 && count(&heavy, 'd') > 140);
        let three =
            chosen(&Strategy::weighted(|it| if it.id == "a" { 3 } else { 1 }), &["ab"; 400]);
        assert!((250..350).contains(&count(&three, 'a')), "{three}");
        assert_eq!(chosen(&Strategy::weighted(weight), &["a", ""]), "", "none has any weight");
    }
}
