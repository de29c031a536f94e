//! [`Stock`]: the items of a queue as one process knows them, and which of them it may try to get. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use synod_core::clock::Instant;
use synod_core::store::{Node, Revision};

use crate::mutant::mistake;
use crate::queue::item_name::{ItemName, Rank};

/// How long an item rests that was delivered before, or whose claim has gone. Its node, and the node of its claim, come and go
/// in one transaction, and are reported one after the other.
const REST: Duration = Duration::from_millis(10);

/// How many names are remembered that are gone.
const REMEMBERED: usize = 64;

/// The longest time after which an item is looked at again, whatever date its name has.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An item of the queue, as the store reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StockItem {
    pub(super) name: ItemName,
    /// Of no meaning if its name shows its place.
    pub(super) created: Revision,
    /// `None` if it is too much to be kept, or was not read.
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
}

/// What a look for an item, or for several, finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pick<I> {
    /// It is reserved for the caller.
    Item(I),
    /// There are some, fewer than the place that was asked for.
    Few,
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
        let created = node.stat.map(|stat| stat.created).unwrap_or_default();
        let rest = if name.delivered > 0 { REST } else { Duration::ZERO };
        let due = name.date().map(|due| now + due.saturating_sub(date).min(LONGEST));
        mistake!(DelayIgnored: let due = None);
        let item = StockItem { name, created, data: some(&node.data), due };
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
    }

    pub(super) fn clear_claims(&mut self, now: Instant) {
        for name in std::mem::take(&mut self.claimed) {
            self.place(&name, now, REST);
        }
    }

    /// Reserves up to so many items, from this place of those that may be tried on.
    pub(super) fn pick_many(
        &mut self,
        place: usize,
        most: usize,
        now: Instant,
    ) -> Pick<Vec<StockItem>> {
        let mut all = match self.pick(place, now) {
            Pick::Item(first) => vec![first],
            Pick::Few => return Pick::Few,
            Pick::None(until) => return Pick::None(until),
        };
        while all.len() < most
            && let Pick::Item(next) = self.pick(place, now)
        {
            all.push(next);
        }
        Pick::Item(all)
    }

    /// Reserves the item in this place of those that may be tried.
    fn pick(&mut self, place: usize, now: Instant) -> Pick<StockItem> {
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
        // An item that rests keeps its place.
        let first = self.resting.first_key_value().map(|(rank, (until, _))| (rank, *until));
        let count = match first {
            Some((rank, _)) => self.free.range(..rank).take(place + 1).count(),
            None => self.free.len(),
        };
        if count == 0 {
            let due = self.delayed.first_key_value().map(|((due, _), _)| *due);
            return Pick::None(first.map(|(_, until)| until).into_iter().chain(due).min());
        }
        let Some((rank, name)) = self.free.iter().take(count).nth(place) else {
            return Pick::Few;
        };
        let (rank, name) = (rank.clone(), name.clone());
        self.free.remove(&rank);
        match self.items.get(&name) {
            Some(item) => {
                self.reserved.insert(name);
                Pick::Item(item.clone())
            }
            None => Pick::None(Some(now)),
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

    fn picked(stock: &mut Stock, place: usize, now: Instant) -> String {
        match stock.pick(place, now) {
            Pick::Item(item) => item.name.to_string(),
            Pick::Few => "few".to_owned(),
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
            Pick::Item(items) => {
                let items: Vec<StockItem> = items;
                items.into_iter().map(|item| item.name.to_string()).collect()
            }
            Pick::Few | Pick::None(_) => Vec::new(),
        };
        assert_eq!(stock.pick_many(5, 2, now), Pick::Few);
        assert_eq!(names(stock.pick_many(3, 3, now)), ["entry-100-4", "entry-100-5"]);
        assert_eq!(names(stock.pick_many(0, 2, now)), ["entry-100-1", "entry-100-2"]);
        stock.give_back("entry-100-1", true, now);
        stock.give_back("entry-100-2", false, now);
        assert_eq!(names(stock.pick_many(0, 2, now)), [""; 0], "the first one rests");
        let all = names(stock.pick_many(0, 9, now + REST));
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
        assert_eq!(stock.pick(0, now), Pick::None(Some(now + Duration::from_secs(2))));
        stock.remove("entry-001-+d0t999000-c");
        let later = now + Duration::from_secs(2);
        assert_eq!(picked(&mut stock, 0, later), "entry-001-+d0t1002000-a");
        stock.remove("entry-001-+d0t1002000-a");
        assert_eq!(picked(&mut stock, 0, later), "none false");
    }
}
