//! The check of a request for permits whose owner requires that earlier requests name the same
//! limit.
//!
//! Only earlier tickets are compared, so of two clients that disagree the later one fails. No later
//! ticket has an effect on a grant. A request reads before it creates its ticket, and checks again
//! in each later view, whose names contain the limits. Before it fails, a current read confirms
//! that the other ticket still exists: a container may have a name like a ticket, and a view may
//! lag.

use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{SessionId, View};

use crate::line::Line;
use crate::line::order::{Tickets, containers, with_stats};
use crate::line::ticket::{Ticket, WaitError};

/// A limit that differs from the limit of a request.
struct OtherLimit {
    own: u32,
    other: u32,
    /// The ticket that names the other limit, and its session. `None` for the limit that was set.
    ticket: Option<(Path, Option<SessionId>)>,
}

impl Line {
    /// [`Line::enter`] of a request that fails if an earlier one names another limit. It reads before
    /// it creates a ticket, because a ticket of a request that fails would make others fail.
    pub(super) async fn enter_with_same_limit(&self) -> Result<Ticket, Error> {
        let view = self.client().read(with_stats(self.dir())).await?;
        self.agreement(&view, None)?;
        let mut ticket = self.enqueue().await?;
        match ticket.granted().await {
            Ok(()) => Ok(ticket),
            Err(error) => {
                ticket.leave().await;
                Err(error)
            }
        }
    }

    /// Returns an error if a ticket in the view names another limit. For a request without a
    /// ticket, which would be later than all of them.
    pub(super) async fn check_limits(&self, view: &View) -> Result<(), Error> {
        if self.other_limit(&Tickets::of(view), None).is_none() {
            return Ok(());
        }
        let view = self.client().read(with_stats(self.dir())).await?;
        self.agreement(&view, None)
    }

    /// Returns an error if an earlier ticket than `me` names another limit, according to a view
    /// with stats.
    fn agreement(&self, view: &View, me: Option<&Path>) -> Result<(), Error> {
        // Only a view with stats shows which names are containers.
        let queue = Tickets::of(view).without(&containers(view).collect::<Vec<_>>());
        self.other_limit(&queue, me).map_or(Ok(()), |other| Err(self.disagreement(&other)))
    }

    fn other_limit(&self, queue: &Tickets, me: Option<&Path>) -> Option<OtherLimit> {
        if !self.same_limit {
            return None;
        }
        let own = queue.permits(self.form().capacity)?;
        let place = me
            .map_or(Some(usize::MAX), |me| queue.entries().iter().position(|one| one.path == *me));
        let mut earlier = queue.entries().iter().take(place.unwrap_or(0));
        let ticket = earlier.find_map(|one| {
            let other = one.all.filter(|all| *all != own)?;
            Some(OtherLimit { own, other, ticket: Some((one.path.clone(), one.owner)) })
        });
        let set = || {
            let other = queue.posted.filter(|posted| *posted != own)?;
            Some(OtherLimit { own, other, ticket: None })
        };
        ticket.or_else(set)
    }

    fn disagreement(&self, limits: &OtherLimit) -> Error {
        let OtherLimit { own, other, ticket } = limits;
        let why = match ticket {
            Some((path, owner)) => {
                let session = owner.map(|id| format!(" of session {id}")).unwrap_or_default();
                let name = path.name();
                format!(
                    "the limit of this request is {own}, but that of the earlier ticket \
                     {name}{session} is {other}"
                )
            }
            None => format!(
                "the limit of this request is {own}, but the limit that was set there is {other}"
            ),
        };
        Error::new(ErrorKind::Refused, "acquiring permits").at(self.dir()).because(why)
    }
}

impl Ticket {
    /// Fails if an earlier ticket names another limit.
    pub(super) async fn check_limits(&mut self, view: &View) -> Result<(), WaitError> {
        if self.line.other_limit(&Tickets::of(view), Some(self.node.path())).is_none() {
            return Ok(());
        }
        let (session, all) = (self.node.session().clone(), with_stats(self.line.dir()));
        let view = self.insist(|| session.read(all.clone())).await?;
        self.line.agreement(&view, Some(self.node.path())).map_err(WaitError::Failed)
    }
}
