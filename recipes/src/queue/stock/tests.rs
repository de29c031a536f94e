//! Choice of items.

use bytes::Bytes;
use synod_core::clock;
use synod_core::path::Path;
use synod_core::store::{Revision, Stat, Version};

use super::*;

/// Some date.
const DATE: Duration = Duration::from_secs(1_000);

fn node(name: &str, created: u64) -> Node {
    let at = Revision::new(created);
    let path = Path::new(&format!("/q/items/{name}")).expect("valid");
    Node::new(path).with(Bytes::from_static(b"x"), Stat::new(at, at, Version::new(0), None))
}

/// A node of which only the name is reported.
fn reported(name: &str) -> Node {
    Node::new(Path::new(&format!("/q/items/{name}")).expect("valid"))
}

fn names(items: Vec<StockItem>) -> Vec<String> {
    items.into_iter().map(|item| item.name.to_string()).collect()
}

fn picked(stock: &mut Stock, index: usize, now: Instant) -> String {
    match stock.pick(index, 1, now) {
        Pick::Items(items) => names(items).concat(),
        Pick::TooFew => "few".to_owned(),
        Pick::Unread(names) => format!("unread {}", names.join(" ")),
        Pick::None(until) => format!("none {}", until.is_some()),
    }
}

#[test]
fn items_are_picked_in_their_order_each_once() {
    let (mut stock, now) = (Stock::default(), clock::now());
    for (name, created) in [("entry-100-a", 7), ("entry-100-b", 5), ("entry-001-c", 9)] {
        stock.add(&node(name, created), now, DATE);
    }
    stock.add(&node("strange-1", 1), now, DATE);
    assert_eq!(picked(&mut stock, 3, now), "few");
    assert_eq!(picked(&mut stock, 0, now), "entry-001-c");
    assert_eq!(picked(&mut stock, 1, now), "entry-100-a");
    assert_eq!(picked(&mut stock, 0, now), "entry-100-b");
    assert_eq!(picked(&mut stock, 0, now), "none false");
    stock.release("entry-100-b", true, now);
    stock.remove("entry-100-a");
    stock.release("entry-100-a", true, now);
    assert_eq!(picked(&mut stock, 0, now), "none true");
    stock.add(&node("entry-100-d", 8), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "none true", "the item keeps its position");
    assert_eq!(picked(&mut stock, 0, now + RETRY_DELAY), "entry-100-b");
    assert_eq!(picked(&mut stock, 0, now + RETRY_DELAY), "entry-100-d");
}

#[test]
fn several_items_are_picked_together_and_an_untried_item_is_picked_without_delay() {
    let (mut stock, now) = (Stock::default(), clock::now());
    for number in 1..=5 {
        stock.add(&node(&format!("entry-100-{number}"), number), now, DATE);
    }
    let names = |pick| match pick {
        Pick::Items(items) => names(items),
        _ => Vec::new(),
    };
    assert_eq!(stock.pick(5, 2, now), Pick::TooFew);
    assert_eq!(names(stock.pick(3, 3, now)), ["entry-100-4", "entry-100-5"]);
    assert_eq!(names(stock.pick(0, 2, now)), ["entry-100-1", "entry-100-2"]);
    stock.release("entry-100-1", true, now);
    stock.release("entry-100-2", false, now);
    assert_eq!(names(stock.pick(0, 2, now)), [""; 0], "the first one rests");
    let all = names(stock.pick(0, 9, now + RETRY_DELAY));
    assert_eq!(all, ["entry-100-1", "entry-100-2", "entry-100-3"]);
}

#[test]
fn a_late_report_does_not_restore_an_item_that_is_gone() {
    let (mut stock, now) = (Stock::default(), clock::now());
    let name = "entry-100-+d1r5-a";
    stock.add(&node(name, 6), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), name);
    stock.record_gone(name);
    stock.release(name, true, now);
    stock.add(&node(name, 6), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + RETRY_DELAY), "none false");
    stock.add(&node("entry-100-+d2r5-a", 8), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-+d2r5-a");
}

#[test]
fn the_next_name_of_an_item_stays_when_the_last_one_goes_after_it_came() {
    for next in ["entry-100-+d0c1r5-a", "entry-100-+d0r5t999000-a"] {
        let (mut stock, now) = (Stock::default(), clock::now());
        stock.add(&node("entry-100-a", 5), now, DATE);
        stock.add(&node(next, 8), now, DATE);
        stock.remove("entry-100-a");
        assert_eq!(picked(&mut stock, 0, now), next);
    }
}

