use std::collections::BTreeMap;

use synod_core::random::Random;

use super::*;

const KEYS: u64 = 4_000;

fn names(count: u64) -> Vec<(String, u8)> {
    (0..count).map(|number| (format!("member-{number}"), 1)).collect()
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("key-{number}"))
}

/// Values that another program computed from the documentation alone.
#[test]
fn places_and_owners_are_those_of_other_programs() {
    for (bytes, place) in [
        ("", 0xC381_7C01_6BA4_FF30_u64),
        ("a", 0x5F29_C2AA_DD9B_8527),
        ("user:1", 0xB1CB_D658_59D0_0AFF),
        ("é", 0x6E24_11EB_6850_90BA),
    ] {
        assert_eq!(Ring::place(bytes.as_bytes()), place, "{bytes}");
    }
    let ring = Ring::new([("cid", 2), ("ann", 1), ("bob", 1)]);
    let ends = [ring.points[0], ring.points[ring.points.len() - 1]];
    assert_eq!(ends, [(10_907_556_387_029_602, 0), (18_435_856_016_400_877_616, 2)]);
    for (key, owners) in [
        ("", ["bob", "cid", "ann"]),
        ("user:1", ["cid", "ann", "bob"]),
        ("user:2", ["ann", "cid", "bob"]),
        ("é", ["cid", "ann", "bob"]),
    ] {
        assert_eq!(ring.owners(key, 3), owners, "{key}");
        assert_eq!(ring.owner(key), Some(owners[0]));
    }
}

#[test]
fn a_ring_is_made_of_what_has_a_weight() {
    let none = Ring::default();
    assert_eq!((none.owner("a"), none.owners("a", 2)), (None, Vec::new()));
    let idle = Ring::new([("ann", 0)]);
    assert_eq!((idle.owner("a"), idle.members().count()), (None, 1));
    let ring = Ring::new([("ann", 0), ("bob", 1), ("cid", 9), ("cid", 1)]);
    assert_eq!(ring.owners("a", 9).len(), 2, "all that have a weight");
    assert_eq!(ring.owners("a", 0), [""; 0]);
    assert_eq!(ring.members().collect::<Vec<_>>(), [("ann", 0), ("bob", 1), ("cid", 1)]);
}

/// When a member is added, only this member gets keys, and when it is removed, only it loses keys;
/// for many rings.
#[test]
fn a_change_moves_only_keys_of_the_member_that_came_or_went() {
    let random = Random::seeded(7);
    for _ in 0..40 {
        let mut members = names(1 + random.below(12));
        for member in &mut members {
            member.1 = u8::try_from(random.below(4)).expect("it is small");
        }
        let before = Ring::new(members.clone());
        let came = ("another".to_owned(), 1 + u8::try_from(random.below(3)).expect("it is small"));
        members.push(came);
        let after = Ring::new(members);
        let mut moved = 0;
        for key in keys().take(500) {
            if before.owner(&key) != after.owner(&key) {
                assert_eq!(after.owner(&key), Some("another"), "{key}");
                moved += 1;
            }
            let mut rest = after.owners(&key, 99);
            rest.retain(|name| *name != "another");
            assert_eq!(rest, before.owners(&key, 99), "the others keep their order for {key}");
        }
        assert!(moved > 0, "it got nothing");
    }
}

/// The bound in the documentation: each member has between half and 1.5 times its share.
#[test]
fn keys_are_shared_out_by_weight() {
    for count in [2, 3, 8, 16] {
        let mut members = names(count);
        members[0].1 = 3;
        let ring = Ring::new(members.clone());
        let mut shares = BTreeMap::<_, u64>::new();
        for key in keys() {
            *shares.entry(ring.owner(&key).expect("there are members").to_owned()).or_default() +=
                1;
        }
        let all: u64 = members.iter().map(|(_, weight)| u64::from(*weight)).sum();
        for (name, weight) in &members {
            let (got, part) = (shares[name] * all, KEYS * u64::from(*weight));
            assert!(got * 2 < part * 3 && got * 2 > part, "{name} has {got} of {part}");
        }
    }
}
