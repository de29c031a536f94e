//! [`resign_to`]: gives the lead to one candidate.

use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::{Expect, Outcome, Txn};

use crate::line::Line;
use crate::line::contender::Contender;
use crate::line::ticket_node::TicketNode;

/// How a candidate stands, as far as his heirs are concerned.
enum Heir {
    /// He is not in the line.
    Unknown,
    /// Whoever leads is not in the line himself any more.
    Orphaned,
    /// These stand between, nearest to the leader first.
    Behind(Vec<Path>),
}

/// Removes a ticket that was called, with all between it and that of the heir. `false` if he does not stand any
/// more: then nothing was done. Those who made room draw again.
pub(super) async fn resign_to(own: &TicketNode, line: &Line, candidate: &Path) -> Result<bool> {
    const AT_ONCE: usize = 40;
    let mut in_doubt = false;
    loop {
        let mut entries = line.contenders().await?;
        // What a late sending of its draw made in its place is not it.
        entries.retain(|one| one.path != *own.path() || own.is_of(one.token.revision()));
        let mut between = match heir(&entries, own.path(), candidate) {
            Heir::Unknown => return Ok(false),
            Heir::Orphaned if in_doubt => break,
            Heir::Orphaned => return Err(lost(own.path())),
            Heir::Behind(between) => between,
        };
        let strange = between.iter().find(|path| !path.name().starts_with("_c_"));
        if let Some(strange) = strange.filter(|_| !mutant::is(Mutant::StrangerSentBack)) {
            return Err(Error::new(ErrorKind::Refused, "resigning in favour of a candidate")
                .at(strange)
                .because("somebody of another kind stands between"));
        }
        // The last ones first, so that nobody but the heir comes to lead.
        let last = between.split_off(between.len().saturating_sub(AT_ONCE));
        let mut txn = own.check(Txn::new());
        if between.is_empty() {
            txn = Txn::new().delete(own.path().clone(), own.expected());
        }
        if !mutant::is(Mutant::HeirByHope) {
            txn = last.into_iter().fold(txn, |txn, path| txn.delete(path, Expect::Any));
        }
        match own.session().commit(txn).await {
            Ok(Outcome::Committed(_)) if between.is_empty() => break,
            // There are more.
            Ok(Outcome::Committed(_)) => {}
            // Somebody left meanwhile, or wrote.
            Ok(Outcome::Rejected(_)) => {
                let _there = own.look().await?;
            }
            Err(error)
                if error.effect() == Effect::Unknown && !mutant::is(Mutant::DoubtIsFailure) =>
            {
                in_doubt = true;
            }
            Err(error) => return Err(error),
        }
    }
    own.spend();
    Ok(true)
}

/// Who stands between a leader and the candidate that he names. Pure.
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
    use crate::line::order::Queue;
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
        let queue = Queue::of(&view);
        let pairs = queue.entries().iter().zip(&view.nodes);
        pairs.filter_map(|(one, node)| Contender::of(one, node, None)).collect()
    }

    #[test]
    fn those_between_a_leader_and_his_heir_make_room() {
        let told = |leader: &str, heir_of: &str| match heir(
            &line(&["a", "b", "c", "d"]),
            &path(leader),
            &path(heir_of),
        ) {
            Heir::Unknown => "unknown".to_owned(),
            Heir::Orphaned => "orphaned".to_owned(),
            Heir::Behind(between) => {
                format!("behind {:?}", between.iter().map(Path::name).collect::<Vec<_>>())
            }
        };
        assert_eq!(told("a", "b"), "behind []");
        assert_eq!(told("a", "d"), r#"behind ["_c_b-latch-", "_c_c-latch-"]"#);
        assert_eq!(told("a", "x"), "unknown");
        // Nobody is his own heir, nor that of who stands behind.
        assert_eq!(told("a", "a"), "unknown");
        assert_eq!(told("b", "a"), "unknown");
        assert_eq!(told("x", "b"), "orphaned");
    }
}
