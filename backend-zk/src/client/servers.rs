//! [`Servers`]: which server is tried next, and when.

use std::time::Duration;

use synod_core::chance::Chance;
use tokio::time::{Instant, sleep_until};

/// The servers in a random order. Each is tried once; after [`Servers::repeat`] they are tried again and again, each round later.
#[derive(Debug)]
pub(super) struct Servers {
    hosts: Vec<String>,
    /// How many were tried since the order was chosen.
    tried: usize,
    repeats: bool,
    chance: Chance,
}

/// Between two tries of one round, and the longest pause between two rounds.
const STEP: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

impl Servers {
    pub(super) fn new(hosts: Vec<String>, chance: Chance) -> Self {
        let mut servers = Self { hosts, tried: 0, repeats: false, chance };
        servers.connected();
        servers
    }

    /// From now on there is no last one.
    pub(super) fn repeat(&mut self) {
        self.repeats = true;
    }

    /// Chooses another order for the next search, as this one was successful.
    pub(super) fn connected(&mut self) {
        self.tried = 0;
        for last in (1..self.hosts.len()).rev() {
            let other = self.chance.below(u64::try_from(last + 1).unwrap_or(1));
            self.hosts.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }

    /// The next server, after a pause that ends at this time at the latest. `None` after the last one.
    pub(super) async fn next(&mut self, end: Instant) -> Option<String> {
        if self.tried >= self.hosts.len() && !self.repeats {
            return None;
        }
        let pause = pause(self.tried, self.hosts.len(), &self.chance);
        if !pause.is_zero() {
            sleep_until((Instant::now() + pause).min(end)).await;
        }
        let next = self.hosts.get(self.tried % self.hosts.len()).cloned();
        self.tried += 1;
        next
    }
}

/// The pause before a try: none in the first round, and at the beginning of each later round twice as long as before.
fn pause(number: usize, servers: usize, chance: &Chance) -> Duration {
    let (round, place) = (number / servers, number % servers);
    let whole = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let pause = match (round, place) {
        (0, _) => return Duration::ZERO,
        (_, 0) => 2 * STEP.saturating_mul(whole(servers)) * (1 << (whole(round) - 1).min(8)),
        (_, place) => STEP.saturating_mul(whole(place)),
    };
    let jitter = Duration::from_millis(chance.below(50));
    pause.min(LONGEST) + jitter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: usize) -> Servers {
        Servers::new((0..count).map(|it| it.to_string()).collect(), Chance::seeded(7))
    }

    #[test]
    fn any_server_may_be_the_first_again() {
        let mut servers = servers(2);
        let order = std::iter::repeat_with(|| {
            servers.connected();
            servers.hosts[0].clone()
        });
        let first: Vec<String> = order.take(33).collect();
        let again = first.windows(2).filter(|two| two[0] == two[1]).count();
        assert!((8..=24).contains(&again), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_tried_once_before_any_is_tried_again() {
        let (mut servers, end) = (servers(3), Instant::now() + Duration::from_secs(60));
        let mut first = Vec::new();
        while let Some(next) = servers.next(end).await {
            first.push(next);
        }
        first.sort();
        assert_eq!(first, ["0", "1", "2"]);

        servers.connected();
        servers.repeat();
        for _round in 0..3 {
            let mut round = Vec::new();
            for _try in 0..3 {
                round.push(servers.next(end).await.expect("there is always one"));
            }
            round.sort();
            assert_eq!(round, ["0", "1", "2"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn later_rounds_wait_and_not_beyond_the_end() {
        let (mut servers, began) = (servers(2), Instant::now());
        let end = began + Duration::from_millis(450);
        servers.repeat();
        let mut times = Vec::new();
        for _ in 0..6 {
            servers.next(end).await.expect("there is always one");
            times.push(began.elapsed().as_millis());
        }
        assert_eq!(times[..2], [0, 0]);
        assert!((200..250).contains(&times[2]) && (250..350).contains(&times[3]), "{times:?}");
        assert!((450..452).contains(&times[4]) && times[5] == times[4], "{times:?}");
    }

    #[test]
    fn the_first_round_is_without_pauses_and_no_pause_is_long() {
        let chance = Chance::seeded(7);
        assert!((0..3).all(|number| pause(number, 3, &chance).is_zero()));
        let between = |number, least: u64, most: u64| {
            let pause = pause(number, 3, &chance).as_millis();
            assert!(pause >= least.into() && pause < most.into(), "{number}: {pause}");
        };
        between(3, 300, 350);
        between(4, 50, 100);
        between(5, 100, 150);
        between(6, 600, 650);
        between(3_000_000, 1_000, 1_050);
    }
}
