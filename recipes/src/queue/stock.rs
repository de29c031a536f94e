//! [`Stock`]: the items of a queue as one process knows them, and which of them it may try to get. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::store::{Node, Revision};

use crate::mutant::mistake;
use crate::queue::arrivals::Arrivals;
use crate::queue::item_name::{ItemName, Rank};

/// How long an item rests that was delivered before, or whose claim has gone. Its node, and the node of its claim, come and go
/// in one transaction, and are reported one after the other.
const REST: Duration = Duration::from_millis(10);

/// How many names are remembered that are gone.
const REMEMBERED: usize = 64;

/// The most items that are read at once to learn their places.
const BATCH: usize = 50;

/// The longest time after which an item is looked at again, whatever date its name has.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An item of the queue, as the store reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StockItem {
    pub(super) name: ItemName,
    /// Of no meaning if its name shows its place.
    pub(super) created: Revision,
    /// `None` if it is too much to be kept, or its name shows its place.
    pub(super) data: Option<Bytes>,
    /// It is not to be delivered before.
    pub(super) due: Option<Instant>,
}

/// The items that are known, by the names of their nodes.
#[derive(Debug, Default)]
pub(super) struct Stock {
    items: BTreeMap<String, StockItem>,
    /// The names of the items that have a claim.
    claimed: BTreeSet<String>,
    /// The names of the items that a task of this process tries to get, or has claimed.
    reserved: BTreeSet<String>,
    /// The last names that are known to be gone. What is reported of them is late.
    gone: VecDeque<String>,
    /// The names of the items that may be tried, in their order.
    free: BTreeMap<Rank, String>,
    /// Those that may be tried later.
    resting: BTreeMap<Rank, (Instant, String)>,
    /// Those whose time has not come.
    delayed: BTreeMap<(Instant, Rank), String>,
    /// Those whose places are not known.
    arrivals: Arrivals,
}

/// What a look for items finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// They are reserved for the caller.
    Items(Vec<StockItem>),
    /// There are some, fewer than the place that was asked for.
    Few,
    /// These have to be read before: their places are not known.
    Unread(Vec<String>),
    /// There is none before this time, or before there is news.
    None(Option<Instant>),
}

impl Stock {
    /// Adds an item. What is no item is ignored. `date` is that of now.
    pub(super) fn add(&mut self, node: &Node, now: Instant, date: Duration) {
        let text = node.path.name();
        if self.gone.iter().any(|gone| gone == text) {
            return;
        }
        let Some(name) = ItemName::parse(text) else { return };
        if node.stat.is_none() && !name.shows_place() {
            return self.arrivals.add(name.priority, text);
        }
        self.arrivals.remove(text);
        self.keep(text, StockItem::new(name, node, now, date), now);
    }

    /// Takes note of an item that this process has put: where it is reported by its name alone, it is not read.
    pub(super) fn has_put(&mut self, node: &Node, now: Instant, date: Duration) {
        let text = node.path.name();
        if let Some(name) = ItemName::parse(text)
            && node.stat.is_some()
            && !self.items.contains_key(text)
            && !self.gone.iter().any(|gone| gone == text)
        {
            self.arrivals.has_put(text.to_owned(), StockItem::new(name, node, now, date));
        }
    }

    fn keep(&mut self, text: &str, item: StockItem, now: Instant) {
        let rest = if item.name.delivered > 0 { REST } else { Duration::ZERO };
        let _last = self.items.insert(text.to_owned(), item);
        self.place(text, now, rest);
    }

    /// Records that there is no item of this name any more, whatever is reported later: a name is never used again.
    pub(super) fn is_gone(&mut self, name: &str) {
        self.remove(name);
        self.gone.push_back(name.to_owned());
        if self.gone.len() > REMEMBERED {
            self.gone.pop_front();
        }
    }

    /// Keeps an item that this process has claimed from its own tasks.
    pub(super) fn reserve(&mut self, name: &str, now: Instant) {
        self.reserved.insert(name.to_owned());
        self.place(name, now, Duration::ZERO);
    }

    /// Removes the item of this name.
    pub(super) fn remove(&mut self, name: &str) {
        self.arrivals.remove(name);
        if let Some(item) = self.items.remove(name) {
            let rank = item.rank();
            self.unplace(rank, item.due);
        }
    }

    /// Records that an item has a claim.
    pub(super) fn claim(&mut self, name: &str, now: Instant) {
        mistake!(ClaimIgnored: return);
        self.claimed.insert(name.to_owned());
        self.place(name, now, Duration::ZERO);
    }

    /// Records that an item has none.
    pub(super) fn unclaim(&mut self, name: &str, now: Instant) {
        mistake!(ClaimsNeverEnd: return);
        self.claimed.remove(name);
        self.place(name, now, REST);
    }

    /// Ends a reservation. An item that was tried is tried again later, if it is still there.
    pub(super) fn give_back(&mut self, name: &str, was_tried: bool, now: Instant) {
        self.reserved.remove(name);
        self.place(name, now, if was_tried { REST } else { Duration::ZERO });
    }

