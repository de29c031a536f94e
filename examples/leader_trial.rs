//! Tests a small leader election, written by hand, in the simulator and prints its violations.
//!
//! Two servers of one service create an ephemeral node; the server that owns the node leads.
//! `naive` remembers that it leads until it is notified otherwise. `careful` checks each time that
//! its session is certain to be alive.
//!
//! ```sh
//! cargo run --release --example leader_trial --features sim
//! ```

#![expect(clippy::print_stdout, reason = "its output is for people")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use synod::Revision;
use synod::sim::{Fault, Hunt, Process, Rates, Sim};
use synod::{Client, ConnectionState, Expect, Lifetime, Outcome, Path, Session, Txn};

/// A log shared by all processes, which only a simulation can have.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Option<(Revision, String)>>>);

impl Book {
    /// A process acts as the leader. After the leader of a later term has acted, the leader of an
    /// earlier term must not.
    fn acts(&self, me: &Process, term: Revision) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*book {
            Some((later, who)) if *later > term => {
                let who = who.clone();
                me.wrong("two never lead at once", || {
                    format!("{} acts as the leader, and {who} leads since", me.name())
                });
            }
            _ => *book = Some((term, me.name().to_owned())),
        }
    }
}

/// Creates the node of the leader if there is none. Returns the session that owns the node, and the
/// term.
async fn campaign(client: &Client, office: &Path, name: &str) -> Option<(Session, Revision)> {
    let session = client.session().await.ok()?;
    let claim = Txn::new().create(office, name.to_owned(), Lifetime::Session);
    match session.commit(claim).await {
        Ok(Outcome::Committed(commit)) => {
            let created = commit.results.first()?.stat?.created;
            Some((session, created))
        }
        _ => None,
    }
}

/// Leads until it is notified that its session is lost.
async fn naive(me: Process, book: Book) {
    let (Ok(client), Ok(office)) = (me.client().await, Path::new("/office")) else { return };
    for _ in 0..me.rounds(4) {
        if let Some((_session, term)) = campaign(&client, &office, me.name()).await {
            let _leads = me.during("leads");
            let mut leads = true;
            for _ in 0..10 {
                if leads {
                    book.acts(&me, term);
                }
                me.rest(Duration::from_millis(300)).await;
                leads &= *client.state().borrow() == ConnectionState::Connected;
            }
            let _either_way = client.delete(&office, Expect::Any).await.is_ok();
        }
        me.rest(Duration::from_secs(1)).await;
    }
}

/// Leads while its session is certain to be alive, which it checks immediately before it acts.
async fn careful(me: Process, book: Book) {
    let (Ok(client), Ok(office)) = (me.client().await, Path::new("/office")) else { return };
    for _ in 0..me.rounds(4) {
        if let Some((session, term)) = campaign(&client, &office, me.name()).await {
            let leads = me.during("leads");
            for _ in 0..10 {
                if !session.is_certain() {
                    break;
                }
                book.acts(&me, term);
                me.rest(Duration::from_millis(300)).await;
            }
            drop(leads);
            // Closing the session removes the node that it created, and nothing that another
            // session owns.
            let _either_way = session.close().await.is_ok();
        }
        me.rest(Duration::from_secs(1)).await;
    }
}

/// Without faults that end a session or remove nodes from outside. Against those, only a
/// transaction that checks the leader's node helps.
fn peaceful(sim: Sim) -> Sim {
    let by_hand = [6, 16, 17].into_iter().filter_map(Fault::by_number);
    sim.rates(|rates| by_hand.fold(rates, Rates::without))
}

fn trial_of_the_naive() -> Hunt {
    Hunt::new("naive", |sim| {
        let book = Book::default();
        peaceful(sim).processes(2, move |me| naive(me, book.clone()))
    })
}

fn trial_of_the_careful() -> Hunt {
    Hunt::new("careful", |sim| {
        let book = Book::default();
        peaceful(sim).processes(2, move |me| careful(me, book.clone()))
    })
}

fn main() {
    let found = trial_of_the_naive().seeds(0..1_000).or_as_told().run();
    match &found.failure {
        Some(failure) => println!("{failure}\n"),
        None => println!("naive: {} histories, nothing found\n", found.tally.histories),
    }
    let found = trial_of_the_careful().seeds(0..2_000).or_as_told().run();
    found.expect_clean();
    println!("careful: {} histories, nothing broken", found.tally.histories);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_naive_one_is_found_out_and_the_careful_one_is_not() {
        let found = trial_of_the_naive().seeds(0..1_000).run();
        let failure = found.failure.expect("a thousand histories are enough");
        assert_eq!(failure.violation.law, "two never lead at once");
        let story = failure.to_string();
        assert!(story.contains("acts as the leader"), "{story}");

        trial_of_the_careful().seeds(0..300).run().expect_clean();
    }
}
