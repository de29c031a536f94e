//! [`Occupant`]: whose node is at the path. Pure. [`Occupied`]: what is done about it.

use synod_core::store::{Node, SessionId, Stat};

/// What a keeper does about a node of another client when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupied {
    /// It is an error.
    Refuse,
    /// The node is removed.
    TakeOver,
}

/// What is at the path of a keeper, where it could not make its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    /// No node: it went meanwhile, or there is a container.
    Nothing,
    /// What an earlier request of the keeper made in this session.
    Own(Stat),
    /// What the keeper made in an earlier session, which is over or about to be.
    Remnant(Stat),
    /// The node of another client, or of another keeper.
    Foreign(Stat),
}

/// What a keeper knows of its own creates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mine<'a> {
    /// The session in which it makes its node now.
    pub(super) session: SessionId,
    /// Whether a create in this session may have made it.
    pub(super) in_doubt: bool,
    /// The sessions in which it made a node before, or may have.
    pub(super) before: &'a [SessionId],
}

impl Occupant {
    pub(super) fn of(node: Option<&Node>, mine: Mine<'_>) -> Self {
        let Some(stat) = node.and_then(|node| node.stat) else { return Self::Nothing };
        match stat.owner {
            Some(owner) if owner == mine.session && mine.in_doubt => Self::Own(stat),
            Some(owner) if mine.before.contains(&owner) => Self::Remnant(stat),
            _ => Self::Foreign(stat),
        }
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path::Path;
    use synod_core::store::{Revision, Version};

    use super::*;

    #[test]
    fn a_node_is_a_keepers_by_its_session_and_by_what_it_has_sent() {
        let [now, before, other] = [1, 2, 3].map(SessionId::new);
        let stat = |owner| Stat::new(Revision::new(7), Revision::new(8), Version::new(9), owner);
        let found = |owner, in_doubt| {
            let node = Node::new(Path::root()).with_stat(stat(owner));
            Occupant::of(Some(&node), Mine { session: now, in_doubt, before: &[before] })
        };
        assert_eq!(found(Some(now), true), Occupant::Own(stat(Some(now))));
        let foreign = |owner| Occupant::Foreign(stat(owner));
        assert_eq!(
            found(Some(now), false),
            foreign(Some(now)),
            "another keeper of the session made it"
        );
        assert_eq!(found(Some(before), true), Occupant::Remnant(stat(Some(before))));
        assert_eq!(found(Some(other), true), foreign(Some(other)));
        assert_eq!(found(None, true), foreign(None), "it is not ephemeral");
        let nothing = Mine { session: now, in_doubt: true, before: &[] };
        assert_eq!(Occupant::of(None, nothing), Occupant::Nothing);
    }
}
