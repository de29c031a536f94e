//! [`resign_to`]: hands the lead over to one candidate.

use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Txn};

use crate::line::Line;
use crate::line::order::Contender;
use crate::line::ticket_node::TicketNode;
use crate::mutant::mistake;

/// The position of a candidate relative to the leader.
enum Heir {
    /// The candidate is not in the queue after the leader.
    Unknown,
    /// The leader itself is no longer in the queue.
    Orphaned,
    /// These candidates are between the leader and the candidate, nearest to the leader first.
    Behind(Vec<Path>),
}

/// Removes the ticket of the leader, and all tickets between it and the ticket of the candidate.
/// Returns `false`, and does nothing, if the candidate is no longer in the queue. The owners of the
/// removed tickets create new ones.
pub(super) async fn resign_to(own: &TicketNode, line: &Line, candidate: &Path) -> Result<bool> {
    const MAX_DELETES: usize = 40;
    let mut in_doubt = false;
    loop {
        let mut entries = line.contenders().await?;
        // If a delayed request created the node of the leader's ticket again, it is another ticket.
        entries.retain(|one| one.path != *own.path() || own.is_of(one.token.revision()));
        let mut between = match heir(&entries, own.path(), candidate) {
            Heir::Unknown => return Ok(false),
            Heir::Orphaned if in_doubt => break,
            Heir::Orphaned => return Err(lost(own.path())),
            Heir::Behind(between) => between,
        };
        let strange = between.iter().find(|path| !path.name().starts_with("_c_"));
        if let Some(strange) = strange {
            return Err(Error::new(ErrorKind::Refused, "resigning in favour of a candidate")
                .at(strange)
                .because(
                    "a candidate of another library is in between; choose an earlier candidate",
                ));
        }
        // The last tickets first, so that only the chosen candidate can become the leader.
        let last = between.split_off(between.len().saturating_sub(MAX_DELETES));
        let mut txn = own.check(Txn::new());
        if between.is_empty() {
            txn = Txn::new().delete(own.path().clone(), own.expected());
        }
        mistake!(HeirByHope: let last = Vec::new());
        txn = last.into_iter().fold(txn, |txn, path| txn.delete(path, Expect::Any));
        match own.session().commit(txn).await {
            Ok(Outcome::Committed(_)) if between.is_empty() => break,
            // Removes the next tickets.
            Ok(Outcome::Committed(_)) => {}
            // A candidate left, or wrote its ticket.
            Ok(Outcome::Rejected(_)) => {
                let _exists = own.read_version().await?;
            }
            Err(error) if error.effect() == Effect::Unknown => {
                in_doubt = true;
            }
            Err(error) => return Err(error),
        }
    }
    own.spend();
    Ok(true)
}

/// The candidates between a leader and the chosen candidate. Pure.
fn heir(line: &[Contender], leader: &Path, candidate: &Path) -> Heir {
    let place = |path: &Path| line.iter().position(|one| one.path == *path);
    let Some(from) = place(leader) else { return Heir::Orphaned };
    match place(candidate) {
        Some(to) if to > from => {
            Heir::Behind(line[from + 1..to].iter().map(|one| one.path.clone()).collect())
        }
        _ => Heir::Unknown,
    }
}

fn lost(path: &Path) -> Error {
    Error::new(ErrorKind::SessionLost, "resigning").at(path).because("the lead was lost before")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::order::Tickets;
    use synod_core::store::{Node, Revision, Sequence, SessionId, Stat, Version, View};

    fn path(name: &str) -> Path {
        Path::new(&format!("/d/_c_{name}-latch-")).expect("valid")
    }

    fn line(names: &[&str]) -> Vec<Contender> {
        let node = |(place, name): (u64, &&str)| {
            let (at, owner) = (Revision::new(place), Some(SessionId::new(1)));
            let stat = Stat::new(at, at, Version::new(0), owner);
            Node::new(path(name)).with_sequence(Some(Sequence::new(place))).with_stat(stat)
        };
        let view = View::new(Revision::ZERO, (1..).zip(names).map(node).collect());
        let queue = Tickets::of(&view);
        let pairs = queue.entries().iter().zip(&view.nodes);
        pairs.filter_map(|(one, node)| Contender::of(one, node, None)).collect()
    }

    #[test]
    fn candidates_between_a_leader_and_its_heir_make_room() {
        let shown = |leader: &str, heir_of: &str| match heir(
            &line(&["a", "b", "c", "d"]),
            &path(leader),
            &path(heir_of),
        ) {
            Heir::Unknown => "unknown".to_owned(),
            Heir::Orphaned => "orphaned".to_owned(),
            Heir::Behind(between) => {
                format!("between {:?}", between.iter().map(Path::name).collect::<Vec<_>>())
            }
        };
        assert_eq!(shown("a", "b"), "between []");
        assert_eq!(shown("a", "d"), r#"between ["_c_b-latch-", "_c_c-latch-"]"#);
        assert_eq!(shown("a", "x"), "unknown");
        // Neither the leader itself nor an earlier contender can be chosen.
        assert_eq!(shown("a", "a"), "unknown");
        assert_eq!(shown("b", "a"), "unknown");
        assert_eq!(shown("x", "b"), "orphaned");
    }
}
