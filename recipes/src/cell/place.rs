//! [`Place`]: a mark, and what is known with it.

use bytes::Bytes;
use synod_core::error::{ErrorKind, Result};
use synod_core::session::Session;
use synod_core::store::View;

use crate::cell::gate::{Gate, Nodes};
use crate::cell::mark::{CellValue, Mark};
use crate::mutant::mistake;

/// What a writer knows of the cell: its mark there, the value, and the gate, if they are known.
pub(super) struct Place {
    pub(super) mark: Mark,
    pub(super) value: Option<CellValue>,
    pub(super) gate: Option<Gate>,
}

impl Place {
    /// With a mark below the cell, whose node exists. `None` if there is no node.
    pub(super) async fn make(session: &Session, nodes: &Nodes) -> Result<Option<Self>> {
        let Some((mark, view)) = Mark::make(session, &nodes.cell, nodes.query()).await? else {
            return Ok(None);
        };
        let mut place = Self { mark, value: None, gate: None };
        place.see(nodes, view);
        Ok(Some(place))
    }

    /// Creates the cell with this value, and a mark below it. `None` if there is something already.
    pub(super) async fn found(
        session: &Session,
        nodes: &Nodes,
        data: Bytes,
    ) -> Result<Option<Self>> {
        let founded = Mark::found(session, &nodes.cell, data).await?;
        Ok(founded.map(|(mark, value)| Self { mark, value, gate: None }))
    }

    /// Remembers what a view shows. Without one, what was known is out of date.
    pub(super) fn see(&mut self, nodes: &Nodes, view: Option<View>) {
        let (value, mut gate) = nodes.seen(view.unwrap_or_default());
        if let (Some(old), Some(new)) = (self.gate.take(), &mut gate) {
            new.remember(old);
        }
        (self.value, self.gate) = (value, gate);
    }

    /// The value that is remembered, or else the one that is read with the mark in place. `None` if the mark or the value is
    /// gone.
    pub(super) async fn refresh(&mut self, nodes: &Nodes) -> Result<Option<CellValue>> {
        mistake!(ReadsFirst: self.value = None);
        if !self.mark.is_known() && self.mark.read().await?.is_none() {
            return Ok(None);
        }
        let session = self.mark.session().clone();
        for made in [false, true] {
            if self.value.is_none() || nodes.lack(self.gate.as_ref()) {
                self.see(nodes, Some(session.read(nodes.query()).await?));
            }
            if self.value.is_none() || !nodes.lack(self.gate.as_ref()) {
                return Ok(self.value.clone());
            }
            if !made {
                nodes.make_gate(&session).await?;
            }
        }
        Err(nodes.missing_gate())
    }

    /// Whether its session is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.mark.session().is_lost()
    }
}

/// Forgets the value, which is out of date or may be.
pub(super) fn forget(place: &mut Option<Place>) {
    if let Some(place) = place {
        place.value = None;
    }
}

/// Forgets a place whose session was lost while a request was made. Any other error is that of the request.
pub(super) fn unless_lost<T>(place: &mut Option<Place>, asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Err(error) if error.kind() == ErrorKind::SessionLost => {
            *place = None;
            Ok(None)
        }
        asked => asked.map(Some),
    }
}
