//! [`Race`]: several racers do the same tasks in turn, in many short rounds.

use std::time::Duration;

use tokio::time::Instant;

use crate::racer::{Failure, Racer};
use crate::record::{Case, Fact, Record};
use crate::report::Report;
use crate::task::{Task, Work};

/// A racer, with its name in the table.
pub type Named = (String, Box<dyn Racer>);

/// The thoroughness of a race.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "two of them, below")]
pub struct Pace {
    /// The time for which each racer warms up.
    pub warm_up: Duration,
    /// The time for which each racer works in a round.
    pub round: Duration,
    /// The number of rounds.
    pub rounds: usize,
    /// After this time, three rounds are enough.
    pub budget: Duration,
}

/// Takes some minutes.
pub const THOROUGH: Pace = Pace {
    warm_up: Duration::from_millis(500),
    round: Duration::from_millis(250),
    rounds: 9,
    budget: Duration::from_secs(15),
};

/// The smallest pace that gives a useful result.
pub const QUICK: Pace = Pace {
    warm_up: Duration::from_millis(250),
    round: Duration::from_millis(100),
    rounds: 5,
    budget: Duration::from_secs(4),
};

/// The minimum number of rounds.
const FEWEST: usize = 3;
/// The maximum number of clients for warming up: more do not make it more effective.
const WARM: usize = 100;

/// All racers do the same on one server, each in its turn.
///
/// The first racer changes from round to round, so that none always gets the warm server. Ratios
/// are computed within one round, whose parts are close together: a longer disturbance of the
/// machine affects all of them.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    pace: Pace,
}

impl Race {
    /// Races at this pace.
    pub fn new(pace: Pace) -> Self {
        Self { pace }
    }

    /// The results; none if the first racer does not support the task.
    pub async fn run(&self, case: &Case, racers: &mut [Named]) -> Vec<Record> {
        let mut records = Vec::new();
        let mut tell = |racer: &str, fact| {
            records.push(Record { case: case.clone(), racer: racer.to_owned(), fact });
        };
        let mut ready: Vec<&mut Named> = Vec::new();
        for named in racers {
            match self.warm_up(case, &mut *named.1).await {
                Ok(Some(_)) => ready.push(named),
                // Without the first racer there is nothing to compare with.
                Ok(None) if ready.is_empty() => return records,
                Ok(None) => {}
                Err(failure) => tell(&named.0, Fact::Failed(failure.to_string())),
            }
        }
        let task = case.task(self.pace.round);
        let started = Instant::now();
        for round in 0..self.pace.rounds {
            for turn in 0..ready.len() {
                let place = (round + turn) % ready.len();
                let (name, racer) = &mut *ready[place];
                match racer.run(&task).await {
                    Ok(Some(report)) => tell(name, Fact::Round(round, report)),
                    Ok(None) => {}
                    Err(failure) => tell(name, Fact::Failed(failure.to_string())),
                }
            }
            if round + 1 >= FEWEST && started.elapsed() > self.pace.budget {
                break;
            }
        }
        records
    }

    async fn warm_up(&self, case: &Case, racer: &mut dyn Racer) -> Result<Option<Report>, Failure> {
        let task = case.task(self.pace.warm_up);
        let clients = if case.work == Work::Drain { task.clients.min(WARM) } else { task.clients };
        racer.run(&Task { clients, ..task }).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use async_trait::async_trait;

    use super::*;
    use crate::report::report;

    const PACE: Pace = Pace {
        warm_up: Duration::from_millis(2),
        round: Duration::from_millis(1),
        rounds: 4,
        budget: Duration::from_secs(60),
    };

    /// The answers of a fake.
    #[derive(Clone, Copy)]
    enum Way {
        Does,
        Misses,
        Fails,
    }

    /// Records the call, and gives the answer of this fake.
    struct Fake {
        name: &'static str,
        asked: Rc<RefCell<Vec<String>>>,
        way: Way,
    }

    #[async_trait(?Send)]
    impl Racer for Fake {
        async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
            self.asked.borrow_mut().push(format!("{} {} ms", self.name, task.millis));
            let done = report(vec![Duration::from_micros(5)], 5.0, None, None);
            match self.way {
                Way::Does => Ok(Some(done)),
                Way::Misses => Ok(None),
                Way::Fails => Err("no breath".into()),
            }
        }
    }

    async fn race(ways: [Way; 2]) -> (Vec<Record>, String) {
        let asked = Rc::new(RefCell::default());
        let racers = ["a", "b"].into_iter().zip(ways).map(|(name, way)| {
            let fake = Fake { name, asked: Rc::clone(&asked), way };
            (name.to_owned(), Box::new(fake) as Box<dyn Racer>)
        });
        let mut racers: Vec<Named> = racers.collect();
        let case = Case {
            server: "none".to_owned(),
            fsync: false,
            work: Work::Get,
            clients: 1,
            busy: false,
        };
        let records = Race::new(PACE).run(&case, &mut racers).await;
        let asked = asked.borrow().join(", ");
        (records, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_racer_changes_from_round_to_round() {
        let (records, asked) = race([Way::Does, Way::Does]).await;

        let rounds = "a 1 ms, b 1 ms, b 1 ms, a 1 ms, a 1 ms, b 1 ms, b 1 ms, a 1 ms";
        assert_eq!(asked, format!("a 2 ms, b 2 ms, {rounds}"));
        assert_eq!(records.len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_the_first_racer_lacks_is_skipped() {
        let (records, asked) = race([Way::Misses, Way::Does]).await;
        assert_eq!((records.len(), asked.as_str()), (0, "a 2 ms"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_failure_of_the_first_racer_is_recorded_where_the_next_one_lacks_the_work() {
        let (records, asked) = race([Way::Fails, Way::Misses]).await;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].fact, Fact::Failed("no breath".to_owned()));
        assert_eq!(asked, "a 2 ms, b 2 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_racer_that_fails_to_warm_up_does_not_race() {
        let (records, asked) = race([Way::Does, Way::Fails]).await;
        let failed = |record: &&Record| record.fact == Fact::Failed("no breath".to_owned());
        assert_eq!(records.iter().filter(failed).count(), 1);
        assert_eq!(asked.matches('b').count(), 1, "{asked}");
    }
}