#[test]
fn an_item_before_its_date_blocks_no_other() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-001-+d0t1002000-a", 5), now, DATE);
    stock.add(&node("entry-100-b", 6), now, DATE);
    stock.add(&node("entry-001-+d0t999000-c", 7), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-001-+d0t999000-c", "its time has come");
    assert_eq!(picked(&mut stock, 0, now), "entry-100-b");
    assert_eq!(stock.pick(0, 1, now), Pick::None(Some(now + Duration::from_secs(2))));
    stock.remove("entry-001-+d0t999000-c");
    let later = now + Duration::from_secs(2);
    assert_eq!(picked(&mut stock, 0, later), "entry-001-+d0t1002000-a");
    stock.remove("entry-001-+d0t1002000-a");
    assert_eq!(picked(&mut stock, 0, later), "none false");
}

#[test]
fn items_that_are_due_are_picked_by_date_before_the_others() {
    let (mut stock, now) = (Stock::default(), clock::now());
    for (name, created) in [
        ("entry-100-a", 1),
        ("entry-100-+d0t999000-b", 5),
        ("entry-100-+d0t998000-c", 6),
        ("entry-100-+d2r2t999000-d", 7),
        ("entry-101-+d0t1-e", 8),
    ] {
        stock.add(&node(name, created), now, DATE);
    }
    for key in ["c", "d", "b", "a", "e"] {
        let name = picked(&mut stock, 0, now);
        assert!(name.ends_with(key), "{name} in place of {key}");
    }
}

#[test]
fn an_item_with_a_date_is_read_when_it_has_come() {
    let (mut stock, now) = (Stock::default(), clock::now());
    let (early, late) = ("entry-100-+d0t1002000-early", "entry-100-+d0t1003000-late");
    stock.add(&node("entry-100-a", 5), now, DATE);
    stock.add(&node("entry-100-b", 6), now, DATE);
    for name in [late, early, early] {
        stock.add(&reported(name), now, DATE);
    }
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a", "the others need not be read");
    let later = now + Duration::from_secs(2);
    assert_eq!(picked(&mut stock, 0, later), format!("unread {early}"));
    stock.add(&node(early, 8), later, DATE + Duration::from_secs(2));
    assert_eq!(picked(&mut stock, 0, later), early);
    // It is an own item: it need not be read, whenever the answer to its put arrives.
    stock.record_put(&node(late, 7), later, DATE + Duration::from_secs(2));
    assert_eq!(picked(&mut stock, 0, later), "entry-100-b");
    assert_eq!(stock.pick(0, 1, later), Pick::None(Some(now + Duration::from_secs(3))));
    assert_eq!(picked(&mut stock, 0, later + Duration::from_secs(1)), late);

    let own = "entry-100-+d0t1009000-own";
    stock.record_put(&node(own, 9), later, DATE);
    stock.add(&reported(own), later, DATE);
    assert_eq!(picked(&mut stock, 0, later + Duration::from_secs(9)), own);
    // A name that is gone before its date is forgotten.
    let gone = "entry-100-+d0t1009000-gone";
    stock.add(&reported(gone), now, DATE);
    stock.remove(gone);
    assert_eq!(picked(&mut stock, 0, now + Duration::from_secs(99)), "none false");
}

#[test]
fn an_item_that_is_set_aside_blocks_no_other() {
    let (mut stock, now) = (Stock::default(), clock::now());
    for (name, created) in [("entry-100-a", 5), ("entry-100-b", 6)] {
        stock.add(&node(name, created), now, DATE);
    }
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
    stock.set_aside("entry-100-a");
    stock.release("entry-100-a", true, now);
    assert_eq!(picked(&mut stock, 0, now + RETRY_DELAY), "entry-100-b");
    stock.clear();
    stock.add(&node("entry-100-a", 5), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "none false", "it is still the same");
}

#[test]
fn a_delay_of_years_is_not_cut_short() {
    let (mut stock, now) = (Stock::default(), clock::now());
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let name = format!("entry-100-+d0t{}-a", (DATE + year * 2).as_millis());
    stock.add(&node(&name, 5), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + year), "none true");
    assert_eq!(stock.pick(0, 1, now + year), Pick::None(Some(now + year * 2)));
    assert_eq!(picked(&mut stock, 0, now + year * 2), name);
}

#[test]
fn any_number_of_items_may_be_requested() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-100-a", 5), now, DATE);
    assert_eq!(stock.pick(usize::MAX, usize::MAX, now), Pick::TooFew);
    let Pick::Items(all) = stock.pick(0, usize::MAX, now) else { panic!("there is one") };
    assert_eq!(names(all), ["entry-100-a"]);
}

