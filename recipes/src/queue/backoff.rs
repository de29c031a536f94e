//! [`ItemBackoff`]: the delay before an item is retried whose work failed. Pure.

use std::time::Duration;

use synod_core::random::Random;

/// The delay before an item is retried whose work failed. It doubles with each delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemBackoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Default for ItemBackoff {
    /// With the default limit of deliveries an item is tried for about four hours.
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(15 * 60) }
    }
}

impl ItemBackoff {
    /// Returns the delay after this number of deliveries, shortened at random by up to a quarter,
    /// so that items that failed together are not retried together.
    pub(super) fn after(self, delivered: u32, random: &Random) -> Duration {
        let factor = 1_u32.checked_shl(delivered.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(factor).min(self.longest);
        let quarter = u64::try_from((whole / 4).as_millis()).unwrap_or(u64::MAX - 1);
        whole.saturating_sub(Duration::from_millis(random.below(quarter.saturating_add(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_the_deliveries_of_an_item_up_to_a_limit() {
        let (usual, random) = (ItemBackoff::default(), Random::seeded(7));
        for (delivered, seconds) in [(0, 1), (1, 1), (2, 2), (5, 16), (10, 512), (11, 900)] {
            let (after, whole) = (usual.after(delivered, &random), Duration::from_secs(seconds));
            assert!(after <= whole && after >= whole * 3 / 4, "{delivered}: {after:?}");
        }
        for delivered in [25, 32, 33, 34, u32::MAX] {
            assert!(usual.after(delivered, &random) >= usual.longest * 3 / 4, "{delivered}");
        }
        let endless = ItemBackoff { first: Duration::MAX, longest: Duration::MAX };
        assert!(endless.after(3, &random) > Duration::from_secs(u64::MAX / 2));
        let none = ItemBackoff { first: Duration::ZERO, longest: Duration::ZERO };
        assert_eq!(none.after(3, &random), Duration::ZERO);
    }
}
