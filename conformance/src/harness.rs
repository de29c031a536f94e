//! [`Harness`]: the adapter by which a backend is tested.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod_core::path::Path;
use synod_core::store::{Backend, Change, SessionId};

pub use synod_testkit::link::Link;

/// One store, and the methods that influence it from outside.
///
/// Two methods make a harness. The others are abilities: a harness that offers one in its
/// [`Profile`] implements its method too. Cases that need an ability that is not offered report
/// this and are counted as not run.
#[async_trait]
pub trait Harness: Debug + Send + Sync + 'static {
    /// The backend under test. Every session that it opens is on the same store.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Its pace, and its abilities.
    fn profile(&self) -> Profile;

    /// Expires a session at the server, as if its heartbeats had stopped for its TTL. Returns when
    /// the session is expired. For [`Ability::Expiry`].
    async fn expire(&self, session: SessionId) {
        unreachable!("{session} cannot be expired: the profile does not offer it");
    }

    /// Changes the link between a session and its server, from now on. For [`Ability::Links`].
    async fn link(&self, session: SessionId, link: Link) {
        unreachable!("{session} cannot have a link {link:?}: the profile does not offer it");
    }

    /// Gives the next session this link, which already applies to its opening. For
    /// [`Ability::Openings`].
    async fn link_next(&self, link: Link) {
        unreachable!("the next session cannot have a link {link:?}: the profile does not offer it");
    }

    /// The number of watches at the server, of all clients. For [`Ability::WatchCount`].
    async fn watches(&self) -> usize {
        unreachable!("watches cannot be counted: the profile does not offer it");
    }

    /// Brings an existing directory so near to the end of its sequences that fewer than a hundred
    /// tickets are left. For [`Ability::SequenceEnd`].
    async fn near_sequence_end(&self, dir: &Path) {
        unreachable!("{dir} cannot be brought to its end: the profile does not offer it");
    }

    /// Every change that was ever committed, in order, each with its revision. For
    /// [`Ability::Truth`].
    async fn truth(&self) -> Vec<Change> {
        unreachable!("the truth is not known: the profile does not offer it");
    }
}

/// An ability that only some harnesses offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Ability {
    /// Sessions can be ended at the server: [`Harness::expire`].
    Expiry,
    /// The store supports nodes with a TTL.
    TtlNodes,
    /// Links can be cut and slowed: [`Harness::link`].
    Links,
    /// The opening of a session can be slowed: [`Harness::link_next`].
    Openings,
    /// A case has time to make a directory of more than 65,536 children: offered by a larger
    /// [`Profile::crowd`].
    Crowd,
    /// The server's watches can be counted: [`Harness::watches`].
    WatchCount,
    /// The committed changes are known: [`Harness::truth`].
    Truth,
    /// A directory can be brought near the end of its sequences: [`Harness::near_sequence_end`].
    SequenceEnd,
    /// The harness itself starts no tasks for sessions: the tasks that remain in a case's runtime
    /// belong to the store, or to the client on top of it.
    TaskCount,
    /// Calls are answered immediately, in any number: a case uses all recipes in hundreds of ways
    /// at the same time.
    ManyUses,
}

impl Ability {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Expiry,
        Self::TtlNodes,
        Self::Links,
        Self::Openings,
        Self::Crowd,
        Self::WatchCount,
        Self::Truth,
        Self::SequenceEnd,
        Self::TaskCount,
        Self::ManyUses,
    ];

    /// Returns `true` if a case with this ability may wait until a session, or a node with a TTL,
    /// has ended.
    pub(crate) fn ends_sessions(self) -> bool {
        matches!(self, Self::Expiry | Self::TtlNodes | Self::Links | Self::Openings)
    }

    /// The reason to report if it is missing.
    pub fn lack(self) -> &'static str {
        match self {
            Self::Expiry => "sessions cannot be ended at the server",
            Self::TtlNodes => "no nodes with a time to live",
            Self::Links => "links cannot be cut or slowed",
            Self::Openings => "the opening of a session cannot be slowed",
            Self::Crowd => "the largest directory that is made has no more than 65,536 children",
            Self::WatchCount => "the server's watches cannot be counted",
            Self::Truth => "what was really committed is not known",
            Self::SequenceEnd => "a directory cannot be brought near its last sequence",
            Self::TaskCount => "the harness has tasks of its own",
            Self::ManyUses => "hundreds of uses of recipes at once take longer than a case waits",
        }
    }
}

/// The parameters of the tests of a store.
///
/// No verdict depends on the machine's speed: [`patience`](Profile::patience) only bounds waits for
/// events that must happen eventually, and laws about safety do not depend on time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The TTL that sessions request.
    pub ttl: Duration,
    /// The time limit of a case that waits for an event that must happen eventually. Scale it with
    /// the machine.
    pub patience: Duration,
    /// The number of children of the largest directory.
    pub crowd: usize,
    offers: Vec<Ability>,
    lacks: Vec<(Ability, Cow<'static, str>)>,
}

/// A limit that some stores and clients have had.
const PAGE: usize = 65_536;

impl Profile {
    /// Sessions of `ttl`, waits of up to `patience`, and no abilities yet.
    pub fn new(ttl: Duration, patience: Duration) -> Self {
        Self { ttl, patience, crowd: 70_000, offers: Vec::new(), lacks: Vec::new() }
    }

    /// Sets the number of children of the largest directory.
    pub fn crowd(mut self, children: usize) -> Self {
        self.crowd = children;
        self
    }

    /// Offers these abilities.
    pub fn offers(mut self, abilities: &[Ability]) -> Self {
        self.offers.extend(abilities);
        self
    }

    /// Sets the reason that an ability is not offered.
    pub fn lacks(mut self, ability: Ability, reason: impl Into<Cow<'static, str>>) -> Self {
        self.lacks.push((ability, reason.into()));
        self
    }

    /// The reason that a case with these needs cannot run; `None` if it can.
    pub fn obstacle(&self, needs: &[Ability]) -> Option<String> {
        let missing = needs.iter().find(|need| !self.can(**need))?;
        let said = self.lacks.iter().find(|(ability, _)| ability == missing);
        Some(said.map_or_else(|| missing.lack().to_owned(), |(_, reason)| reason.to_string()))
    }

    /// Returns `true` if this ability is offered.
    pub fn can(&self, ability: Ability) -> bool {
        let offered = match ability {
            Ability::Crowd => self.crowd > PAGE,
            _ => self.offers.contains(&ability),
        };
        offered && !self.lacks.iter().any(|(lacking, _)| *lacking == ability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_is_the_first_need_that_is_not_met_with_its_reason() {
        let second = Duration::from_secs(1);
        let profile = Profile::new(second, second)
            .offers(&[Ability::Expiry, Ability::TtlNodes])
            .lacks(Ability::TtlNodes, "the server was started without extended types");

        assert_eq!(profile.obstacle(&[]), None);
        assert_eq!(profile.obstacle(&[Ability::Expiry]), None);
        assert_eq!(
            profile.obstacle(&[Ability::Expiry, Ability::TtlNodes]).as_deref(),
            Some("the server was started without extended types")
        );
        assert_eq!(
            profile.obstacle(&[Ability::Links]).as_deref(),
            Some("links cannot be cut or slowed")
        );
        assert_eq!(profile.obstacle(&[Ability::Crowd]), None);
        let small = profile.crowd(65_536).obstacle(&[Ability::Crowd]);
        assert!(small.is_some_and(|why| why.contains("65,536")));
    }
}