    pub(super) fn clear_items(&mut self) {
        self.items.clear();
        self.free.clear();
        self.resting.clear();
        self.delayed.clear();
        self.arrivals.clear();
    }

    pub(super) fn clear_claims(&mut self, now: Instant) {
        for name in std::mem::take(&mut self.claimed) {
            self.place(&name, now, REST);
        }
    }

    /// Reserves up to so many items, from this place of those that may be tried on.
    pub(super) fn pick(&mut self, place: usize, most: usize, now: Instant) -> Pick {
        self.recover(now);
        while let Some((name, item)) = self.arrivals.take_first_put() {
            self.keep(&name, item, now);
        }
        let count = place + most;
        if self.arrivals.may_be_among(&self.first_ranks(count), count) {
            return Pick::Unread(self.arrivals.ask(BATCH));
        }
        let mut all = match self.pick_one(place, now) {
            Ok(first) => vec![first],
            Err(none) => return none,
        };
        while all.len() < most
            && let Ok(next) = self.pick_one(place, now)
        {
            all.push(next);
        }
        Pick::Items(all)
    }

    /// The ranks of the first items that may be tried, now or after a rest.
    fn first_ranks(&self, count: usize) -> Vec<&Rank> {
        let mut first: Vec<_> = self.free.keys().take(count).collect();
        first.extend(self.resting.keys().take(count));
        first.sort();
        first.truncate(count);
        first
    }

    /// Reserves the item in this place of those that may be tried.
    fn pick_one(&mut self, place: usize, now: Instant) -> Result<StockItem, Pick> {
        // An item that rests keeps its place.
        let first = self.resting.first_key_value().map(|(rank, (until, _))| (rank, *until));
        let count = match first {
            Some((rank, _)) => self.free.range(..rank).take(place + 1).count(),
            None => self.free.len(),
        };
        if count == 0 {
            let due = self.delayed.first_key_value().map(|((due, _), _)| *due);
            return Err(Pick::None(first.map(|(_, until)| until).into_iter().chain(due).min()));
        }
        let Some((rank, name)) = self.free.iter().take(count).nth(place) else {
            return Err(Pick::Few);
        };
        let (rank, name) = (rank.clone(), name.clone());
        self.free.remove(&rank);
        match self.items.get(&name) {
            Some(item) => {
                self.reserved.insert(name);
                Ok(item.clone())
            }
            None => Err(Pick::None(Some(now))),
        }
    }

    /// Lets those be tried that have rested, and those whose time has come.
    fn recover(&mut self, now: Instant) {
        let rested = self.resting.iter().filter(|(_, (until, _))| *until <= now);
        let rested: Vec<Rank> = rested.map(|(rank, _)| rank.clone()).collect();
        for rank in rested {
            if let Some((_, name)) = self.resting.remove(&rank) {
                self.free.insert(rank, name);
            }
        }
        while let Some(entry) = self.delayed.first_entry().filter(|it| it.key().0 <= now) {
            let ((_, rank), name) = entry.remove_entry();
            self.free.insert(rank, name);
        }
    }

    /// Puts an item where it belongs.
    fn place(&mut self, name: &str, now: Instant, rest: Duration) {
        let Some(item) = self.items.get(name) else { return };
        let (rank, due) = (item.rank(), item.due);
        self.unplace(rank.clone(), due);
        if self.claimed.contains(name) || self.reserved.contains(name) {
            return;
        }
        match due.filter(|due| *due > now) {
            Some(due) => drop(self.delayed.insert((due, rank), name.to_owned())),
            None if rest.is_zero() => drop(self.free.insert(rank, name.to_owned())),
            None => drop(self.resting.insert(rank, (now + rest, name.to_owned()))),
        }
    }

    fn unplace(&mut self, rank: Rank, due: Option<Instant>) {
        self.free.remove(&rank);
        self.resting.remove(&rank);
        if let Some(due) = due {
            self.delayed.remove(&(due, rank));
        }
    }
}

/// Data that is there. A mirror leaves out what is too much.
fn some(data: &Bytes) -> Option<Bytes> {
    Some(data).filter(|data| !data.is_empty()).cloned()
}

impl StockItem {
    fn new(name: ItemName, node: &Node, now: Instant, date: Duration) -> Self {
        let created = node.stat.map(|stat| stat.created).unwrap_or_default();
        let due = name.date().map(|due| now + due.saturating_sub(date).min(LONGEST));
        mistake!(DelayIgnored: let due = None);
        Self { name, created, data: some(&node.data), due }
    }

