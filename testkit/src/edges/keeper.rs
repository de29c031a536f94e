//! The arguments of the recipes that keep ephemeral nodes, and of the recipes that divide items
//! among owners.

use synod_core::error::ErrorKind;
use synod_recipes::partition::Partition;
use synod_recipes::presence::{Group, PersistentNode};

use crate::recipe::edge::{Takes, accepted, check, first, later, to};

pub(crate) const PERSISTENT_NODE: Takes = Takes {
    data: &[
        first("keep", |client, path, data| {
            Box::pin(async move {
                let kept = PersistentNode::new(&client, &path).keep(data.clone()).await?;
                let node = accepted(client.get(&path)).await?;
                check(node.is_some_and(|it| it.data == data), "keeping data", &path)?;
                accepted(kept.close()).await
            })
        }),
        later("set", |client, path, data| {
            Box::pin(async move {
                let kept = PersistentNode::new(&client, &path).keep("before").await?;
                let set = kept.set(data.clone()).await;
                let data = if set.is_ok() { data } else { "before".into() };
                let node = accepted(client.get(&path)).await?;
                check(node.is_some_and(|it| it.data == data), "keeping data", &path)?;
                accepted(kept.close()).await.and(set)
            })
        }),
    ],
    times: &[later("ttl", |client, path, ttl| {
        Box::pin(async move {
            match PersistentNode::new(&client, path).ttl(ttl).keep("1").await {
                Ok(kept) => accepted(kept.close()).await,
                // Some stores do not support such nodes.
                Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
                Err(error) => Err(error),
            }
        })
    })],
    ..Takes::NONE
};

pub(crate) const GROUP: Takes = Takes {
    texts: &[first("join_as", |client, path, name| {
        Box::pin(async move {
            let group = Group::new(&client, &path);
            let member = group.join_as(&name, "1").await?;
            let all = accepted(group.members()).await?;
            check(all.iter().any(|it| it.name == name), "listing the members", &path)?;
            accepted(member.set("2")).await?;
            accepted(member.leave()).await
        })
    })],
    data: &[
        first("join", |client, path, data| {
            Box::pin(async move {
                let group = Group::new(&client, &path);
                let member = group.join(data.clone()).await?;
                let all = accepted(group.members()).await?;
                check(all.iter().any(|it| it.data == data), "listing the members", &path)?;
                accepted(member.leave()).await
            })
        }),
        first("join_as", |client, path, data| {
            Box::pin(async move {
                accepted(Group::new(&client, path).join_as("a", data).await?.leave()).await
            })
        }),
        later("set", |client, path, data| {
            Box::pin(async move {
                let member = Group::new(&client, path).join("before").await?;
                let set = member.set(data).await;
                accepted(member.leave()).await.and(set)
            })
        }),
    ],
    ..Takes::NONE
};

pub(crate) const PARTITION: Takes = Takes {
    texts: &[
        first("new", |client, path, item| {
            Box::pin(async move {
                let share = Partition::new(&client, &path, [item.clone()]).join("ann").await?;
                accepted(share.settled()).await?;
                check(share.is_held(&item), "holding the only item", &path)?;
                accepted(share.leave()).await
            })
        }),
        first("join", |client, path, name| {
            Box::pin(async move {
                let share = Partition::new(&client, &path, ["a"]).join(&name).await?;
                accepted(share.settled()).await?;
                check(share.is_held("a"), "holding the only item", &path)?;
                accepted(share.leave()).await
            })
        }),
    ],
    numbers: &[first("weight", |client, path, weight| {
        Box::pin(async move {
            let share =
                Partition::new(&client, path, ["a"]).weight(to(weight)?).join("ann").await?;
            accepted(share.settled()).await?;
            accepted(share.leave()).await
        })
    })],
    ..Takes::NONE
};
