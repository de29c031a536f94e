use super::*;

/// The sites of these tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crossing(u64);

impl Place for Crossing {
    fn number(self) -> u64 {
        self.0
    }
}

fn spots() -> impl Iterator<Item = Spot<Crossing>> {
    let actor = |number| (1..=500).map(move |n| (Actor(number), n));
    (0..2).flat_map(actor).flat_map(|(actor, n)| {
        [0, 1, 2, 3, 4, 5, 6, 7].map(Crossing).map(|site| Spot { site, actor, n })
    })
}

fn fired(choice: &Choice<Crossing>, permille: u32) -> Vec<Spot<Crossing>> {
    spots().filter(|spot| choice.fires(*spot, permille)).collect()
}

#[test]
fn a_seed_repeats_itself_whatever_is_asked_in_between() {
    let all = fired(&Choice::seeded(7), 100);
    assert_eq!(fired(&Choice::seeded(7), 100), all);
    assert_ne!(fired(&Choice::seeded(8), 100), all);
    let backwards: Vec<Spot<Crossing>> = spots().collect();
    let mut again: Vec<Spot<Crossing>> =
        backwards.into_iter().rev().filter(|spot| Choice::seeded(7).fires(*spot, 100)).collect();
    again.reverse();
    assert_eq!(again, all);
}

#[test]
fn rates_are_kept_and_a_higher_rate_only_adds() {
    let choice = Choice::seeded(7);
    let (low, high) = (fired(&choice, 100), fired(&choice, 200));
    assert!((700..900).contains(&low.len()), "{} of 8000 at 10 %", low.len());
    assert!(low.iter().all(|spot| high.contains(spot)));
    assert_eq!(fired(&choice, 1_000).len(), 8_000);
    assert_eq!(fired(&choice, 0).len(), 0);
    assert_eq!(fired(&Choice::<Crossing>::never(), 1_000).len(), 0);
}

#[test]
fn sizes_are_more_than_nothing_and_seldom_large() {
    let choice = Choice::seeded(7);
    let sizes: Vec<u64> = spots().map(|spot| choice.size(spot, 1_000)).collect();
    assert!(sizes.iter().all(|size| (1..=1_000).contains(size)));
    let large = sizes.iter().filter(|size| **size > 500).count();
    assert!((400..1_000).contains(&large), "{large} of 8000 above one half");
    let spot = spots().next().expect("many");
    assert_eq!(choice.size(spot, 0), 1);
    assert_eq!(Choice::<Crossing>::never().size(spot, 7), 7);
}

#[test]
fn what_was_recorded_fires_as_it_did_and_nothing_else() {
    let seeded = Choice::seeded(7);
    let fired = fired(&seeded, 100);
    let faults = fired.iter().map(|spot| (*spot, seeded.size(*spot, 1_000)));
    let replay = Choice::recorded(7, faults.skip(1));
    // At any rates.
    let again: Vec<_> = spots().filter(|spot| replay.fires(*spot, 1)).collect();
    assert_eq!(again, fired[1..]);
    assert!(again.iter().all(|spot| replay.size(*spot, 9) == seeded.size(*spot, 1_000)));
    assert!(spots().all(|spot| replay.pick(spot, 5) == seeded.pick(spot, 5)));
}

#[test]
fn enumeration_takes_every_path_once() {
    let tape = Tape::exhaustive(1);
    let mut paths = Vec::new();
    loop {
        let choice = Choice::taped(tape.clone());
        let spot = |n| Spot { site: Crossing(0), actor: Actor(0), n };
        let fires = [1, 2].map(|n| choice.fires(spot(n), 1));
        let picks = choice.pick(spot(3), 3);
        paths.push((fires, picks));
        if !tape.rewind() {
            break;
        }
    }
    // At most one of two faults fires.
    assert_eq!(paths.len(), 9, "{paths:?}");
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 9);
}

#[test]
fn bytes_decide_until_there_are_none() {
    let choice = Choice::taped(Tape::bytes([255, 0, 1]));
    let spot = Spot { site: Crossing(0), actor: Actor(0), n: 1 };
    assert!(choice.fires(spot, 1));
    assert!(!choice.fires(spot, 1));
    assert_eq!(choice.pick(spot, 7), 1);
    assert!(!choice.fires(spot, 1_000));
    assert_eq!(choice.pick(spot, 7), 0);
}