    fn rank(&self) -> Rank {
        let created = self.created;
        mistake!(QueueIgnoresOrder: let created = Revision::ZERO);
        self.name.rank(created)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::clock;
    use synod_core::path::Path;
    use synod_core::store::{Stat, Version};

    use super::*;

    /// Some date.
    const DATE: Duration = Duration::from_secs(1_000);

    fn node(name: &str, created: u64) -> Node {
        let at = Revision::new(created);
        let path = Path::new(&format!("/q/items/{name}")).expect("valid");
        Node::new(path).with(Bytes::from_static(b"x"), Stat::new(at, at, Version::new(0), None))
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
    fn an_item_with_a_claim_is_not_picked_before_the_claim_has_gone() {
        let (mut stock, now) = (Stock::default(), clock::now());
        let name = "entry-100-+d1r5-a";
        stock.add(&node(name, 6), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "none true", "its claim may be reported next");
        stock.claim(name, now);
        assert_eq!(picked(&mut stock, 0, now + REST), "none false");
        stock.unclaim(name, now + REST);
        assert_eq!(picked(&mut stock, 0, now + REST), "none true", "it may be gone, too");
        assert_eq!(picked(&mut stock, 0, now + REST + REST), name);
        // What this process knows is not undone by a late report.
        stock.is_gone(name);
        stock.add(&node(name, 6), now, DATE);
        assert_eq!(picked(&mut stock, 0, now + REST), "none false");
        // The claim may be reported before the item.
        stock.claim("entry-100-+d2r5-a", now);
        stock.add(&node("entry-100-+d2r5-a", 8), now, DATE);
        assert_eq!(picked(&mut stock, 0, now + REST), "none false");
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
    fn an_item_whose_place_is_not_known_is_read_when_it_may_be_the_next() {
        let (mut stock, now) = (Stock::default(), clock::now());
        let named = |name: &str| Node::new(Path::new(&format!("/q/items/{name}")).expect("valid"));
        stock.add(&node("entry-100-a", 5), now, DATE);
        stock.add(&named("entry-100-c"), now, DATE);
        stock.add(&named("entry-100-b"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "unread entry-100-c entry-100-b", "in which order?");
        assert_eq!(picked(&mut stock, 0, now), "unread ", "they were asked for");
        stock.add(&node("entry-100-c", 7), now, DATE);
        stock.remove("entry-100-b");
        // From now on they come in their order.
        stock.add(&named("entry-100-d"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "entry-100-a", "it came earlier");
        assert_eq!(picked(&mut stock, 1, now), "unread entry-100-d", "there are too few others");
        stock.add(&named("entry-099-e"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "unread entry-099-e", "its priority is higher");
        stock.add(&node("entry-099-e", 9), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "entry-099-e");
        // This one may have been put after the one that is asked for.
        stock.add(&named("entry-050-+d1r8-f"), now, DATE);
        stock.add(&named("entry-050-g"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now + REST), "unread entry-050-g");
        stock.is_gone("entry-050-g");
        stock.add(&named("entry-050-g"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now + REST), "entry-050-+d1r8-f");
        stock.clear_items();
        assert_eq!(picked(&mut stock, 0, now), "none false");
    }

    #[test]
    fn an_item_that_this_process_has_put_is_not_read_but_is_after_those_that_came_earlier() {
        let (mut stock, now) = (Stock::default(), clock::now());
        let named = |name: &str| Node::new(Path::new(&format!("/q/items/{name}")).expect("valid"));
        // It is reported before the answer, and after it.
        stock.add(&named("entry-100-a"), now, DATE);
        stock.has_put(&node("entry-100-a", 5), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "entry-100-a");
        stock.has_put(&node("entry-100-b", 6), now, DATE);
        assert_eq!(
            picked(&mut stock, 0, now),
            "none false",
            "it is not reported: others may be before it"
        );
        stock.add(&named("entry-100-b"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "entry-100-b");

        for name in ["entry-100-c", "entry-100-d", "entry-100-e"] {
            stock.add(&named(name), now, DATE);
        }
        stock.has_put(&node("entry-100-d", 8), now, DATE);
        assert_eq!(
            picked(&mut stock, 0, now),
            "unread entry-100-c entry-100-e",
            "others came earlier"
        );
        stock.add(&node("entry-100-c", 7), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "entry-100-c");
        assert_eq!(picked(&mut stock, 0, now), "entry-100-d");

        // What is gone by then is not kept.
        stock.remove("entry-100-e");
        stock.is_gone("entry-100-f");
        stock.has_put(&node("entry-100-f", 9), now, DATE);
        stock.add(&named("entry-100-f"), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), "none false");
    }

    #[test]
    fn of_many_items_whose_places_are_not_known_the_first_are_read() {
        let (mut stock, now) = (Stock::default(), clock::now());
        let add = |stock: &mut Stock, name: &str| {
            let path = Path::new(&format!("/q/items/{name}")).expect("valid");
            stock.add(&Node::new(path), now, DATE);
        };
        add(&mut stock, "entry-100-first");
        stock.remove("entry-100-first");
        let all: Vec<_> = (0..=BATCH).rev().map(|it| format!("entry-100-{it:03}")).collect();
        for name in &all {
            add(&mut stock, name);
        }
        assert_eq!(stock.pick(0, 1, now), Pick::Unread(all[..BATCH].to_vec()));
        stock.add(&node(&all[0], 5), now, DATE);
        assert_eq!(picked(&mut stock, 0, now), all[0], "all others came later");
        assert_eq!(picked(&mut stock, 0, now), format!("unread {}", all[BATCH]));
    }
}
