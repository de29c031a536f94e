//! Registers that are read, written and swapped.

use std::time::Duration;

use crate::cluster::Site;
use synod_core::client::Client;
use synod_core::error::{Effect, Error};
use synod_core::path::Path;
use synod_core::store::{Expect, Node, OpResult, Outcome, Version};
use synod_testkit::check::{order, registers};
use synod_testkit::history::{Action, Answer, Recorder, Value};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::{WATCHED, Workload};

/// Three clients read, create and swap the values of two registers.
pub(super) struct Registers;

const REGISTERS: u64 = 2;
const ROUNDS: u64 = 3;

impl Workload for Registers {
    fn name(&self) -> &'static str {
        "registers"
    }

    fn about(&self) -> &'static str {
        "three clients read two registers and swap what they hold, by version"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-OUT-1", "L-OUT-2", "L-OUT-3", "L-KV-1", "L-KV-2", "L-KV-5"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, "a swap lost its race", "the effect of a swap was unknown"]
    }

    fn unreached(&self) -> Vec<Site> {
        // No recipe creates tickets, whose names contain a date.
        [WATCHED, &[Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]].concat()
    }

    fn has_small_world(&self) -> bool {
        false
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let recorder = Recorder::default();
        for (register, value) in [(0, 1), (1, 2)] {
            let first = recorder.call(0, register, Action::Write(Some(value)));
            first.returned(Answer::Done { revision: Some(value) });
        }
        let written = recorder.clone();
        sim.without_strangers()
            // The registers exist from the beginning: versions do not distinguish two nodes of one
            // path.
            .given(path(0), "1")
            .given(path(1), "2")
            .processes(3, move |me| work(me, recorder.clone()))
            .check("L-KV-1", move |_truth: &Truth| linearizable(&written))
    }
}

async fn work(me: Process, recorder: Recorder) {
    let Ok(client) = me.client().await else { return };
    let rounds = me.rounds(ROUNDS);
    let client = Worker { me, client, recorder };
    for round in 0..rounds {
        client.round(round).await;
    }
}

struct Worker {
    me: Process,
    client: Client,
    recorder: Recorder,
}

impl Worker {
    async fn round(&self, round: u64) {
        let register = usize::try_from(self.me.pick(REGISTERS)).unwrap_or(0);
        let path = path(register);
        let value = 16 + round * 16 + self.me.number() + u64::from(self.me.life()) * 1_000;
        let found = self.me.perhaps(self.read(register, &path)).await.flatten();
        self.me.rest(Duration::from_millis(20)).await;
        if let Some((from, version)) = found {
            let action = Action::Swap { from: Some(from), to: Some(value) };
            let set = self.client.set(&path, value.to_string(), Expect::Version(version));
            self.write(register, action, set).await;
        }
        self.me.rest(Duration::from_millis(200)).await;
        self.me.dawdle().await;
    }

    async fn read(&self, register: usize, path: &Path) -> Option<(Value, Version)> {
        let pending = self.recorder.call(self.who(), register, Action::Read);
        let found = self.client.get(path).await;
        let (answer, held) = match &found {
            Ok(Some(node)) => {
                let (value, stat) = (value(node)?, node.stat?);
                let revision = Some(stat.modified.get());
                (Answer::Found { value: Some(value), revision }, Some((value, stat.version)))
            }
            Ok(None) => (Answer::Found { value: None, revision: None }, None),
            Err(_) => (Answer::Failed, None),
        };
        pending.returned(answer);
        held
    }

    async fn write(
        &self,
        register: usize,
        action: Action,
        call: impl Future<Output = Result<Outcome<OpResult>, Error>>,
    ) {
        let pending = self.recorder.call(self.who(), register, action);
        let Some(outcome) = self.me.perhaps(call).await else { return drop(pending) };
        let answer = match outcome {
            Ok(Outcome::Committed(done)) => {
                Answer::Done { revision: done.stat.map(|stat| stat.modified.get()) }
            }
            Ok(Outcome::Rejected(_)) => Answer::Refused,
            Err(error) if error.effect() == Effect::None => Answer::Failed,
            Err(_) => Answer::Unknown,
        };
        self.me.sometimes("a swap lost its race", answer == Answer::Refused);
        self.me.sometimes("the effect of a swap was unknown", answer == Answer::Unknown);
        pending.returned(answer);
    }

    fn who(&self) -> usize {
        usize::try_from(self.me.number()).unwrap_or(0)
    }
}

fn path(register: usize) -> Path {
    Path::new(&format!("/r/{register}")).expect("it is one")
}

fn value(node: &Node) -> Option<Value> {
    std::str::from_utf8(&node.data).ok()?.parse().ok()
}

fn linearizable(recorder: &Recorder) -> Result<(), String> {
    let history = recorder.history();
    order::check(&history).map_err(|violation| violation.to_string())?;
    match registers::check(&history, 200_000) {
        registers::Verdict::Illegal { register, stuck } => {
            Err(format!("no order explains register {register}; the longest ends before {stuck}"))
        }
        _ => Ok(()),
    }
}
