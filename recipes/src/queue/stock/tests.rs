//! Which items are picked, and when.

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

/// What is known of a node by its name alone.
fn reported(name: &str) -> Node {
    Node::new(Path::new(&format!("/q/items/{name}")).expect("valid"))
}

fn names(items: Vec<StockItem>) -> Vec<String> {
    items.into_iter().map(|item| item.name.to_string()).collect()
}

fn picked(stock: &mut Stock, place: usize, now: Instant) -> String {
    match stock.pick(place, 1, now) {
        Pick::Items(items) => names(items).concat(),
        Pick::Few => "few".to_owned(),
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
    stock.give_back("entry-100-b", true, now);
    stock.remove("entry-100-a");
    stock.give_back("entry-100-a", true, now);
    assert_eq!(picked(&mut stock, 0, now), "none true");
    stock.add(&node("entry-100-d", 8), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "none true", "it keeps its place");
    assert_eq!(picked(&mut stock, 0, now + REST), "entry-100-b");
    assert_eq!(picked(&mut stock, 0, now + REST), "entry-100-d");
}

#[test]
fn several_items_are_picked_together_and_what_was_not_tried_is_picked_at_once() {
    let (mut stock, now) = (Stock::default(), clock::now());
    for number in 1..=5 {
        stock.add(&node(&format!("entry-100-{number}"), number), now, DATE);
    }
    let names = |pick| match pick {
        Pick::Items(items) => names(items),
        _ => Vec::new(),
    };
    assert_eq!(stock.pick(5, 2, now), Pick::Few);
    assert_eq!(names(stock.pick(3, 3, now)), ["entry-100-4", "entry-100-5"]);
    assert_eq!(names(stock.pick(0, 2, now)), ["entry-100-1", "entry-100-2"]);
    stock.give_back("entry-100-1", true, now);
    stock.give_back("entry-100-2", false, now);
    assert_eq!(names(stock.pick(0, 2, now)), [""; 0], "the first one rests");
    let all = names(stock.pick(0, 9, now + REST));
    assert_eq!(all, ["entry-100-1", "entry-100-2", "entry-100-3"]);
}

#[test]
fn what_this_process_knows_to_be_gone_is_not_undone_by_a_late_report() {
    let (mut stock, now) = (Stock::default(), clock::now());
    let name = "entry-100-+d1r5-a";
    stock.add(&node(name, 6), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), name);
    stock.record_gone(name);
    stock.give_back(name, true, now);
    stock.add(&node(name, 6), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + REST), "none false");
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
fn an_item_before_its_time_is_in_no_others_way() {
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
fn an_item_that_this_process_cannot_have_is_in_no_others_way() {
    let (mut stock, now) = (Stock::default(), clock::now());
    for (name, created) in [("entry-100-a", 5), ("entry-100-b", 6)] {
        stock.add(&node(name, created), now, DATE);
    }
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
    stock.set_aside("entry-100-a");
    stock.give_back("entry-100-a", true, now);
    assert_eq!(picked(&mut stock, 0, now + REST), "entry-100-b");
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
fn any_number_of_items_may_be_asked_for() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-100-a", 5), now, DATE);
    assert_eq!(stock.pick(usize::MAX, usize::MAX, now), Pick::Few);
    let Pick::Items(all) = stock.pick(0, usize::MAX, now) else { panic!("there is one") };
    assert_eq!(names(all), ["entry-100-a"]);
}

#[test]
fn an_item_whose_place_is_not_known_is_read_when_it_may_be_the_next() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-100-a", 5), now, DATE);
    stock.add(&reported("entry-100-c"), now, DATE);
    stock.add(&reported("entry-100-b"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "unread entry-100-c entry-100-b", "in which order?");
    assert_eq!(picked(&mut stock, 0, now), "unread ", "they were asked for");
    stock.add(&node("entry-100-c", 7), now, DATE);
    stock.remove("entry-100-b");
    // From now on they come in their order.
    stock.add(&reported("entry-100-d"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a", "it came earlier");
    assert_eq!(picked(&mut stock, 1, now), "unread entry-100-d", "there are too few others");
    stock.add(&reported("entry-099-e"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "unread entry-099-e", "its priority is higher");
    stock.add(&node("entry-099-e", 9), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-099-e");
    // This one may have been put after the one that is asked for.
    stock.add(&reported("entry-050-+d1r8-f"), now, DATE);
    stock.add(&reported("entry-050-g"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + REST), "unread entry-050-g");
    stock.record_gone("entry-050-g");
    stock.add(&reported("entry-050-g"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now + REST), "entry-050-+d1r8-f");
    stock.clear();
    assert_eq!(picked(&mut stock, 0, now), "none false");
}

#[test]
fn an_item_that_this_process_has_put_is_not_read_but_is_after_those_that_came_earlier() {
    let (mut stock, now) = (Stock::default(), clock::now());
    // It is reported before the answer, and after it.
    stock.add(&reported("entry-100-a"), now, DATE);
    stock.has_put(&node("entry-100-a", 5), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
    stock.has_put(&node("entry-100-b", 6), now, DATE);
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
    stock.has_put(&node("entry-100-d", 8), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "unread entry-100-c entry-100-e", "others came earlier");
    stock.add(&node("entry-100-c", 7), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "entry-100-c");
    assert_eq!(picked(&mut stock, 0, now), "entry-100-d");

    // What is gone by then is not kept.
    stock.remove("entry-100-e");
    stock.record_gone("entry-100-f");
    stock.has_put(&node("entry-100-f", 9), now, DATE);
    stock.add(&reported("entry-100-f"), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), "none false");
}

#[test]
fn of_many_items_whose_places_are_not_known_the_first_are_read() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&reported("entry-100-first"), now, DATE);
    stock.remove("entry-100-first");
    let all: Vec<_> = (0..=BATCH).rev().map(|it| format!("entry-100-{it:03}")).collect();
    for name in &all {
        stock.add(&reported(name), now, DATE);
    }
    assert_eq!(stock.pick(0, 1, now), Pick::Unread(all[..BATCH].to_vec()));
    stock.add(&node(&all[0], 5), now, DATE);
    assert_eq!(picked(&mut stock, 0, now), all[0], "all others came later");
    assert_eq!(picked(&mut stock, 0, now), format!("unread {}", all[BATCH]));
}

#[test]
fn what_this_process_has_put_is_picked_from_among_so_many_of_the_first() {
    let (mut stock, now) = (Stock::default(), clock::now());
    stock.add(&node("entry-100-a", 1), now, DATE);
    stock.add(&reported("entry-100-b"), now, DATE);
    let names = |item: Option<StockItem>| item.map(|item| item.name.to_string());
    stock.has_put(&node("entry-100-c", 3), now, DATE);
    assert_eq!(names(stock.pick_own(2, now)), None, "two others are before it");
    stock.add(&reported("entry-100-c"), now, DATE);
    assert_eq!(names(stock.pick_own(9, now)), None, "what is reported first may be a copy");
    stock.remove("entry-100-b");
    stock.remove("entry-100-c");
    stock.has_put(&node("entry-100-i", 4), now, DATE);
    assert_eq!(names(stock.pick_own(2, now)).as_deref(), Some("entry-100-i"), "it comes last");
    stock.record_gone("entry-100-i");
    stock.add(&reported("entry-100-i"), now, DATE);

    stock.has_put(&node("entry-100-e", 5), now, DATE);
    for name in ["entry-100-d", "entry-100-e"] {
        stock.add(&reported(name), now, DATE);
    }
    assert_eq!(names(stock.pick_own(2, now)), None, "two others are before it");
    assert_eq!(names(stock.pick_own(3, now)).as_deref(), Some("entry-100-e"));
    assert_eq!(names(stock.pick_own(3, now)), None, "it is reserved");
    assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
    assert_eq!(picked(&mut stock, 0, now), "unread entry-100-d");

    // Where the data is reported, the answer to the put comes before the report or after it.
    let mut stock = Stock::default();
    for (name, place) in [("entry-100-f", 6), ("entry-100-g", 7)] {
        stock.add(&node(name, place), now, DATE);
    }
    stock.has_put(&node("entry-100-g", 7), now, DATE);
    stock.has_put(&node("entry-100-h", 8), now, DATE);
    stock.add(&node("entry-100-h", 8), now, DATE);
    assert_eq!(names(stock.pick_own(1, now)), None);
    assert_eq!(names(stock.pick_own(2, now)).as_deref(), Some("entry-100-g"));
    assert_eq!(names(stock.pick_own(2, now)).as_deref(), Some("entry-100-h"));
}
