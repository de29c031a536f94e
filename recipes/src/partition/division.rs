//! [`divide`]: the division of the items among the members. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::mutant::mistake;

/// The members by their names, each with its weight.
pub(super) type Weights = BTreeMap<String, u32>;

/// The member that holds, or should hold, each item.
pub(super) type Holders = BTreeMap<String, String>;

/// The number of items that a member should hold, and the held items that it keeps.
struct Part<'a> {
    member: &'a str,
    quota: usize,
    keeps: Vec<&'a str>,
}

/// The designated member of each item. Each member gets a number of items in proportion to its
/// weight, rounded up or down, and keeps as many of its items as that permits.
///
/// All members with the same view make the same decision. It stays the same while they act on it
/// one after the other: a member keeps the first of its items, and the others go to the members
/// that lack items, in a fixed order.
pub(super) fn divide(items: &BTreeSet<String>, members: &Weights, holders: &Holders) -> Holders {
    let mut parts = parts(items, members, holders);
    mistake!(DividesAnew: for part in &mut parts {
        part.keeps.clear();
    });
    let mut target = Holders::new();
    for part in &mut parts {
        part.keeps.truncate(part.quota);
        for item in &part.keeps {
            target.insert((*item).to_owned(), part.member.to_owned());
        }
    }
    let slots = parts.iter().flat_map(|part| {
        std::iter::repeat_n(part.member, part.quota.saturating_sub(part.keeps.len()))
    });
    let free: Vec<_> = items.iter().filter(|item| !target.contains_key(*item)).collect();
    let given = free.into_iter().zip(slots);
    target.extend(given.map(|(item, member)| (item.clone(), member.to_owned())));
    target
}

/// The parts of all members, by their names. The sum of the quotas is the number of items.
fn parts<'a>(
    items: &'a BTreeSet<String>,
    members: &'a Weights,
    holders: &Holders,
) -> Vec<Part<'a>> {
    let all: u64 = members.values().copied().map(u64::from).sum();
    if all == 0 {
        return Vec::new();
    }
    let count = items.len() as u64;
    let part = |(member, weight): (&'a String, &u32)| {
        let keeps = items.iter().filter(|item| holders.get(*item) == Some(member));
        let share = count * u64::from(*weight);
        let quota = usize::try_from(share / all).unwrap_or(usize::MAX);
        let part = Part { member, quota, keeps: keeps.map(String::as_str).collect() };
        (part, !share.is_multiple_of(all))
    };
    let (mut parts, has_rest): (Vec<_>, Vec<_>) = members.iter().map(part).unzip();
    let whole: usize = parts.iter().map(|part| part.quota).sum();
    // Members whose part is not a whole number may get one more: members that already hold one more
    // come first.
    let mut more: Vec<_> = (0..parts.len()).filter(|index| has_rest[*index]).collect();
    more.sort_by_key(|index| parts[*index].keeps.len() <= parts[*index].quota);
    for index in more.into_iter().take(items.len().saturating_sub(whole)) {
        parts[index].quota += 1;
    }
    parts
}

#[cfg(test)]
mod tests;
