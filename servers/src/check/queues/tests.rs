use super::*;
use crate::check::record::tests::Script;
use crate::clients::deed::Part;
use crate::clients::entry::{Kind, Op, What};

const ITEM: Value = 7;
const FIRST: &str = "entry-100-k";

/// A record of one queue.
struct Story(Script);

impl Story {
    fn new() -> Self {
        let mut script = Script::default();
        let path = "/q".to_owned();
        script.begin(1, Op::Serve { part: Part::Consumer, path, first: 0, count: 0, ttl: 1 });
        Self(script)
    }

    /// A history in which the item was put.
    fn put() -> Self {
        Self::new().says(Deed::Puts { item: ITEM }).born(5, FIRST).says(done_put(Effect::Done))
    }

    /// A history in which the item was also claimed with this token, and held for a while.
    fn claimed(token: u64) -> Self {
        Self::put().claims(token, FIRST, &name(1)).holds(token, (10, 20))
    }

    fn says(mut self, deed: Deed) -> Self {
        self.0.say(1, None, What::Deed { deed });
        self
    }

    /// Advances the time: every holding ends before, unless a test overrides that.
    fn later(mut self) -> Self {
        while self.0.say(1, None, What::Deed { deed: Deed::Rests }) < 100 {}
        self
    }

    fn fact(mut self, revision: u64, path: &str, kind: Kind, owner: Option<u64>) -> Self {
        let value = (path.starts_with("items/") && kind == Kind::Created).then_some(ITEM);
        self.0.fact(revision, &format!("/q/{path}"), kind, value, owner);
        self
    }

    fn born(self, revision: u64, name: &str) -> Self {
        self.fact(revision, &format!("items/{name}"), Kind::Created, None)
    }

    fn gone(self, revision: u64, name: &str) -> Self {
        self.fact(revision, &format!("items/{name}"), Kind::Deleted, None)
    }

    fn claims(self, token: u64, from: &str, to: &str) -> Self {
        let claimed = self.gone(token, from).born(token, to);
        claimed.fact(token, &format!("claims/{to}"), Kind::Created, Some(token))
    }

    fn unclaims(self, revision: u64, name: &str) -> Self {
        self.fact(revision, &format!("claims/{name}"), Kind::Deleted, Some(1))
    }

    fn holds(self, token: u64, (since, certain): (u64, u64)) -> Self {
        self.says(Deed::Holds { item: ITEM, token, asked: since - 1, since, certain })
    }

    fn acks(self, token: u64, with: bool, effect: Effect) -> Self {
        let begun = self.later().says(Deed::Acks { item: ITEM, token, with });
        begun.says(Deed::Acked { item: ITEM, token, with, effect })
    }

    fn effect(self, revision: u64, token: u64) -> Self {
        self.fact(revision, &format!("done/{ITEM}-{token}"), Kind::Created, None)
    }

    fn takes(self, item: Option<Value>, effect: Effect) -> Self {
        self.later().says(Deed::Takes).says(Deed::Took { item, effect })
    }

    fn laws(self) -> Vec<&'static str> {
        check(&self.0.record()).iter().map(|breach| breach.law).collect()
    }
}

fn done_put(effect: Effect) -> Deed {
    Deed::Put { item: ITEM, effect }
}

fn name(delivered: u32) -> String {
    format!("entry-100-+d{delivered}r5-k")
}

const FINE: [&str; 0] = [];

#[test]
fn an_item_that_was_acknowledged_or_taken_once_is_fine() {
    let acked = Story::claimed(6).gone(9, &name(1)).unclaims(9, &name(1));
    assert_eq!(acked.acks(6, false, Effect::Done).laws(), FINE);
    let taken = Story::put().gone(9, FIRST);
    assert_eq!(taken.takes(Some(ITEM), Effect::Done).laws(), FINE);
    assert_eq!(Story::new().laws(), FINE);
}

#[test]
fn an_item_that_was_put_is_not_lost() {
    let never = Story::new().says(Deed::Puts { item: ITEM }).says(done_put(Effect::Done));
    assert_eq!(never.laws(), ["L-Q-1"]);
    let unheard = Story::put().gone(9, FIRST);
    assert_eq!(unheard.laws(), ["L-Q-1"]);
    let failed = Story::put().gone(9, FIRST).takes(None, Effect::None);
    assert_eq!(failed.laws(), ["L-Q-1"]);
    let unknown = Story::put().gone(9, FIRST).takes(None, Effect::Unknown);
    assert_eq!(unknown.laws(), FINE, "that take may have had it");
    let killed = Story::put().gone(9, FIRST).says(Deed::Takes);
    assert_eq!(killed.laws(), FINE);
}

#[test]
fn an_item_is_not_removed_with_a_claim_that_did_not_acknowledge_it() {
    let gone = || Story::claimed(6).gone(9, &name(1)).unclaims(9, &name(1));
    assert_eq!(gone().laws(), ["L-Q-1"]);
    assert_eq!(gone().acks(6, false, Effect::None).laws(), ["L-Q-1"]);
    assert_eq!(gone().acks(6, false, Effect::Unknown).laws(), FINE);
}

