use synod_core::random::Random;

use super::*;

fn items(count: u64) -> BTreeSet<String> {
    (0..count).map(|number| format!("item-{number:04}")).collect()
}

fn members(weights: &[u32]) -> Weights {
    weights.iter().enumerate().map(|(number, weight)| (format!("m{number}"), *weight)).collect()
}

fn counts(holders: &Holders) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for member in holders.values() {
        *counts.entry(&**member).or_default() += 1;
    }
    counts
}

/// Each member differs from its exact part by less than one item, and every item has a member.
fn is_balanced(items: &BTreeSet<String>, members: &Weights, target: &Holders) {
    assert_eq!(target.len(), items.len(), "each item has a member");
    let (all, counts) = (members.values().map(|it| u64::from(*it)).sum::<u64>(), counts(target));
    for (name, weight) in members {
        let got = counts.get(&**name).copied().unwrap_or_default() * all;
        let part = items.len() as u64 * u64::from(*weight);
        assert!(got.abs_diff(part) < all, "{name} has {got} of {part} by {all}");
    }
}

#[test]
fn items_are_shared_out_by_weight_up_to_one() {
    for (count, weights) in
        [(10, vec![1, 1, 1]), (2, vec![1; 5]), (0, vec![1]), (100, vec![3, 0, 7, 1])]
    {
        let (items, members) = (items(count), members(&weights));
        let target = divide(&items, &members, &Holders::new());
        is_balanced(&items, &members, &target);
        assert_eq!(divide(&items, &members, &target), target, "it stays so");
    }
    assert!(divide(&items(3), &members(&[0, 0]), &Holders::new()).is_empty(), "none may have any");
    assert!(divide(&items(3), &Weights::new(), &Holders::new()).is_empty());
}

#[test]
fn few_items_move_when_a_member_comes_or_goes() {
    let items = items(1000);
    let mut members = members(&[1; 16]);
    let before = divide(&items, &members, &Holders::new());
    let moved = |one: &Holders, other: &Holders| {
        other.iter().filter(|(item, member)| one.get(*item) != Some(*member)).count()
    };

    members.insert("another".to_owned(), 1);
    let with = divide(&items, &members, &before);

    is_balanced(&items, &members, &with);
    assert_eq!(moved(&before, &with), 58, "its part, and no more");
    assert!(with.iter().all(|(item, it)| it == "another" || before[item] == *it));
    members.remove("m3");
    let without = divide(&items, &members, &with);
    is_balanced(&items, &members, &without);
    assert!(moved(&with, &without) <= 63, "its part, and no more");
}

/// The members act one after the other, each on some of its items: the decision does not change
/// until all have finished.
#[test]
fn the_decision_stays_while_members_act_on_it() {
    let random = Random::seeded(11);
    for _ in 0..200 {
        let items = items(random.below(30));
        let weights: Vec<_> = (0..=random.below(6))
            .map(|_| u32::try_from(random.below(4)).expect("it is small"))
            .collect();
        let members = members(&weights);
        let mut holders = Holders::new();
        for item in &items {
            // The holders include members that no longer exist.
            if random.below(3) > 0 {
                holders.insert(item.clone(), format!("m{}", random.below(8)));
            }
        }
        let target = divide(&items, &members, &holders);
        while holders != target {
            let open: Vec<_> =
                items.iter().filter(|it| holders.get(*it) != target.get(*it)).collect();
            let item = open[usize::try_from(random.below(open.len() as u64)).expect("it is small")];
            if holders.remove(item).is_none() {
                holders.insert(item.clone(), target[item].clone());
            }
            assert_eq!(divide(&items, &members, &holders), target, "after {item}");
        }
    }
}
