//! `request-release`: asks the holders of a lock to release it.

use serde_json::json;
use synod::lock::{inspect, request_release};
use synod::{Client, Path};

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let requested = request(&client, path).await;
    client.close().await?;
    let requested = requested?;
    if requested.is_empty() {
        return Err(Failure::NotThere(format!("nobody holds {path}")));
    }
    for ticket in requested {
        if common.json {
            output::object(&json!({ "requested": ticket.as_str() }))?;
        } else {
            output::line(&format!("{ticket}"))?;
        }
    }
    Ok(())
}

/// The tickets whose release was requested: those of the holders, or the one at this path.
async fn request(client: &Client, path: &Path) -> Result<Vec<Path>, Failure> {
    let line = inspect(client, path).await?;
    // A contender of which the store does not tell whether it holds is asked, too.
    let holders = line.into_iter().filter(|one| one.holds != Some(false));
    let mut tickets: Vec<Path> = holders.map(|one| one.path).collect();
    if let (true, Some(lock)) = (tickets.is_empty(), path.parent()) {
        let line = inspect(client, lock).await?;
        tickets.extend(line.into_iter().map(|one| one.path).filter(|ticket| ticket == path));
    }
    let mut requested = Vec::new();
    for ticket in tickets {
        if request_release(client, &ticket).await? {
            requested.push(ticket);
        }
    }
    Ok(requested)
}
