//! [`Passing`]: an argument of a recipe, in a case that passes the limits of its range.

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_testkit::recipe::{Edge, Row, Takes, rows};

use crate::actor::text_of;
use crate::every::narrow::Narrow;
use crate::every::trial::all_hold;
use crate::world::World;

/// The clients of a case that passes arguments.
#[derive(Debug)]
pub(super) struct Passers {
    narrow: Narrow,
    /// The client that passes the arguments.
    pub(super) ann: Client,
    /// A client that uses the same recipe in the usual way afterwards.
    pub(super) bob: Client,
}

/// A function of a recipe that takes an argument, and a directory for its uses.
#[derive(Debug)]
pub(super) struct Passing<'a, T: 'static> {
    world: &'a World,
    passers: &'a Passers,
    name: String,
    edge: &'static Edge<T>,
    /// An argument that every store accepts.
    usual: T,
    dir: Path,
}

impl Passers {
    pub(super) async fn new(world: &World) -> Self {
        let narrow = Narrow::new(world.harness.backend());
        let ann = world.client_on(narrow.clone(), world.unhurried()).await;
        let bob = world.client_on(narrow.clone(), world.unhurried()).await;
        Self { narrow, ann, bob }
    }

    /// Returns `true` if a use of a recipe accepted its argument.
    ///
    /// # Panics
    ///
    /// If it was refused after a write, or failed.
    pub(super) fn is_taken(&self, result: Result<(), Error>, what: &str, unwritten: &Path) -> bool {
        match result {
            Ok(()) => true,
            Err(error) if is_refusal(&error) => {
                let written = self.narrow.has_written(unwritten);
                assert!(!written, "{what}: it was refused late: {:.300}", text_of(&error));
                false
            }
            Err(error) => panic!("{what}: {:.300}", text_of(&error)),
        }
    }
}

/// Returns `true` if the argument, or the path, is refused.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::TooLarge)
}

/// Uses, and functions with their kind of argument, that do not satisfy this yet, each with the
/// reason.
const OPEN: &[(&str, &str)] = &[];

/// Returns `true` if a use, or a function with a kind of argument, does not satisfy this yet.
pub(super) fn is_open(name: &str) -> bool {
    OPEN.iter().any(|(open, _)| *open == name)
}

impl<'a, T: Clone + 'static> Passing<'a, T> {
    /// All functions that take an argument of this kind.
    pub(super) fn all(
        world: &'a World,
        passers: &'a Passers,
        kind: &str,
        of: fn(&Takes) -> &'static [Edge<T>],
        usual: T,
    ) -> Vec<Self> {
        let edges = rows().flat_map(|row| of(&row.takes).iter().map(move |edge| (row, edge)));
        let passing = |(row, edge): (&Row, &'static Edge<T>)| Self {
            world,
            passers,
            name: format!("{}::{}", row.name, edge.of),
            edge,
            usual: usual.clone(),
            dir: world.at(&format!("{}-{}", row.module, edge.of)),
        };
        edges.map(passing).filter(|it| !is_open(&format!("{kind} {}", it.name))).collect()
    }

    /// Runs a check of each, all concurrently.
    pub(super) async fn each<F: Future<Output = ()>>(all: Vec<Self>, check: impl Fn(Self) -> F) {
        all_hold(all.into_iter().map(|it| (it.name.clone(), check(it)))).await;
    }

    /// Passes an argument, and then the usual one by another client at the same path. Returns
    /// `true` if the first was accepted.
    pub(super) async fn takes(&self, what: &str, argument: T) -> bool {
        let Self { world, passers, edge, .. } = self;
        let (said, path) = (format!("{} with {what}", self.name), self.at(what));
        let passing = (edge.pass)(passers.ann.clone(), path.clone(), argument);
        let passed = world.in_time(&said, passing).await;
        // Nodes that are written before do not come from the argument that was refused.
        let unwritten = if edge.first { path.clone() } else { path.join("none").expect("valid") };
        let is_taken = passers.is_taken(passed, &said, &unwritten);

        let usual = (edge.pass)(passers.bob.clone(), path, self.usual.clone());
        let usual = world.in_time(&format!("{said}, and then as usual"), usual).await;
        if let Err(error) = usual {
            panic!("{said}: then another one cannot use it: {}", text_of(&error));
        }
        is_taken
    }

    /// Tries arguments of all sizes from a size that must be accepted to a size that may be
    /// refused, and stops after the first refused size. Returns `true` if the last one was
    /// accepted.
    pub(super) async fn up_to_the_limit(
        &self,
        sizes: (usize, usize),
        make: impl Fn(usize) -> T,
    ) -> bool {
        let (mut least, mut most) = sizes;
        let taken = self.takes(&format!("{least} bytes"), make(least)).await;
        assert!(taken, "{}: {least} bytes are refused", self.name);
        if self.takes(&format!("{most} bytes"), make(most)).await {
            return true;
        }
        while least + 1 < most {
            let size = least.midpoint(most);
            let is_taken = self.takes(&format!("{size} bytes"), make(size)).await;
            *(if is_taken { &mut least } else { &mut most }) = size;
        }
        false
    }

    /// A separate path for each argument.
    fn at(&self, what: &str) -> Path {
        let name: String = what.chars().filter(char::is_ascii_alphanumeric).collect();
        self.dir.join(&format!("{name}-")).expect("it is valid")
    }
}
