//! [`Small`]: a workload in the smallest world.

use std::fmt;

use crate::cluster::Site;

use crate::setup::Sim;
use crate::workload::Workload;

/// A workload with two processes and one round, so small that a [`sweep`](crate::sweep) can reach
/// every site in it.
#[derive(Clone, Copy)]
pub struct Small(pub(super) &'static dyn Workload);

impl fmt::Debug for Small {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Small").field(&self.0.name()).finish()
    }
}

impl Workload for Small {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn about(&self) -> &'static str {
        self.0.about()
    }

    fn laws(&self) -> &'static [&'static str] {
        self.0.laws()
    }

    fn marks(&self) -> &'static [&'static str] {
        self.0.marks()
    }

    fn unreached(&self) -> Vec<Site> {
        self.0.unreached()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        self.0.prepare(sim).rounds(1).absent([3])
    }
}
