//! The arguments of what is waited for without being held.

use synod_recipes::{CountDown, DoubleBarrier};

use crate::recipe::edge::{Takes, begins, check, first, lives, positive};

pub(crate) const COUNT_DOWN: Takes = Takes {
    texts: &[first("count_down", |client, path, party| {
        Box::pin(async move {
            let latch = CountDown::new(&client, path, positive(1)?);
            latch.count_down(&party).await?;
            lives(latch.wait()).await
        })
    })],
    numbers: &[first("new", |client, path, parties| {
        Box::pin(async move {
            let parties = positive(parties)?;
            let latch = CountDown::new(&client, &path, parties);
            latch.count_down("a").await?;
            let remaining = lives(latch.remaining()).await?;
            check(remaining == parties.get() - 1, "counting down", &path)?;
            let passed = begins(latch.wait()).await?.is_some();
            check(passed == (remaining == 0), "waiting for a count-down", &path)
        })
    })],
    ..Takes::NONE
};

pub(crate) const DOUBLE_BARRIER: Takes = Takes {
    numbers: &[first("new", |client, path, parties| {
        Box::pin(async move {
            let barrier = DoubleBarrier::new(&client, path, positive(parties)?);
            match begins(barrier.enter()).await? {
                Some(inside) => lives(inside.leave()).await,
                None => Ok(()),
            }
        })
    })],
    ..Takes::NONE
};
