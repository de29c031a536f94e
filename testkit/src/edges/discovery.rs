//! The arguments of discovery.

use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::discovery::{
    Discovery, Instance, Provider, Registration, Service, Strategy, UriSpec,
};

use crate::recipe::edge::{Takes, accepted, check, first, ignore_panic, later, positive, text, to};

pub(crate) const DISCOVERY: Takes = Takes {
    texts: &[
        first("new", |client, path, service| {
            Box::pin(async move { registered(&client, &path, Instance::new(service, "a")).await })
        }),
        first("id", |client, path, id| {
            Box::pin(async move { registered(&client, &path, web().id(id)).await })
        }),
        first("publish", |client, path, id| {
            Box::pin(async move {
                let discovery = Discovery::new(&client, &path);
                let published = discovery.publish(web().id(id)).await?;
                let withdrawn = accepted(discovery.withdraw("web", &published)).await?;
                check(withdrawn, "withdrawing an instance", &path)
            })
        }),
        first("withdraw", |client, path, id| {
            Box::pin(async move {
                let withdrawn = Discovery::<f64>::new(&client, &path).withdraw("web", &id).await?;
                check(!withdrawn, "withdrawing an instance", &path)
            })
        }),
        first("open", |client, path, service| {
            Box::pin(
                async move { Discovery::<f64>::new(&client, path).open(&service).await.map(drop) },
            )
        }),
        first("instances", |client, path, service| {
            Box::pin(async move {
                Discovery::<f64>::new(&client, path).instances(&service).await.map(drop)
            })
        }),
        first("uri_spec", |client, path, spec| {
            Box::pin(async move {
                let instance = web().uri_spec(UriSpec::new(&spec)?);
                let _filled = instance.uri();
                registered(&client, &path, instance).await
            })
        }),
    ],
    data: &[
        first("payload", |client, path, data| {
            Box::pin(async move {
                let discovery = Discovery::new(&client, path);
                let instance = Instance::new("web", "a").payload(text(&data));
                accepted(discovery.register(instance).await?.unregister()).await
            })
        }),
        later("update", |client, path, data| {
            Box::pin(async move {
                let registration = Discovery::new(&client, path).register(web()).await?;
                let updated =
                    registration.update(Instance::new("web", text(&data)).payload(1.5)).await;
                accepted(registration.unregister()).await.and(updated)
            })
        }),
    ],
    numbers: &[
        first("port", |client, path, port| {
            Box::pin(async move { registered(&client, &path, web().port(to(port)?)).await })
        }),
        later("down_for", |client, path, failures| {
            Box::pin(async move {
                let (failures, (service, registration)) =
                    (positive(failures)?, one(&client, &path).await?);
                let provider = Provider::new(&service, Strategy::Random);
                chosen(&provider.down_for(Duration::from_secs(1), failures), &path)?;
                accepted(registration.unregister()).await
            })
        }),
    ],
    times: &[later("down_for", |client, path, window| {
        Box::pin(async move {
            let (service, registration) = one(&client, &path).await?;
            let provider = Provider::new(&service, Strategy::Sticky);
            chosen(&provider.down_for(window, positive(2)?), &path)?;
            accepted(registration.unregister()).await
        })
    })],
    values: &[
        first("payload", |client, path, payload| {
            Box::pin(async move {
                registered(&client, &path, Instance::new("web", "a").payload(payload)).await
            })
        }),
        later("update", |client, path, payload| {
            Box::pin(async move {
                let discovery = Discovery::new(&client, path);
                let registration = discovery.register(web()).await?;
                let updated = registration.update(web().payload(payload)).await;
                accepted(registration.unregister()).await.and(updated)
            })
        }),
    ],
    functions: &[
        later("filtered", |client, path, trap| {
            Box::pin(async move {
                let (service, registration) = one(&client, &path).await?;
                let provider = Provider::new(&service, Strategy::RoundRobin).filtered(move |_it| {
                    trap.spring();
                    true
                });
                ignore_panic(async { provider.choose() }).await;
                chosen(&provider, &path)?;
                accepted(registration.unregister()).await
            })
        }),
        later("weighted", |client, path, trap| {
            Box::pin(async move {
                let (service, registration) = one(&client, &path).await?;
                let weighted = Strategy::weighted(move |_it| {
                    trap.spring();
                    u32::MAX
                });
                let provider = Provider::new(&service, weighted);
                ignore_panic(async { provider.choose() }).await;
                chosen(&provider, &path)?;
                accepted(registration.unregister()).await
            })
        }),
    ],
};

fn web() -> Instance<f64> {
    Instance::new("web", "10.0.0.7").payload(1.5)
}

/// Registers an instance, reads it, and removes it.
async fn registered(client: &Client, path: &Path, instance: Instance<f64>) -> Result<()> {
    let (discovery, service) = (Discovery::new(client, path), instance.name.clone());
    let registration = discovery.register(instance).await?;
    let all = accepted(discovery.instances(&service)).await?;
    check(all.get(registration.id()).is_some(), "looking at an instance", path)?;
    check(all.unreadable().is_empty(), "reading an instance", path)?;
    accepted(registration.unregister()).await
}

/// A service with one instance.
async fn one(client: &Client, path: &Path) -> Result<(Service<f64>, Registration)> {
    let discovery = Discovery::new(client, path);
    let registration = discovery.register(web()).await?;
    Ok((discovery.open("web").await?, registration))
}

/// Chooses the instance, and reports that it fails.
fn chosen(provider: &Provider<f64>, path: &Path) -> Result<()> {
    let endpoint = provider.choose();
    check(endpoint.is_some(), "choosing an instance", path)?;
    for _ in 0..2 {
        if let Some(endpoint) = &endpoint {
            provider.failed(endpoint);
        }
    }
    Ok(())
}
