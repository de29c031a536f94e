//! The arguments of the elections.

use std::ops::ControlFlow;

use synod_recipes::election::{Election, LeaderLatch, LeaderSelector, Term};

use crate::recipe::edge::{Takes, accepted, check, first, ignore_panic, later};

pub(crate) const LEADER_LATCH: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            let candidacy = LeaderLatch::new(&client, path).label(label).join().await?;
            // A candidate whose ticket is rejected gets the error where it waits.
            let led = candidacy.leading().await.map(drop);
            accepted(candidacy.close()).await.and(led)
        })
    })],
    ..Takes::NONE
};

pub(crate) const LEADER_SELECTOR: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            let selector = LeaderSelector::new(&client, &path).label(label);
            let term = selector.lead(|_lead| async { 1 }).await?;
            check(term == Term::Done(1), "leading with a label", &path)
        })
    })],
    functions: &[
        first("lead", |client, path, trap| {
            Box::pin(async move {
                let selector = LeaderSelector::new(&client, &path);
                ignore_panic(selector.lead(|_lead| async { trap.spring() })).await;
                let term = selector.lead(|_lead| async { 1 }).await?;
                check(term == Term::Done(1), "leading after a panic", &path)
            })
        }),
        first("keep_leading", |client, path, trap| {
            Box::pin(async move {
                let selector = LeaderSelector::new(&client, path);
                let leads = || {
                    selector.keep_leading(|_lead| async {
                        trap.spring();
                        ControlFlow::Break(())
                    })
                };
                ignore_panic(leads()).await;
                leads().await
            })
        }),
    ],
    ..Takes::NONE
};

pub(crate) const ELECTION: Takes = Takes {
    data: &[
        first("campaign", |client, path, value| {
            Box::pin(async move {
                let election = Election::new(&client, &path);
                let leader = election.campaign(value.clone()).await?;
                let shown = accepted(election.leader()).await?;
                check(shown.is_some_and(|it| it.label == value), "showing a value", &path)?;
                accepted(leader.resign()).await
            })
        }),
        first("try_campaign", |client, path, value| {
            Box::pin(async move {
                match Election::new(&client, path).try_campaign(value).await? {
                    Some(leader) => accepted(leader.resign()).await,
                    None => Ok(()),
                }
            })
        }),
        later("proclaim", |client, path, value| {
            Box::pin(async move {
                let leader = Election::new(&client, path).campaign("before").await?;
                let proclaimed = leader.proclaim(value).await;
                accepted(leader.resign()).await.and(proclaimed)
            })
        }),
    ],
    ..Takes::NONE
};
