//! The arguments of the recipes that are waited for without being held.

use synod_recipes::barrier::{CountDown, DoubleBarrier};

use crate::recipe::edge::{Takes, accepted, check, first, positive, within_a_while};

pub(crate) const COUNT_DOWN: Takes = Takes {
    texts: &[first("count_down", |client, path, party| {
        Box::pin(async move {
            let latch = CountDown::new(&client, path, positive(1)?);
            latch.count_down(&party).await?;
            accepted(latch.wait()).await
        })
    })],
    numbers: &[first("new", |client, path, parties| {
        Box::pin(async move {
            let parties = positive(parties)?;
            let latch = CountDown::new(&client, &path, parties);
            latch.count_down("a").await?;
            let remaining = accepted(latch.remaining()).await?;
            check(remaining == parties.get() - 1, "counting down", &path)?;
            let passed = within_a_while(latch.wait()).await?.is_some();
            check(passed == (remaining == 0), "waiting for a count-down", &path)
        })
    })],
    ..Takes::NONE
};

pub(crate) const DOUBLE_BARRIER: Takes = Takes {
    numbers: &[first("new", |client, path, parties| {
        Box::pin(async move {
            let barrier = DoubleBarrier::new(&client, path, positive(parties)?);
            match within_a_while(barrier.enter()).await? {
                Some(inside) => accepted(inside.leave()).await,
                None => Ok(()),
            }
        })
    })],
    ..Takes::NONE
};
