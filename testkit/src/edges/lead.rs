//! The arguments of the elections.

use std::ops::ControlFlow;

use synod_recipes::{Election, LeaderLatch, LeaderSelector, Term};

use crate::recipe::edge::{Takes, check, first, later, lives, sprung};

pub(crate) const LEADER_LATCH: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            let candidacy = LeaderLatch::new(&client, path).label(label).join().await?;
            // A candidate whose ticket is refused gets the error where it waits.
            let led = candidacy.leading().await.map(drop);
            lives(candidacy.close()).await.and(led)
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
                sprung(selector.lead(|_lead| async { trap.spring() })).await;
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
                sprung(leads()).await;
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
                let shown = lives(election.leader()).await?;
                check(shown.is_some_and(|it| it.label == value), "showing a value", &path)?;
                lives(leader.resign()).await
            })
        }),
        first("try_campaign", |client, path, value| {
            Box::pin(async move {
                match Election::new(&client, path).try_campaign(value).await? {
                    Some(leader) => lives(leader.resign()).await,
                    None => Ok(()),
                }
            })
        }),
        later("proclaim", |client, path, value| {
            Box::pin(async move {
                let leader = Election::new(&client, path).campaign("before").await?;
                let proclaimed = leader.proclaim(value).await;
                lives(leader.resign()).await.and(proclaimed)
            })
        }),
    ],
    ..Takes::NONE
};
