//! [`Row`]: what is known of a recipe.

use std::fmt::Debug;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use synod_core::error::Result;
use synod_core::path::Path;

use crate::recipe::edge::Takes;
use crate::recipe::usage::{Call, Use};

/// Recipes of one kind: what each is, and what they promise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) rows: &'static [Row],
    /// The laws that are promises of these recipes, each an id and a sentence.
    pub(super) laws: &'static [(&'static str, &'static str)],
    /// The laws of these recipes that cases check which are the same for all recipes: the name of a case in
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
    /// The stair that it is made of, if it is made of one.
    pub stair: Option<&'static str>,
    /// Makes one, for its debug output.
    pub make: Call<Box<dyn Debug + Send>>,
    /// What the debug output of one that was made at `/shown` contains.
    pub shown: &'static str,
    /// What it leaves in the store when it is not used any more.
    pub leaves: Leaves,
    /// The directories that it uses, from its path: the empty one is the path itself, and what begins with `-` is added to
    /// its name. Other nodes may be in them.
    pub dirs: &'static [&'static str],
    /// The arguments that it takes from its caller.
    pub takes: Takes,
    /// The ways to use it.
    pub uses: &'static [Use],
    /// Its workloads in the simulator.
    pub workloads: Part,
    /// The rooms of its holders in the scenarios with faults on real servers.
    pub faults: Part,
    /// The scenes with other programs.
    pub interop: Part,
    /// The kinds of work that the benchmarks measure.
    pub bench: Part,
    /// The page of `recipes/docs/` with what it promises together with others, if there is one. Its own page is called
    /// as its module.
    pub family: Option<&'static str>,
}

/// A part that most recipes have.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Part {
    /// It has it, by these names.
    Has(&'static [&'static str]),
    /// It has none, for this reason.
    None(&'static str),
}

/// What is left in the store of a recipe that is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checks must know each of them")]
pub enum Leaves {
    /// No node.
    Nothing,
    /// The node at its path, and none below. Its data is a value: other bytes there are an error.
    Value,
    /// Other persistent nodes, at its path or below.
    Nodes,
}

impl Row {
    /// The directories of one that is made at `path`.
    ///
    /// # Panics
    ///
    /// If the row has a name that is none.
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
    /// The names, if there are any.
    pub fn names(&self) -> &'static [&'static str] {
        match self {
            Self::Has(names) => names,
            Self::None(_) => &[],
        }
    }
}

/// One that is made by requests.
pub(super) fn opened<T: Debug + Send + 'static>(
    opening: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<Box<dyn Debug + Send>>> {
    async move { Ok(Box::new(opening.await?) as Box<dyn Debug + Send>) }.boxed()
}

/// One that is made without a request.
pub(super) fn made(
    it: impl Debug + Send + 'static,
) -> BoxFuture<'static, Result<Box<dyn Debug + Send>>> {
    ready(Ok(Box::new(it) as Box<dyn Debug + Send>)).boxed()
}
