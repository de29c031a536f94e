//! The third part: a leader that is cut off, and the next one.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select, try_join3};
use synod::recipe::Election;
use tokio::time::sleep;

use crate::demo::program::Program;
use crate::failure::Failure;

const INTRODUCTION: &str = "\
3. A leader. One copy is in charge, and the others are ready to take over. This time nothing crashes: the
   network fails, and the leader must stop before the next one begins.";

/// All three are candidates. The first one is cut off while it leads.
pub(crate) async fn run(programs: [&Program; 3], ttl: Duration) -> Result<(), Failure> {
    let [ann, bob, cat] = programs;
    ann.teller.chapter(INTRODUCTION).await?;
    let directed = async {
        sleep(Duration::from_millis(1_200)).await;
        ann.lose_network("ann itself runs on").await?;
        sleep(ttl + Duration::from_millis(1_500)).await;
        Ok(())
    };
    let candidates = async {
        let (first, last) = (stand(ann, Duration::ZERO), stand(cat, Duration::from_millis(400)));
        try_join3(first, stand(bob, Duration::from_millis(200)), last).await.map(drop)
    };
    match select(pin!(candidates), pin!(directed)).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    }
}

/// Leads whenever it is elected, until the demo goes on.
async fn stand(program: &Program, after: Duration) -> Result<(), Failure> {
    sleep(after).await;
    let election = Election::new(&program.client, synod::path!("/demo/leader"));
    loop {
        program.tell("is a candidate")?;
        let lead = election.campaign(program.name).await?;
        program.tell("leads")?;
        lead.lost().await;
        program.tell(
            "had no answer for too long, and stops: its own clock says that it may lead no more",
        )?;
        // Only so that the next leader is printed first: the client opens a new session by itself.
        sleep(Duration::from_millis(700)).await;
        program.client.session().await?;
        program.tell("is connected again, with a new session")?;
    }
}
