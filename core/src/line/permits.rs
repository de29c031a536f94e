//! [`Permits`]: what is held of a semaphore.

use std::num::NonZeroU32;

use crate::error::{Error, ErrorKind, Result};
use crate::line::hold::Hold;
use crate::line::order::Capacity;
use crate::line::{Form, Line};
use crate::mutant::{self, Mutant};

/// Permits, held. See [`Hold`].
pub type Permit = Hold<Permits>;

/// How many permits are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits(pub(crate) NonZeroU32);

impl Hold<Permits> {
    /// How many permits these are.
    pub fn permits(&self) -> NonZeroU32 {
        self.kind.0
    }
}

impl Line {
    /// The same, for who comes for so many permits. An error if there can never be as many.
    pub(crate) fn wanting(&self, permits: NonZeroU32) -> Result<Self> {
        let capacity = self.form.capacity;
        if let Capacity::Permits(all) = capacity
            && permits.get() > all
            && !mutant::is(Mutant::ImpossibleAwaited)
        {
            return Err(Error::new(ErrorKind::Invalid, "asking for permits")
                .at(&self.dir)
                .because(format!("{permits} permits of {all}: that would be waiting for ever")));
        }
        let form = Form::permits(self.form.recipe, permits.get(), capacity);
        Ok(Self { form, ..self.clone() })
    }
}
