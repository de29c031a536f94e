//! `discover`: the services below a path, or the instances of one.

use serde_json::{Value, json};
use synod::Path;
use synod::discovery::{Discovery, Endpoint};

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn run(
    common: &Common,
    base: &Path,
    service: Option<&str>,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let discovery = Discovery::<Value>::new(&client, base);
    let done = match service {
        Some(service) => instances(common, &discovery, service).await,
        None => services(common, &discovery).await,
    };
    client.close().await?;
    done
}

async fn services(common: &Common, discovery: &Discovery<Value>) -> Result<(), Failure> {
    for service in Progress::waiting("reading", discovery.services()).await? {
        if common.json {
            output::object(&json!({ "service": service }))?;
        } else {
            // With control characters escaped for a terminal.
            output::line(&service.escape_debug().to_string())?;
        }
    }
    Ok(())
}

async fn instances(
    common: &Common,
    discovery: &Discovery<Value>,
    service: &str,
) -> Result<(), Failure> {
    let all = Progress::waiting("reading", discovery.instances(service)).await?;
    let width = all.iter().map(|it| shown(&it.instance.id).chars().count()).max().unwrap_or(0);
    for endpoint in all.iter() {
        if common.json {
            output::object(&object(endpoint))?;
        } else {
            output::line(text(endpoint, width).trim_end())?;
        }
    }
    for why in all.unreadable() {
        output::warning(&why.to_string());
    }
    Ok(())
}

fn text(endpoint: &Endpoint<Value>, width: usize) -> String {
    let instance = &endpoint.instance;
    let address = shown(instance.address.as_deref().unwrap_or("-"));
    let port = instance.port.or(instance.ssl_port).map(|port| format!(":{port}"));
    let payload = instance.payload.as_ref().map(|it| output::glimpse(it.to_string().as_bytes()));
    let disabled = if instance.enabled { "" } else { "disabled  " };
    format!(
        "{:<width$}  {address}{}  {disabled}{}",
        shown(&instance.id),
        port.unwrap_or_default(),
        payload.unwrap_or_default()
    )
}

fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

fn object(endpoint: &Endpoint<Value>) -> Value {
    let Endpoint { instance, path, stat, .. } = endpoint;
    json!({
        "service": instance.name,
        "id": instance.id,
        "address": instance.address,
        "port": instance.port,
        "ssl_port": instance.ssl_port,
        "uri": instance.uri(),
        "payload": instance.payload,
        "enabled": instance.enabled,
        "registered": instance.registered,
        "path": path.as_str(),
        "since": stat.created.get(),
        "session": stat.owner.map(|owner| owner.to_string()),
    })
}
