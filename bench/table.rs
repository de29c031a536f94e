//! The table that a race ends with.
#![expect(clippy::print_stdout, reason = "it talks to a person")]

use crate::race::Work;
use crate::spread::Spread;

/// What came of one kind of work with so many in flight.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was done.
    pub(crate) work: Work,
    /// How many were in flight at a time.
    pub(crate) flight: usize,
    /// Laps a second, of every racer.
    pub(crate) speeds: Vec<Spread>,
    /// How fast each racer but the first is, if the first is 1.
    pub(crate) ratios: Vec<Spread>,
}

/// Prints the head of the table.
pub(crate) fn print_head(names: &[&str]) {
    print!("| work | in flight |");
    for name in names {
        print!(" {name}/s |");
    }
    for name in &names[1..] {
        print!(" {name} : {} | half of the rounds |", names[0]);
    }
    println!();
    let columns = 2 + names.len() + 2 * (names.len() - 1);
    println!("|{}", "---|".repeat(columns));
}

/// Prints one row.
pub(crate) fn print(row: &Row) {
    print!("| {:13} | {:2} |", row.work, row.flight);
    for speed in &row.speeds {
        print!(" {:6.0} |", speed.median);
    }
    for ratio in &row.ratios {
        print!(" {:.2} | {:.2} to {:.2} |", ratio.median, ratio.low, ratio.high);
    }
    println!();
}

/// Prints the head of the table of how soon a change is heard of.
pub fn print_heard_head() {
    println!(
        "| beside it | heard of after | half of the changes | answered after | half of them |"
    );
    println!("|{}", "---|".repeat(5));
}

/// Prints one row of it, in milliseconds.
pub fn print_heard(beside: &str, (told, answered): (Spread, Spread)) {
    print!("| {beside} ");
    for spread in [told, answered] {
        print!("| {:.2} ms | {:.2} to {:.2} ", spread.median, spread.low, spread.high);
    }
    println!("|");
}

/// Says why there is no table.
pub fn print_missing(why: &str) {
    println!("not run: {why}");
}
