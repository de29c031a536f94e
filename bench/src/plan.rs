//! The cases to measure, and the number of clients.

use crate::record::Case;
use crate::task::Work;

/// The amount to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Extent {
    /// Within three minutes.
    Quick,
    /// Within twenty minutes.
    Full,
}

/// The cases for a server.
///
/// With a server that waits for its disk only some are useful: the disk takes most of the time of
/// each.
pub fn cases(server: &str, fsync: bool, extent: Extent) -> Vec<Case> {
    let case =
        |work, clients| Case { server: server.to_owned(), fsync, work, clients, busy: false };
    let mut cases: Vec<Case> = Vec::new();
    for work in Work::ALL {
        let clients = clients(work, fsync, extent);
        cases.extend(clients.iter().map(|clients| case(work, *clients)));
        if work == Work::Observe && !clients.is_empty() {
            cases.push(Case { busy: true, ..case(work, clients[0]) });
        }
    }
    cases
}

fn clients(work: Work, fsync: bool, extent: Extent) -> &'static [usize] {
    match (fsync, extent) {
        (true, _) => clients_on_disk(work),
        (false, Extent::Quick) => clients_in_short(work),
        (false, Extent::Full) => clients_in_full(work),
    }
}

fn clients_on_disk(work: Work) -> &'static [usize] {
    match work {
        Work::CreateDelete | Work::Lock => &[1, 16],
        Work::LockContended => &[8],
        _ => &[],
    }
}

fn clients_in_short(work: Work) -> &'static [usize] {
    match work {
        Work::GetLocal
        | Work::Set
        | Work::SetIfThere
        | Work::Ids
        | Work::Partition
        | Work::SharedValue
        | Work::CacheLarge
        | Work::CacheMemory
        | Work::CacheSeen
        | Work::CacheChanges
        | Work::QueueLong
        | Work::QueueShort
        | Work::Lead
        | Work::CrewWorker
        | Work::CrewMaster
        | Work::Instance => &[],
        Work::Get | Work::QueueBunches | Work::CacheSmall | Work::Observe => &[1],
        Work::CreateDelete | Work::Lock => &[1, 16],
        Work::LockContended => &[2, 8, 64],
        Work::Drain => &[100],
        Work::LockTasks => &[16],
        Work::IncrementTasks => &[64],
        Work::Increment => &[1, 8],
        Work::DoubleBarrier => &[2, 8],
        Work::QueueTake => &[1, 4],
        Work::QueueAck | Work::CrewTasks => &[4],
        Work::Semaphore | Work::ReadWrite | Work::Transaction => &[8],
        Work::Resign | Work::ResignLate => &[2],
    }
}

fn clients_in_full(work: Work) -> &'static [usize] {
    match work {
        Work::GetLocal | Work::Get | Work::Set | Work::SetIfThere | Work::CreateDelete => {
            &[1, 16, 64]
        }
        Work::Lock => &[1, 16],
        Work::LockContended => &[2, 8, 64, 256],
        Work::Drain => &[100, 1_000],
        Work::LockTasks => &[16, 256],
        Work::Semaphore | Work::ReadWrite => &[8, 64],
        Work::Increment | Work::Transaction => &[1, 8],
        Work::IncrementTasks => &[64],
        Work::DoubleBarrier => &[2, 8],
        Work::QueueTake | Work::QueueAck => &[1, 4],
        Work::CrewTasks => &[4],
        Work::Partition => &[16],
        Work::Ids | Work::Instance => &[8],
        Work::QueueBunches
        | Work::SharedValue
        | Work::Observe
        | Work::CacheSmall
        | Work::CacheLarge
        | Work::CacheMemory
        | Work::CacheSeen
        | Work::CacheChanges
        | Work::QueueLong
        | Work::QueueShort => &[1],
        Work::Resign | Work::ResignLate | Work::Lead | Work::CrewWorker | Work::CrewMaster => &[2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_is_part_of_a_full_one() {
        for fsync in [false, true] {
            let full = cases("etcd", fsync, Extent::Full);
            let quick = cases("etcd", fsync, Extent::Quick);
            assert!(quick.iter().all(|case| full.contains(case)) && !quick.is_empty());
        }
    }

    #[test]
    fn all_work_is_measured() {
        let full = cases("etcd", false, Extent::Full);
        let is_measured = |work: &Work| full.iter().any(|case| case.work == *work);
        assert!(Work::ALL.iter().all(is_measured));
        assert_eq!(full.iter().filter(|case| case.busy).count(), 1);
    }
}
