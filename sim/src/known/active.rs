//! [`Known`]: a mistake that can be made.

use std::fmt;
use std::sync::Arc;

use crate::cluster::Flaw;
use synod_conformance::wrong::{Mistake, Wrong};
use synod_core::mutant::{self, Mutant};

use crate::bad_case::BadCase;
use crate::report::Report;
use crate::setup::{Sim, Way};
use crate::user_mistake::UserMistake;

/// A mistake that was made, or could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Known {
    /// A mistake of a store, made by a wrapper around a correct one.
    Store(Mistake),
    /// A mistake of the client, or of a recipe.
    Door(Mutant),
    /// A mistake of the servers of the simulated store.
    Server(Flaw),
    /// A mistake of the user of a store, or of the connection to it.
    User(UserMistake),
    /// No mistake, but the wrapper for mistakes of stores: no law may break.
    Transparent,
}

impl Known {
    /// The mistake of this name.
    ///
    /// # Errors
    ///
    /// [`BadCase::NoMutant`] if there is no mistake of this name.
    pub fn by_name(name: &str) -> Result<Self, BadCase> {
        let door = Mutant::ALL.iter().find(|it| it.to_string() == name).copied().map(Self::Door);
        let store = || Mistake::ALL.iter().find(|it| it.to_string() == name).copied();
        let server = || Flaw::ALL.iter().find(|it| it.to_string() == name).copied();
        let user = || UserMistake::ALL.iter().find(|it| it.to_string() == name).copied();
        let none = || (name == "Transparent").then_some(Self::Transparent);
        door.or_else(|| store().map(Self::Store))
            .or_else(|| server().map(Self::Server))
            .or_else(|| user().map(Self::User))
            .or_else(none)
            .ok_or_else(|| BadCase::NoMutant(name.to_owned()))
    }

    /// All mistakes, and the transparent wrapper.
    pub fn all() -> impl Iterator<Item = Self> {
        let door = Mutant::ALL.iter().copied().map(Self::Door);
        let store = Mistake::ALL.iter().copied().map(Self::Store);
        let server = Flaw::ALL.iter().copied().map(Self::Server);
        let user = UserMistake::ALL.iter().copied().map(Self::User);
        std::iter::once(Self::Transparent).chain(door).chain(store).chain(server).chain(user)
    }

    /// A description of the mistake.
    pub fn what(self) -> &'static str {
        match self {
            Self::Store(mistake) => mistake.what(),
            Self::Door(mutant) => mutant.what(),
            Self::Server(flaw) => flaw.what(),
            Self::User(user_mistake) => user_mistake.what(),
            Self::Transparent => "makes no mistake",
        }
    }

    /// Runs a history with this mistake.
    pub fn run(self, sim: Sim) -> Report {
        match self {
            Self::Door(mutant) => mutant::with(mutant, || sim.run()),
            Self::Store(mistake) => sim.around(move |store| way(Wrong::new(store, mistake))).run(),
            Self::Server(flaw) => sim.flawed(flaw).run(),
            Self::User(user_mistake) => sim.with_user_mistake(user_mistake).run(),
            Self::Transparent => sim.around(|store| way(Wrong::transparent(store))).run(),
        }
    }
}

/// The same wrong store for all processes, each over its own connection.
fn way(wrong: Wrong) -> Way {
    Arc::new(move |own| Arc::new(wrong.by_way_of(own)))
}

/// Runs a simulation with this mistake.
pub(crate) fn run(sim: Sim, mutant: Option<&str>) -> Result<Report, BadCase> {
    Ok(match mutant {
        None => sim.run(),
        Some(name) => Known::by_name(name)?.run(sim),
    })
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(mistake) => f.pad(&mistake.to_string()),
            Self::Door(mutant) => f.pad(&mutant.to_string()),
            Self::Server(flaw) => f.pad(&flaw.to_string()),
            Self::User(user_mistake) => f.pad(&user_mistake.to_string()),
            Self::Transparent => f.pad("Transparent"),
        }
    }
}