#[test]
fn what_is_there_was_put_once() {
    let invented = Story::new().born(5, FIRST).gone(9, FIRST);
    assert_eq!(invented.takes(Some(ITEM), Effect::Done).laws(), ["L-Q-2"]);
    let nowhere = Story::new().says(Deed::Puts { item: ITEM }).says(done_put(Effect::Unknown));
    assert_eq!(nowhere.takes(Some(ITEM), Effect::Done).laws(), ["L-Q-2"]);
    let twice = |effect| {
        let put = Story::new().says(Deed::Puts { item: ITEM }).says(done_put(effect));
        let both = put.born(5, FIRST).born(6, "entry-100-l");
        both.gone(9, FIRST).gone(9, "entry-100-l").takes(Some(ITEM), Effect::Done).laws()
    };
    assert_eq!(twice(Effect::Unknown), ["L-Q-3"]);
    assert_eq!(twice(Effect::Done), ["L-Q-3"]);
    let failed = Story::new().says(Deed::Puts { item: ITEM }).says(done_put(Effect::None));
    let failed = failed.born(5, FIRST).gone(9, FIRST).takes(Some(ITEM), Effect::Done);
    assert_eq!(failed.laws(), ["L-Q-3"]);
}

#[test]
fn nothing_is_left() {
    assert_eq!(Story::put().laws(), ["L-Q-4"]);
    assert_eq!(Story::claimed(6).laws(), ["L-Q-4", "L-Q-4"], "an item, and its claim");
    assert_eq!(Story::claimed(6).unclaims(9, &name(1)).laws(), ["L-Q-4"]);
}

#[test]
fn an_item_is_had_for_good_once() {
    let twice = Story::put().gone(9, FIRST).takes(Some(ITEM), Effect::Done);
    assert_eq!(twice.takes(Some(ITEM), Effect::Done).laws(), ["L-Q-5"]);
    // A take was dropped, and put the item back at its position.
    let back = || Story::put().gone(9, FIRST).born(10, &name(1)).gone(11, &name(1));
    assert_eq!(back().takes(Some(ITEM), Effect::Done).laws(), FINE);
    let both = back().takes(Some(ITEM), Effect::Done).takes(Some(ITEM), Effect::Done);
    assert_eq!(both.laws(), ["L-Q-5"]);
}

#[test]
fn a_stale_consumer_acknowledges_nothing() {
    // The session of the first one ends, and the second one claims it.
    let again = || Story::claimed(6).unclaims(8, &name(1)).claims(9, &name(1), &name(2));
    let ended = || again().holds(9, (30, 40)).gone(12, &name(2)).unclaims(12, &name(2));
    assert_eq!(ended().acks(6, false, Effect::None).acks(9, false, Effect::Done).laws(), FINE);
    let stale = ended().acks(6, false, Effect::Done).acks(9, false, Effect::Unknown);
    assert_eq!(stale.laws(), ["L-Q-6"]);
    let both = ended().acks(6, false, Effect::Done).acks(9, false, Effect::Done);
    assert_eq!(both.laws(), ["L-Q-5", "L-Q-6"]);
    let revived = Story::claimed(6).gone(7, &name(1)).unclaims(7, &name(1));
    let revived = revived.acks(6, false, Effect::Done).claims(9, FIRST, &name(2));
    let revived = revived.unclaims(12, &name(2)).gone(12, &name(2)).acks(9, false, Effect::Unknown);
    assert_eq!(revived.laws(), ["L-Q-6"]);
}

#[test]
fn a_delivery_is_held_alone_by_a_claim_that_is_there() {
    let again = |spans: [(u64, u64); 2]| {
        let first = Story::put().claims(6, FIRST, &name(1)).holds(6, spans[0]);
        let second = first.unclaims(8, &name(1)).claims(9, &name(1), &name(2)).holds(9, spans[1]);
        let gone = second.gone(12, &name(2)).unclaims(12, &name(2));
        gone.acks(9, false, Effect::Done).laws()
    };
    assert_eq!(again([(10, 20), (30, 40)]), FINE);
    assert_eq!(again([(10, 30), (25, 40)]), ["L-Q-6"]);
    assert_eq!(again([(50, 60), (30, 40)]), ["L-Q-6"], "the tokens fall");
    // The other consumer has acknowledged the item by then.
    assert_eq!(again([(10, 900), (30, 40)]), ["L-Q-6"; 2], "it is held, and it is over");
    let unclaimed = Story::put().holds(6, (10, 20)).gone(9, FIRST);
    assert_eq!(unclaimed.takes(Some(ITEM), Effect::Done).laws(), ["L-Q-6"]);
}

#[test]
fn an_effect_comes_with_the_end() {
    let ended = || Story::claimed(6).gone(9, &name(1)).unclaims(9, &name(1));
    assert_eq!(ended().effect(9, 6).acks(6, true, Effect::Done).laws(), FINE);
    assert_eq!(ended().acks(6, true, Effect::Unknown).laws(), ["L-Q-6"], "half of it is missing");
    assert_eq!(ended().acks(6, true, Effect::Done).laws(), ["L-Q-6"]);
    assert_eq!(ended().effect(8, 6).acks(6, true, Effect::Done).laws(), ["L-Q-6"]);
    let twice = ended().effect(9, 6).effect(9, 5).acks(6, true, Effect::Done);
    assert_eq!(twice.laws(), ["L-Q-6"]);
    assert_eq!(ended().effect(9, 6).acks(6, false, Effect::Done).laws(), ["L-Q-6"]);
}
