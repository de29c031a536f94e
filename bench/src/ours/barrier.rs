//! Rounds at a double barrier.

use std::num::NonZeroU32;

use futures_util::future::try_join_all;
use synod::barrier::DoubleBarrier;

use super::Ours;
use crate::racer::{Failure, drive};
use crate::report::Report;
use crate::task::Task;

/// All enter and leave, each with a session of its own. A lap is a round of all of them.
pub(super) async fn rounds(ours: &mut Ours, task: &Task) -> Result<Report, Failure> {
    let path = ours.dir.join(&format!("both-{}", task.clients))?;
    let parties = u32::try_from(task.clients).ok().and_then(NonZeroU32::new).ok_or("nobody")?;
    let members = ours.sessions(task.clients).await?.iter();
    let members: Vec<_> =
        members.map(|client| DoubleBarrier::new(client, path.clone(), parties)).collect();
    let members = &members;
    let round = async move || {
        let all = members.iter().map(async |member| member.enter().await?.leave().await);
        try_join_all(all).await?;
        Ok(())
    };
    drive(&Task { clients: 1, ..*task }, vec![round]).await
}
