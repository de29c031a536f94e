//! [`Case`]: one sentence that a store, or the client on top of it, keeps or breaks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use synod_core::mutant::Mutant;
use synod_testkit::recipe;

use crate::harness::Ability;
use crate::world::World;
use crate::wrong::Mistake;
use synod_testkit::law::{self, Law};

/// A sentence about stores, or about the client on top of one, and the code that checks it.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    laws: &'static str,
    needs: &'static [Ability],
    catches: &'static [Mistake],
    breaks: &'static [Mutant],
    pub(crate) act: Act,
}

pub(crate) type Act = fn(World) -> Pin<Box<dyn Future<Output = ()>>>;

impl Case {
    pub(crate) const fn new(
        name: &'static str,
        laws: &'static str,
        needs: &'static [Ability],
        catches: &'static [Mistake],
        act: Act,
    ) -> Self {
        Self { name, laws, needs, catches, breaks: &[], act }
    }

    /// Sets the mistakes of core under which the case fails.
    pub(crate) const fn breaking(self, breaks: &'static [Mutant]) -> Self {
        Self { breaks, ..self }
    }

    /// Its module and its sentence, such as `store::txn::a_look_reflects_its_own_commit`.
    pub fn name(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(_, rest)| rest)
    }

    /// Its sentence alone.
    fn sentence(&self) -> &'static str {
        self.name.rsplit_once("::").map_or(self.name, |(_, sentence)| sentence)
    }

    /// The laws that it checks.
    pub fn laws(&self) -> impl Iterator<Item = Law> + use<> {
        self.ids().filter_map(law::by_id)
    }

    /// The ids of these laws: the ones in the list of cases and, for a case of all recipes, the
    /// ones in their table.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> + use<> {
        let sentence = self.sentence();
        let of_recipes = recipe::kept().filter(move |(case, _)| *case == sentence);
        let ids = [self.laws].into_iter().chain(of_recipes.map(|(_, ids)| ids));
        ids.flat_map(str::split_whitespace)
    }

    /// The abilities that a harness must have for it.
    pub fn needs(&self) -> &'static [Ability] {
        self.needs
    }

    /// The known mistakes of stores that it must notice.
    pub fn catches(&self) -> &'static [Mistake] {
        self.catches
    }

    /// The known mistakes of core that it must notice.
    pub fn breaks(&self) -> &'static [Mutant] {
        self.breaks
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name())
            .field("laws", &self.laws)
            .finish_non_exhaustive()
    }
}

/// Lists the cases of a module, with the laws that each checks, unless the table of the recipes has
/// them. A case that is not listed is dead code, and does not build.
macro_rules! cases {
    ($(
        $laws:literal
        $(needs [$($need:ident)*])?
        $(catches [$($mistake:ident)*])?
        $(breaks [$($mutant:ident)*])?
        => $case:ident,
    )*) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[$($crate::case::Case::new(
            concat!(module_path!(), "::", stringify!($case)),
            $laws,
            &[$($($crate::harness::Ability::$need,)*)?],
            &[$($($crate::wrong::Mistake::$mistake,)*)?],
            |world| Box::pin($case(world)),
        )
        .breaking(&[$($(synod_core::mutant::Mutant::$mutant,)*)?]),)*];
    };
}
