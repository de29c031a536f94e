//! The names of tickets: what each claims. Other libraries use the same names.
//!
//! The end of a node's name, in front of the digits that some stores append, marks it as a ticket. So that other
//! libraries can use the same line, the marks are theirs:
//!
//! | mark | used by | claim |
//! |---|---|---|
//! | `lock-`, `latch-` | Curator's mutex and leader latch, and synod | exclusive |
//! | `__WRIT__`, `__READ__` | Curator's read-write lock, and synod | exclusive, shared |
//! | `__lock__`, `__rlock__` | kazoo's locks | exclusive, shared |
//! | `lease-` | Curator's semaphore, and synod | one permit |
//! | `x3-lease-`, `x3of5-lease-` | synod | three permits; of five, according to its owner |
//! | the session's id and nothing else | etcd's own locks and elections | exclusive |
//!
//! A node with any other name is no ticket, and is ignored.

use synod_core::store::Sequence;

/// What a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// Exclusive: to be the only holder.
    Alone,
    /// Shared: to hold together with others of the same claim.
    Shared,
    /// So many permits.
    Permits(u32),
}

/// How much a line grants at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// One contender, or all that share.
    One,
    /// So many permits.
    Permits(u32),
    /// As many permits as the name of a node in the same directory says.
    Posted,
}

const MARKS: &[(&str, Claim)] = &[
    ("lock-", Claim::Alone),
    ("latch-", Claim::Alone),
    ("__WRIT__", Claim::Alone),
    ("__READ__", Claim::Shared),
    ("__lock__", Claim::Alone),
    ("__rlock__", Claim::Shared),
];

impl Claim {
    /// The claim of a ticket whose name ends in this mark.
    pub(crate) fn of_mark(mark: &str) -> Self {
        claim(mark).unwrap_or(Self::Alone)
    }
}

/// A name without the digits that the store added: the sequence, as ten of them or more.
pub(super) fn without_digits(name: &str, sequence: Sequence) -> Option<&str> {
    let (mut stem, mut left, mut digits) = (name, sequence.get(), 0);
    while digits < 10 || left > 0 {
        let digit = char::from_digit(u32::try_from(left % 10).ok()?, 10)?;
        stem = stem.strip_suffix(digit)?;
        (left, digits) = (left / 10, digits + 1);
    }
    Some(stem)
}

/// The claim of a ticket with this name, which is without the digits of the store.
pub(super) fn claim(stem: &str) -> Option<Claim> {
    let is_marked = |mark: &str| {
        let before = stem.strip_suffix(mark);
        // `block-` is no lock.
        before.is_some_and(|it| mark.starts_with('_') || it.is_empty() || it.ends_with('-'))
    };
    if let Some((_, claim)) = MARKS.iter().find(|(mark, _)| is_marked(mark)) {
        return Some(*claim);
    }
    stem.strip_suffix("lease-").map(|before| Claim::Permits(permits(before).0))
}

/// The mark of a ticket for so many permits.
pub(crate) fn permits_mark(permits: u32, capacity: Capacity) -> String {
    match capacity {
        Capacity::Permits(all) => format!("x{permits}of{all}-lease-"),
        _ if permits == 1 => "lease-".to_owned(),
        _ => format!("x{permits}-lease-"),
    }
}

/// Of `...-x3of5-`, three, and that there are five; of `...-x3-`, three; of anything else, one.
pub(super) fn permits(before: &str) -> (u32, Option<u32>) {
    let part = before.strip_suffix('-').and_then(|rest| rest.rsplit_once('-'));
    let Some(told) = part.and_then(|(_, part)| part.strip_prefix('x')) else { return (1, None) };
    let (wanted, all) = told.split_once("of").map_or((told, None), |(it, all)| (it, Some(all)));
    (wanted.parse().unwrap_or(1), all.and_then(|all| all.parse().ok()))
}
