//! [`Lease`]: an exclusive right that outlives its session and its process, until a date.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::value::{decode, encode};

use crate::cell::SingleValue;
use crate::mutant::mistake;
use crate::support::time::date;

/// The action that error messages name.
const DOING: &str = "taking a lease";

/// The last date that a term ends, in milliseconds since the beginning of 1970: that of the year
/// 9999. So a term of any length has the same number of digits in the store.
const LAST_DATE: u64 = 253_402_300_799_999;

#[cfg_attr(not(doctest), doc = include_str!("../docs/lease.md"))]
#[derive(Clone)]
pub struct Lease {
    value: SingleValue,
    settings: LeaseSettings,
}

/// A term of a [`Lease`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTerm {
    /// The name of the holder.
    pub holder: String,
    /// The date at which the holder took the lease, or last extended its term, by its wall clock.
    pub since: SystemTime,
    /// The end of the term.
    pub until: SystemTime,
    /// The number of the term: the fencing token. Each term has a higher number than all before it.
    pub number: u64,
}

/// The content of the node. Dates are in milliseconds since the beginning of 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeaseRecord {
    holder: String,
    since: u64,
    /// Zero if the lease was released.
    until: u64,
    number: u64,
}

impl Lease {
    /// The maximum length of the name of a holder, in bytes.
    pub const MAX_HOLDER: usize = 255;

    /// Creates the lease at `path`, with terms of this length. The holder gets a random name, so
    /// another `Lease` value or another process is a different holder. Sends nothing.
    pub fn new(client: &Client, path: impl Into<Path>, term: Duration) -> Self {
        let value = SingleValue::new(client, path.into(), "lease");
        let (holder, term) = (client.random().id(), millis(term));
        Self { value, settings: LeaseSettings { holder, term, margin: 0, is_aligned: false } }
    }

    /// Sets the name of the holder, of 1 to 255 bytes. Processes with the same name are the same
    /// holder: each of them can extend the term, for example a service after a restart.
    pub fn holder(mut self, name: impl Into<String>) -> Self {
        self.settings.holder = name.into();
        self
    }

    /// Ends each term at the next multiple of its length since the beginning of 1970, UTC. So terms
    /// of an hour always end on the hour, and a job that many machines start on the hour does not
    /// run into the previous term.
    pub fn aligned(mut self) -> Self {
        self.settings.is_aligned = true;
        self
    }

    /// Sets the time that another holder waits after the end of a term: the greatest difference
    /// between the clocks of two machines. Zero by default.
    pub fn clock_margin(mut self, margin: Duration) -> Self {
        self.settings.margin = millis(margin);
        self
    }

    /// Takes the lease for a term, or extends the term of this holder. Does not wait: the term of
    /// another holder is returned as `Err`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name of the holder is empty or longer than 255 bytes,
    /// [`ErrorKind::Corrupt`] if the stored data is not a lease, [`ErrorKind::Refused`] if the path
    /// is a directory, and the errors that are common to all calls: see [`Client`]. If the effect
    /// is [`Unknown`](synod_core::error::Effect::Unknown), call again: the same holder then extends
    /// the term that it may have.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have taken the lease. A request that was sent is completed in
    /// the background.
    pub async fn try_acquire(&self) -> Result<std::result::Result<LeaseTerm, LeaseTerm>> {
        self.check_holder()?;
        let (path, settings) = (self.value.path().clone(), self.settings.clone());
        let decided = self.value.change(move |bytes| {
            let record = read(&path, bytes)?;
            let next = settings.next(&path, record, now())?;
            next.map(|next| encode(&path, &next)).transpose()
        });
        let decided = decided.await?;
        let last = read(self.value.path(), decided.after.as_ref());
        let last = last.map_err(Error::with_unknown_effect)?;
        let term = last.map(LeaseRecord::term).ok_or_else(|| no_lease(self.value.path()))?;
        Ok(if decided.written { Ok(term) } else { Err(term) })
    }

    /// Ends the term of this holder. Returns false if this holder had no term.
    ///
    /// # Errors
    ///
    /// As [`Lease::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have ended the term. A request that was sent is completed in
    /// the background.
    pub async fn release(&self) -> Result<bool> {
        self.check_holder()?;
        let (path, holder) = (self.value.path().clone(), self.settings.holder.clone());
        let decided = self.value.change(move |bytes| {
            let record = read(&path, bytes)?;
            let own = record.filter(|record| record.holder == holder && record.until > now());
            own.map(|own| encode(&path, &LeaseRecord { until: 0, ..own })).transpose()
        });
        Ok(decided.await?.written)
    }

    /// Reads the current term, by the clock of this machine; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the stored data is not a lease, and the errors that are common to
    /// all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn current(&self) -> Result<Option<LeaseTerm>> {
        let node = self.value.read().await?;
        let record = read(self.value.path(), node.as_ref().map(|node| &node.data))?;
        Ok(record.filter(|record| record.until > now()).map(LeaseRecord::term))
    }

    fn check_holder(&self) -> Result<()> {
        let (length, max) = (self.settings.holder.len(), Self::MAX_HOLDER);
        if (1..=max).contains(&length) {
            return Ok(());
        }
        let text = format!("the name of a holder has 1 to {max} bytes, and this one {length}");
        Err(Error::new(ErrorKind::Invalid, DOING).at(self.value.path()).because(text))
    }
}

