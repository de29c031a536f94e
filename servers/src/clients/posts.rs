//! The parts that a process takes in queues, crews and other recipes: [`Posts`].

use std::sync::Arc;
use std::time::Duration;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::Backend;

use crate::clients::crowd::Crowd;
use crate::clients::deed::Part;
use crate::clients::holder::Lapse;
use crate::clients::post::Post;
use crate::clients::{crew_post, family_post, queue_post};
use synod_testkit::history::Value;

/// All parts of a process, with one client.
pub(crate) struct Posts {
    p: usize,
    lapse: Option<Lapse>,
    crowd: Crowd,
}

impl Posts {
    pub(crate) fn new(p: usize, backend: Arc<dyn Backend>, lapse: Option<Lapse>) -> Self {
        Self { p, lapse, crowd: Crowd::new(backend) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.crowd.is_empty()
    }

    /// Starts one more part.
    pub(crate) async fn add(
        &mut self,
        part: Part,
        path: Path,
        (first, count): (Value, u64),
        ttl: Duration,
    ) -> Result<()> {
        let client = self.crowd.client(ttl).await?;
        let (p, lapse, random) = (self.p, self.lapse, Random::from_system());
        self.crowd.add(work(Post { p, lapse, part, path, first, count, client, random }));
        Ok(())
    }

    /// Stops all parts, and closes the client.
    pub(crate) async fn leave(&mut self) -> Result<()> {
        self.crowd.leave().await
    }
}

async fn work(post: Post) {
    let ended = match post.part {
        Part::Producer => queue_post::produce(&post).await,
        Part::Consumer => queue_post::consume(&post).await,
        Part::Taker => queue_post::take(&post).await,
        Part::Member | Part::Remover => crew_post::serve(&post).await,
        Part::Submitter => crew_post::submit(&post).await,
        Part::Adder => family_post::add(&post).await,
        Part::Resident => family_post::reside(&post).await,
        Part::Sharer => family_post::share(&post).await,
        Part::Party => family_post::meet(&post).await,
    };
    ended.expect("the path is short");
}
