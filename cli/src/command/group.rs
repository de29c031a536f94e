//! `members` and `join`: lists a group, and runs a command as a member of it.

use serde_json::{Value, json};
use synod::Path;
use synod::presence::{Group, Member};

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn members(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let group = Group::new(&client, path);
    let members = Progress::waiting("reading", group.members()).await;
    client.close().await?;
    let members = members?;
    let width = members.iter().map(|it| shown(it).chars().count()).max().unwrap_or(0);
    for member in &members {
        if common.json {
            output::object(&object(member))?;
        } else {
            let (name, data) = (shown(member), output::glimpse(&member.data));
            output::line(format!("{name:<width$}  {data}").trim_end())?;
        }
    }
    Ok(())
}

/// The name, with control characters escaped for a terminal.
fn shown(member: &Member) -> String {
    member.name.escape_debug().to_string()
}

fn object(member: &Member) -> Value {
    let (key, data) = output::data(&member.data);
    let session = member.session.to_string();
    let mut object =
        json!({ "name": member.name, "since": member.since.get(), "session": session });
    if let Value::Object(object) = &mut object {
        object.insert(key.into(), data);
    }
    object
}

#[cfg(unix)]
pub(crate) use joining::join;

#[cfg(unix)]
mod joining {
    use futures_util::future::Either;
    use serde_json::json;
    use synod::Client;
    use synod::ErrorKind;
    use synod::presence::{Group, Membership};
    use tokio::time::timeout;

    use crate::args::{Common, Join};
    use crate::command::hold::{FAREWELL, grace, whoami};
    use crate::command::{connect, refuse_memory};
    use crate::failure::Failure;
    use crate::output;
    use crate::process::Job;
    use crate::process::signals::Signals;
    use crate::progress::Progress;

    /// The exit code when there is a member of that name.
    const TAKEN: u8 = 75;

    /// Joins, runs the command, and leaves. The client is closed in any case.
    pub(crate) async fn join(common: &Common, join: Join) -> Result<(), Failure> {
        refuse_memory(common, "it has no other members")?;
        let client = connect(common).await?;
        let done = join_open(common, &client, join).await;
        let _told = timeout(FAREWELL, client.close()).await.is_ok_and(|closed| closed.is_ok());
        done
    }

    async fn join_open(common: &Common, client: &Client, join: Join) -> Result<(), Failure> {
        let grace = grace(client, join.grace).await?;
        let session = client.session().await?;
        let mut signals = Signals::listen()?;
        let group = Group::new(client, &join.path);
        let group = if join.take_over { group.take_over() } else { group };
        let data = join.data.unwrap_or_else(whoami);
        let joining = async {
            match &join.name {
                Some(name) => group.join_as(name, data).await,
                None => group.join(data).await,
            }
        };
        let joined = Progress::waiting("joining", joining);
        let joined = futures_util::future::select(Box::pin(joined), Box::pin(signals.fatal()));
        let member = match joined.await {
            Either::Left((Err(error), _)) if error.kind() == ErrorKind::Refused => {
                return Err(Failure::Exit(TAKEN, Some(error.to_string())));
            }
            Either::Left((joined, _)) => joined?,
            Either::Right((signal, _)) => return Err(Failure::Exit(signal.exit_code(), None)),
        };
        let ended = if join.command.is_empty() {
            linger(common, &member, &mut signals).await.map(|()| 0)
        } else {
            let environment = vec![("SYNOD_PATH".into(), member.path().as_str().into())];
            let job = Job { command: join.command, environment, grace, input: None };
            job.run(Some(&session), &mut signals).await
        };
        let _left = timeout(FAREWELL, member.leave()).await.is_ok_and(|left| left.is_ok());
        match ended? {
            0 => Ok(()),
            code => Err(Failure::Exit(code, None)),
        }
    }

    /// Without a command: prints the name, and is a member until a signal arrives.
    async fn linger(
        common: &Common,
        member: &Membership,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        if common.json {
            output::object(&json!({ "name": member.name(), "path": member.path().as_str() }))?;
        } else {
            output::line(&member.name())?;
        }
        signals.fatal().await;
        Ok(())
    }
}