/// The settings of a holder, in milliseconds. Pure.
#[derive(Clone, Debug)]
struct LeaseSettings {
    holder: String,
    term: u64,
    margin: u64,
    is_aligned: bool,
}

impl LeaseSettings {
    /// Returns the term that the holder begins or extends now; `None` if another holder has the
    /// lease.
    fn next(
        &self,
        path: &Path,
        last: Option<LeaseRecord>,
        now: u64,
    ) -> Result<Option<LeaseRecord>> {
        let mut until = self.end(now);
        let number = match last {
            None => 1,
            Some(last) if last.holder == self.holder && last.until > now => {
                // Setting a clock back does not shorten the term.
                until = until.max(last.until);
                last.number
            }
            Some(last) => {
                let is_over = last.until == 0 || last.until.saturating_add(self.margin) <= now;
                mistake!(LeaseTakenEarly: let is_over = true);
                if !is_over && last.holder != self.holder {
                    return Ok(None);
                }
                last.number.checked_add(1).ok_or_else(|| no_lease(path))?
            }
        };
        Ok(Some(LeaseRecord { holder: self.holder.clone(), since: now, until, number }))
    }

    /// The end of a term that begins now.
    fn end(&self, now: u64) -> u64 {
        let end = match now.checked_div(self.term) {
            Some(passed) if self.is_aligned => passed.saturating_add(1).saturating_mul(self.term),
            _ => now.saturating_add(self.term),
        };
        end.min(LAST_DATE)
    }
}

impl LeaseRecord {
    fn term(self) -> LeaseTerm {
        let at = |millis: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        let Self { holder, since, until, number } = self;
        LeaseTerm { holder, since: at(since), until: at(until), number }
    }
}

/// The milliseconds of a time, or `u64::MAX`.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The date, in milliseconds since the beginning of 1970.
fn now() -> u64 {
    millis(date()).min(LAST_DATE)
}

fn read(path: &Path, bytes: Option<&Bytes>) -> Result<Option<LeaseRecord>> {
    let Some(bytes) = bytes else { return Ok(None) };
    let record: LeaseRecord = decode(path, bytes)?;
    if record.since > LAST_DATE || record.until > LAST_DATE {
        return Err(no_lease(path));
    }
    Ok(Some(record))
}

/// The error for data that is not a lease.
fn no_lease(path: &Path) -> Error {
    Error::new(ErrorKind::Corrupt, "reading a lease").at(path).because("the data is no lease")
}

/// Shows only the path.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("path", self.value.path()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn settings(holder: &str, term: u64) -> LeaseSettings {
        LeaseSettings { holder: holder.to_owned(), term, margin: 0, is_aligned: false }
    }

    fn next(settings: &LeaseSettings, last: &LeaseRecord, now: u64) -> Option<LeaseRecord> {
        settings.next(&Path::root(), Some(last.clone()), now).expect("it has a number")
    }

    #[test]
    fn a_term_is_extended_by_its_holder_and_followed_by_another_at_its_end() {
        let (ann, bob) = (settings("ann", 10), settings("bob", 10));
        let first = ann.next(&Path::root(), None, 100).expect("valid").expect("it is free");
        assert_eq!((first.since, first.until, first.number), (100, 110, 1));

        assert_eq!(next(&bob, &first, 109), None);
        let longer = next(&ann, &first, 109).expect("it is its own");
        assert_eq!((longer.since, longer.until, longer.number), (109, 119, 1));
        let set_back = next(&ann, &longer, 50).expect("it is its own");
        assert_eq!((set_back.since, set_back.until, set_back.number), (50, 119, 1));

        let second = next(&bob, &longer, 119).expect("it is over");
        assert_eq!((second.until, second.number, second.holder.as_str()), (129, 2, "bob"));
        let again = next(&ann, &longer, 119).expect("it is over");
        assert_eq!(again.number, 2, "a term that was interrupted is another one");

        let cautious = LeaseSettings { margin: 5, ..settings("bob", 10) };
        assert_eq!(next(&cautious, &longer, 123), None);
        assert!(next(&cautious, &longer, 124).is_some());
        let released = LeaseRecord { until: 0, ..longer };
        assert_eq!(next(&cautious, &released, 110).map(|term| term.number), Some(2));
    }

    #[test]
    fn a_term_ends_at_a_multiple_of_its_length_if_it_is_aligned() {
        let aligned = |term| LeaseSettings { is_aligned: true, ..settings("ann", term) };
        for (now, until) in [(0, HOUR), (1, HOUR), (HOUR - 1, HOUR), (HOUR, 2 * HOUR)] {
            assert_eq!(aligned(HOUR).end(now), until, "{now}");
        }
        assert_eq!((aligned(0).end(7), settings("ann", 0).end(7)), (7, 7));
        for settings in [aligned(u64::MAX), settings("ann", u64::MAX)] {
            assert_eq!(settings.end(7), LAST_DATE);
        }
    }

    #[test]
    fn a_term_after_the_last_number_and_other_data_are_errors() {
        let last = LeaseRecord { holder: "bob".into(), since: 1, until: 2, number: u64::MAX };
        let error = settings("ann", 1).next(&Path::root(), Some(last), 9).expect_err("the last");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        for data in
            ["", "7", "{}", r#"{"holder":"a","since":0,"until":253402300800000,"number":1}"#]
        {
            let bytes = Bytes::copy_from_slice(data.as_bytes());
            let error = read(&Path::root(), Some(&bytes)).expect_err("no lease");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{data}");
        }
    }
}
