//! [`FilledSlots`]: which slots of a bounded queue are free. Pure.

use std::collections::BTreeSet;

use synod_core::random::Random;

use crate::queue::shuffled::shuffled;

/// The slots of a bounded queue that are filled.
pub(super) struct FilledSlots {
    pub(super) capacity: u64,
    /// Those below the capacity.
    pub(super) slots: BTreeSet<u64>,
}

impl FilledSlots {
    pub(super) fn count_free(&self) -> u64 {
        let filled = u64::try_from(self.slots.len()).unwrap_or(u64::MAX);
        self.capacity.saturating_sub(filled)
    }

    /// As many free slots, or all if there are fewer, in a random order. The effort grows with their number and that of the filled
    /// ones, and not with the capacity.
    pub(super) fn choose_free(&self, most: u64, random: &Random) -> Vec<u64> {
        let wanted = self.count_free().min(most);
        let filled = self.capacity - self.count_free();
        if self.capacity / 2 <= filled + wanted {
            let free = (0..self.capacity).filter(|slot| !self.slots.contains(slot));
            let mut free = shuffled(free.collect(), random);
            free.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            return free;
        }
        // At least every second one is free and not chosen yet.
        let (mut chosen, mut all) = (BTreeSet::new(), Vec::new());
        for _ in 0..wanted {
            let slot = loop {
                let slot = random.below(self.capacity);
                if !self.slots.contains(&slot) && chosen.insert(slot) {
                    break slot;
                }
            };
            all.push(slot);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_chosen_once_each_whatever_the_capacity() {
        let random = Random::seeded(7);
        for (capacity, filled, wanted, expected) in [
            (0, 0, 5, 0),
            (1, 0, 5, 1),
            (1, 1, 5, 0),
            (10, 3, 5, 5),
            (10, 3, 9, 7),
            (600, 1, 256, 256),
            (u64::MAX, 1_000, 256, 256),
        ] {
            let slots = FilledSlots { capacity, slots: (0..filled).collect() };
            let chosen = slots.choose_free(wanted, &random);
            let distinct: BTreeSet<u64> = chosen.iter().copied().collect();
            assert_eq!((chosen.len(), distinct.len()), (expected, expected), "{capacity}");
            assert!(distinct.iter().all(|slot| (filled..capacity).contains(slot)), "{capacity}");
            assert_eq!(slots.count_free(), capacity - filled);
        }
    }
}
