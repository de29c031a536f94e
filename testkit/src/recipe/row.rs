//! The facts about a recipe: [`Row`].

use std::fmt::Debug;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use synod_core::error::Result;
use synod_core::path::Path;

use crate::recipe::edge::Takes;
use crate::recipe::usage::{Call, Use};

/// Recipes of one kind, and their promises.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) rows: &'static [Row],
    /// The laws that are promises of these recipes, each an id and a sentence.
    pub(super) laws: &'static [(&'static str, &'static str)],
    /// The laws of these recipes that the common cases check: the name of a case in
    /// `conformance/src/every/`, and ids.
    pub(super) kept: &'static [(&'static str, &'static str)],
}

/// A recipe.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "each part must be given: that is what it is for")]
pub struct Row {
    /// The name of its type.
    pub name: &'static str,
    /// Its module in `synod-recipes`.
    pub module: &'static str,
    /// The module of its own cases in `synod-conformance`.
    pub cases: &'static str,
    /// The support module that it is built on, if there is one.
    pub stair: Option<&'static str>,
    /// Creates the recipe, for its debug output.
    pub make: Call<Box<dyn Debug + Send>>,
    /// The text in the debug output of a recipe at `/shown`.
    pub shown: &'static str,
    /// The nodes that it leaves in the store when it is no longer used.
    pub leaves: Leaves,
    /// The directories that it uses, relative to its path: the empty one is the path itself, and a
    /// name that begins with `-` is appended to the name of the path. Other nodes may be in them.
    pub dirs: &'static [&'static str],
    /// The arguments that it takes from its caller.
    pub takes: Takes,
    /// The ways to use it.
    pub uses: &'static [Use],
    /// Its workloads in the simulator.
    pub workloads: Part,
    /// The kinds of its holders in the scenarios with faults on real servers.
    pub faults: Part,
    /// The scenes with other programs.
    pub interop: Part,
    /// The kinds of work that the benchmarks measure.
    pub bench: Part,
    /// The page of `recipes/docs/` with its common promises, if there is one. Its own page has the
    /// name of its module.
    pub family: Option<&'static str>,
}

/// A part that most recipes have.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Part {
    /// The recipe has it, by these names.
    Has(&'static [&'static str]),
    /// The recipe has none, for this reason.
    None(&'static str),
}

/// The nodes that a recipe leaves in the store when it is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checks must know each of them")]
pub enum Leaves {
    /// No node.
    Nothing,
    /// Only the node at its path. Its data is a value: other bytes are an error.
    Value,
    /// Other persistent nodes, at its path or below.
    Nodes,
}

impl Row {
    /// Returns the directories of a recipe at `path`.
    ///
    /// # Panics
    ///
    /// If a name in the row is not a valid node name.
    pub fn dirs(&self, path: &Path) -> Vec<Path> {
        let below = |dir: &&str| match *dir {
            "" => path.clone(),
            dir if dir.starts_with('-') => {
                Path::new(&format!("{path}{dir}")).expect("the table has valid names")
            }
            dir => path.join(dir).expect("the table has valid names"),
        };
        self.dirs.iter().map(below).collect()
    }
}

impl Part {
    /// Returns the names, if there are any.
    pub fn names(&self) -> &'static [&'static str] {
        match self {
            Self::Has(names) => names,
            Self::None(_) => &[],
        }
    }
}

/// Creates a recipe by requests.
pub(super) fn opened<T: Debug + Send + 'static>(
    opening: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<Box<dyn Debug + Send>>> {
    async move { Ok(Box::new(opening.await?) as Box<dyn Debug + Send>) }.boxed()
}

/// Creates a recipe without a request.
pub(super) fn made(
    it: impl Debug + Send + 'static,
) -> BoxFuture<'static, Result<Box<dyn Debug + Send>>> {
    ready(Ok(Box::new(it) as Box<dyn Debug + Send>)).boxed()
}
