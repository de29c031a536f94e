//! `queue consume`: runs a command for each item of a queue.

use std::cell::RefCell;
use std::ffi::OsString;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use serde_json::json;
use synod::Client;
use synod::Held as _;
use synod::Path;
use synod::queue::{Delivery, Queue};
use tokio::sync::Notify;

use crate::args::Common;
use crate::args::queue::Consume;
use crate::command::hold::grace;
use crate::failure::Failure;
use crate::output;
use crate::process::signals::{Caught, Signals};
use crate::process::{End, Job};

pub(crate) async fn run(
    common: &Common,
    client: &Client,
    queue: &Queue<Bytes>,
    path: &Path,
    consume: Consume,
) -> Result<(), Failure> {
    let grace = grace(client, consume.grace).await?;
    let queue = match consume.max_deliveries {
        Some(times) => queue.clone().max_deliveries(times),
        None => queue.clone(),
    };
    let broken = Broken::default();
    let runs = Runs { common, client, path, command: consume.command, grace };
    let mut signals = Signals::listen()?;
    let stop = async {
        let _either = select(pin!(until_stopped(&mut signals)), pin!(broken.happened())).await;
    };
    let work = async |delivery: Arc<Delivery<Bytes>>| match runs.run(&delivery).await {
        Ok(ended) => ended,
        Err(failure) => {
            broken.by(failure);
            Err("it was not run".to_owned())
        }
    };
    let done = queue.consume(consume.at_once, stop, work).await;
    match broken.failure() {
        Some(failure) => Err(failure),
        None => Ok(done?),
    }
}

/// The failure that ends the command.
#[derive(Default)]
pub(super) struct Broken {
    failure: RefCell<Option<Failure>>,
    happened: Notify,
}

impl Broken {
    pub(super) fn by(&self, failure: Failure) {
        self.failure.borrow_mut().get_or_insert(failure);
        self.happened.notify_one();
    }

    /// Waits for a failure.
    pub(super) async fn happened(&self) {
        self.happened.notified().await;
    }

    /// The first failure, if there was one.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure.take()
    }
}

/// Waits for a signal after which nothing more begins.
pub(super) async fn until_stopped(signals: &mut Signals) {
    while !matches!(signals.next().await, Caught::Terminate | Caught::Interrupt | Caught::HangUp) {}
}

/// Runs the command for one item after the other.
struct Runs<'a> {
    common: &'a Common,
    client: &'a Client,
    path: &'a Path,
    command: Vec<OsString>,
    grace: Duration,
}

impl Runs<'_> {
    /// Runs the command for an item. The inner error is the reason why the item is put back.
    async fn run(&self, delivery: &Delivery<Bytes>) -> Result<Result<(), String>, Failure> {
        let job = Job {
            command: self.command.clone(),
            environment: self.environment(delivery),
            grace: self.grace,
            input: Some(delivery.item().to_vec()),
        };
        let ended = job.run_while(self.client, delivery, &mut Signals::listen()?).await?;
        let item = delivery.path().name();
        if self.common.json {
            let code = if let End::Exited(code) = ended { Some(code) } else { None };
            let (id, delivered) = (delivery.id(), delivery.delivered());
            output::object(
                &json!({ "name": item, "id": id, "delivered": delivered, "code": code }),
            )?;
        }
        let why = match ended {
            End::Exited(0) => return Ok(Ok(())),
            End::Exited(code) if delivery.is_last() => {
                format!("its command ended with {code}; it is moved to the dead letters")
            }
            End::Exited(code) => {
                format!("its command ended with {code}; it is put back for a time")
            }
            End::Lost => "its claim was lost before its command ended".to_owned(),
        };
        output::warning(&format!("{}: {why}", item.escape_debug()));
        Ok(Err(why))
    }

    fn environment(&self, delivery: &Delivery<Bytes>) -> Vec<(OsString, OsString)> {
        let pairs = [
            ("SYNOD_PATH", self.path.to_string()),
            ("SYNOD_ITEM", delivery.path().name().to_owned()),
            ("SYNOD_ID", delivery.id().unwrap_or_default()),
            ("SYNOD_DELIVERED", delivery.delivered().to_string()),
            ("SYNOD_TOKEN", delivery.token().to_string()),
        ];
        pairs.map(|(name, value)| (name.into(), value.into())).into()
    }
}
