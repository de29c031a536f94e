//! The path of a new ticket: under a name that is free again, or a new one.

use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;

use crate::line::names::Names;
use crate::line::{Line, ticket_name};
use crate::mutant::mistake;

impl Line {
    /// The path of a new ticket, and whether an earlier ticket of this session had it.
    pub(super) fn free_path(&self, session: &Session) -> Result<(Path, bool)> {
        let names = self.form.renews.then(|| session.local::<Names>());
        let used = names.and_then(|names| names.take(&self.dir, &self.form.mark));
        // A name contains the time of the request, so it is reused only within the same second.
        let used = used.filter(|path| ticket_name::is_of_second(path.name(), Some(clock::date())));
        match used {
            Some(path) => Ok((path, true)),
            None => Ok((self.dir.join(&self.unique_name(session))?, false)),
        }
    }

    /// A unique name, in the format of Curator.
    fn unique_name(&self, session: &Session) -> String {
        let mark = &self.form.mark;
        mistake!(TicketWithoutId: return mark.clone());
        format!("_c_{}-{mark}", ticket_name::dated(&session.random().id(), Some(clock::date())))
    }
}
