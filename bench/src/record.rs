//! [`Record`]: one measurement, as it is stored.

use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::report::Report;
use crate::task::{Task, Work};

/// A measurement on one server, for all racers: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the results")]
pub struct Case {
    /// The kind of server.
    pub server: String,
    /// `true` if the server writes to the disk before it answers.
    pub fsync: bool,
    /// The kind of work.
    pub work: Work,
    /// The number of clients.
    pub clients: usize,
    /// `true` if there are background writes.
    #[serde(default)]
    pub busy: bool,
}

/// The result of one racer in one round, or its number of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the results")]
pub struct Record {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The name of the racer.
    pub racer: String,
    /// The result.
    #[serde(flatten)]
    pub fact: Fact,
}

/// A result of one racer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "a reader of the results matches all")]
pub enum Fact {
    /// One round, by its number.
    Round(usize, Report),
    /// The requests of a lap.
    Count(Count),
    /// The race failed, for this reason.
    Failed(String),
}

/// The average requests of a lap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the results")]
pub struct Count {
    /// Messages of the client.
    pub requests: f64,
    /// Bytes to and from the server.
    pub bytes: f64,
}

impl Case {
    /// The server that it is measured on, for a person.
    pub fn stand(&self) -> String {
        if self.fsync { format!("{}, with its disk", self.server) } else { self.server.clone() }
    }

    /// The kind of work, for a person.
    pub fn title(&self) -> String {
        if self.busy { format!("{}, busy", self.work) } else { self.work.to_string() }
    }

    /// The task for this case, lasting `time`; a drain lasts until it is done, and a measurement of
    /// CPU time lasts for at least a second, because some systems count in hundredths.
    pub fn task(&self, time: Duration) -> Task {
        match self.work {
            Work::Drain | Work::CacheMemory => Task::laps(self.work, self.clients, 1),
            Work::CacheChanges => {
                Task::lasting(self.work, self.clients, time.max(Duration::from_secs(1)))
            }
            _ => Task::lasting(self.work, self.clients, time),
        }
    }
}

/// Writes records, one per line.
///
/// # Errors
///
/// If the writer fails.
pub fn write<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    mut out: impl Write,
) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads the output of [`write()`].
///
/// # Errors
///
/// The line that is no record, and the reason.
pub fn read(text: &str) -> Result<Vec<Record>, String> {
    let record = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))
    };
    text.lines().enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report;

    #[test]
    fn what_is_written_is_read_again() {
        let case = Case {
            server: "etcd".to_owned(),
            fsync: false,
            work: Work::LockContended,
            clients: 8,
            busy: true,
        };
        let lap = Duration::from_micros(7);
        let facts = [
            Fact::Round(3, report(vec![lap], 9.0, Some(1.0), None)),
            Fact::Count(Count { requests: 2.0, bytes: 300.0 }),
            Fact::Failed("out of \"breath\"".to_owned()),
        ];
        let racer = || "go".to_owned();
        let records =
            facts.map(|fact| Record { case: case.clone(), racer: racer(), fact }).to_vec();
        let mut written = Vec::new();
        write(&records, &mut written).expect("there is room");

        assert_eq!(read(&String::from_utf8(written).expect("text")), Ok(records));
        assert!(read("{}").expect_err("no record").starts_with("line 1: "));
    }
}