#[test]
fn an_item_with_an_unknown_position_is_read_when_it_may_be_next() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-100-a", 5), now, DATE);
    stock.add(&reported("entry-100-c"), now, DATE);
    stock.add(&reported("entry-100-b"), now, DATE);
    assert_eq!(
        picked(&mut stock, 0, now),
        "unread entry-100-c entry-100-b",
        "their order is unknown"
    );
    assert_eq!(picked(&mut stock, 0, now), "unread ", "they were requested");
    stock.add(&node("entry-100-c", 7), now, DATE);
    stock.remove("entry-100-b");
    // From now on they are reported in their order.
    stock.add(&reported("entry-100-d"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a", "it came earlier");
    assert_eq!(picked(&mut stock, 1, now), "unread entry-100-d", "there are too few others");
    stock.add(&reported("entry-099-e"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "unread entry-099-e", "its priority is higher");
    stock.add(&node("entry-099-e", 9), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-099-e");
    // This item may have been put after the one that must be read.
    stock.add(&reported("entry-050-+d1r8-f"), now, DATE);
    stock.add(&reported("entry-050-g"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + RETRY_DELAY), "unread entry-050-g");
    stock.record_gone("entry-050-g");
    stock.add(&reported("entry-050-g"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + RETRY_DELAY), "entry-050-+d1r8-f");
    stock.clear();
    assert_eq!(picked(&mut stock, 0, now), "none false");
}

#[test]
fn an_own_item_is_not_read_and_comes_after_earlier_items() {
    let (mut stock, now) = (Stock::default(), clock::now());
    // The item is reported before the answer to its put, and after it.
    stock.add(&reported("entry-100-a"), now, DATE);
    stock.record_put(&node("entry-100-a", 5), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
    stock.record_put(&node("entry-100-b", 6), now, DATE);
    assert_eq!(
        picked(&mut stock, 0, now),
        "none false",
        "it is not reported: others may be before it"
    );
    stock.add(&reported("entry-100-b"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-b");

    for name in ["entry-100-c", "entry-100-d", "entry-100-e"] {
        stock.add(&reported(name), now, DATE);
    }
    stock.record_put(&node("entry-100-d", 8), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "unread entry-100-c entry-100-e", "others came earlier");
    stock.add(&node("entry-100-c", 7), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-c");
    assert_eq!(picked(&mut stock, 0, now), "entry-100-d");

    // An item that is gone by then is not kept.
    stock.remove("entry-100-e");
    stock.record_gone("entry-100-f");
    stock.record_put(&node("entry-100-f", 9), now, DATE);
    stock.add(&reported("entry-100-f"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "none false");
}

#[test]
fn the_first_of_many_items_with_unknown_positions_are_read() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&reported("entry-100-first"), now, DATE);
    stock.remove("entry-100-first");
    let all: Vec<_> = (0..=MAX_BATCH).rev().map(|it| format!("entry-100-{it:03}")).collect();
    for name in &all {
        stock.add(&reported(name), now, DATE);
    }
    assert_eq!(stock.pick(0, 1, now), Pick::Unread(all[..MAX_BATCH].to_vec()));
    stock.add(&node(&all[0], 5), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), all[0], "all others came later");
    assert_eq!(picked(&mut stock, 0, now), format!("unread {}", all[MAX_BATCH]));
}

#[test]
fn an_own_item_is_picked_if_it_is_among_the_first() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-100-a", 1), now, DATE);
    stock.add(&reported("entry-100-b"), now, DATE);
    let names = |item: Option<StockItem>| item.map(|item| item.name.to_string());
    stock.record_put(&node("entry-100-c", 3), now, DATE);
    assert_eq!(names(stock.pick_own(2, now)), None, "two others are before it");
    stock.add(&reported("entry-100-c"), now, DATE);
    assert_eq!(names(stock.pick_own(9, now)), None, "what is reported first may be a copy");
    stock.remove("entry-100-b");
    stock.remove("entry-100-c");
    stock.record_put(&node("entry-100-i", 4), now, DATE);
    assert_eq!(names(stock.pick_own(2, now)).as_deref(), Some("entry-100-i"), "it comes last");
    stock.record_gone("entry-100-i");
    stock.add(&reported("entry-100-i"), now, DATE);

    stock.record_put(&node("entry-100-e", 5), now, DATE);
    for name in ["entry-100-d", "entry-100-e"] {
        stock.add(&reported(name), now, DATE);
    }
    assert_eq!(names(stock.pick_own(2, now)), None, "two others are before it");
    assert_eq!(names(stock.pick_own(3, now)).as_deref(), Some("entry-100-e"));
    assert_eq!(names(stock.pick_own(3, now)), None, "it is reserved");
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
    assert_eq!(picked(&mut stock, 0, now), "unread entry-100-d");

    // If the data is reported, the answer to the put may arrive before or after the report.
    let mut stock = Stock::default();
    for (name, place) in [("entry-100-f", 6), ("entry-100-g", 7)] {
        stock.add(&node(name, place), now, DATE);
    }
    stock.record_put(&node("entry-100-g", 7), now, DATE);
    stock.record_put(&node("entry-100-h", 8), now, DATE);
    stock.add(&node("entry-100-h", 8), now, DATE);
    assert_eq!(names(stock.pick_own(1, now)), None);
    assert_eq!(names(stock.pick_own(2, now)).as_deref(), Some("entry-100-g"));
    assert_eq!(names(stock.pick_own(2, now)).as_deref(), Some("entry-100-h"));
}
