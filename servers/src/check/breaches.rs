//! The laws that a record breaks: [`Record::breaches`].

use std::collections::BTreeMap;

use crate::check::record::{Breach, Called, End, Record};
use crate::check::{crews, events, families, holders, lives, outcomes, queues, sight, tickets};
use crate::clients::entry::Op;
use synod_testkit::check::{order, registers};
use synod_testkit::history::{Action, Answer as Replied, Call, History};

/// The maximum number of steps of the search for an order.
const STEPS: usize = 5_000_000;

impl Record {
    /// Returns every law that is broken.
    pub fn breaches(&self) -> Vec<Breach> {
        let mut found = outcomes::check(self);
        found.extend(sight::check(self));
        found.extend(tickets::check(self));
        found.extend(events::check(self));
        found.extend(lives::check(self));
        found.extend(holders::check(self));
        found.extend(queues::check(self));
        found.extend(crews::check(self));
        found.extend(families::check(self));
        found.extend(self.check_registers());
        found
    }

    fn check_registers(&self) -> Option<Breach> {
        let history = self.history();
        if let Err(violation) = order::check(&history) {
            return Some(Breach::new("L-KV-1", violation.to_string()));
        }
        match registers::check(&history, STEPS) {
            registers::Verdict::Legal => None,
            registers::Verdict::Illegal { stuck, .. } => {
                Some(Breach::new("L-KV-1", format!("no order explains\n  {stuck}")))
            }
            registers::Verdict::Unknown { register } => {
                let what = format!("no verdict on register {register}: too many calls");
                Some(Breach::new("L-KV-1", what))
            }
        }
    }

    /// Returns the calls to registers: nodes that are compared before they are written. The writes
    /// that the servers kept decide unknown results.
    fn history(&self) -> History {
        let registers: BTreeMap<&str, usize> = {
            let cas = self.calls.iter().filter(|call| matches!(call.op, Op::Cas { .. }));
            let mut paths: Vec<&str> = cas.map(Called::path).collect();
            paths.sort_unstable();
            paths.dedup();
            paths.into_iter().zip(0..).collect()
        };
        let calls = self.calls.iter().filter_map(|call| {
            let register = *registers.get(call.path())?;
            let action = action(&call.op)?;
            let answer = self.replied(call, action);
            let span = (call.called, call.returned);
            Some(Call::new(call.process, (register, action), span, answer))
        });
        History::new(calls.collect())
    }

    fn replied(&self, call: &Called, action: Action) -> Replied {
        match (&call.end, action) {
            (End::Done(answer), Action::Read) => {
                let seen = answer.nodes.first();
                let value = seen.and_then(|seen| seen.value);
                Replied::Found { value, revision: seen.map(|seen| seen.modified) }
            }
            (End::Done(answer), _) => Replied::Done { revision: answer.revision },
            // A call without an effect may count as rejected or as failed.
            (End::Not, _) => Replied::Failed,
            (End::Unknown, Action::Read) => Replied::Unknown,
            (End::Unknown, _) => match call.value() {
                Some(value) if !self.kept(value) => Replied::Failed,
                _ => Replied::Unknown,
            },
        }
    }
}

fn action(op: &Op) -> Option<Action> {
    match op {
        Op::Create { value, .. } => Some(Action::Swap { from: None, to: Some(*value) }),
        Op::Set { value, .. } => Some(Action::Write(Some(*value))),
        Op::Cas { from, value, .. } => Some(Action::Swap { from: Some(*from), to: Some(*value) }),
        Op::Read { local: false, .. } => Some(Action::Read),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::{Script, seen};
    use crate::clients::entry::Kind;
    use synod_testkit::history::Value;

    fn set(value: Value) -> Op {
        Op::Set { path: "/r".into(), value }
    }

    #[test]
    fn registers_are_judged_by_what_the_servers_kept() {
        let cas = Op::Cas { path: "/r".into(), from: 1, version: 0, value: 2 };
        let read = Op::Read { path: "/r".into(), local: false };
        let mut script = Script::default();
        script.call(7, Op::Create { path: "/r".into(), value: 1, ephemeral: false }, 5, vec![]);
        script.fact(5, "/r", Kind::Created, Some(1), None);
        script.fails(7, cas, false);
        script.call(7, read.clone(), 0, vec![seen("/r", 1, 5)]);
        assert_eq!(script.record().breaches(), []);

        script.call(7, set(3), 6, vec![]);
        script.fact(6, "/r", Kind::Updated, Some(3), None);
        script.call(8, read, 0, vec![seen("/r", 1, 5)]);
        let laws: Vec<_> = script.record().breaches().iter().map(|breach| breach.law).collect();
        assert_eq!(laws, ["L-KV-2", "L-KV-1"]);
    }
}
