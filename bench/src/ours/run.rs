//! The code that runs each task.

use async_trait::async_trait;

use super::{
    Floor, Ours, Plain, barrier, cache, crew, instance, leader, lock, node, partition, queue,
    share, transaction, value, watch,
};
use crate::racer::{Failure, Racer};
use crate::report::Report;
use crate::task::{Task, Work};

#[async_trait(?Send)]
impl Racer for Ours {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::GetLocal | Work::Get | Work::Set | Work::CreateDelete => {
                node::through_the_door(self, task).await.map(Some)
            }
            Work::Lock => lock::alone(self, task).await.map(Some),
            Work::LockContended => lock::contended(self, task).await.map(Some),
            Work::Drain => lock::drain(self, task).await.map(Some),
            Work::LockTasks => lock::passed_on(self, task).await.map(Some),
            Work::Semaphore => share::semaphore(self, task).await.map(Some),
            Work::ReadWrite => share::read_write(self, task).await.map(Some),
            Work::Increment => value::increment(self, task).await.map(Some),
            Work::IncrementTasks => value::increment_tasks(self, task).await.map(Some),
            Work::Ids => value::ids(self, task).await.map(Some),
            Work::Transaction => transaction::add(self, task).await.map(Some),
            Work::QueueTake => queue::taken(self, task).await.map(Some),
            Work::QueueAck => queue::acknowledged(self, task).await.map(Some),
            Work::QueueBunches => queue::in_bunches(self, task).await.map(Some),
            Work::CrewTasks => crew::tasks(self, task).await.map(Some),
            Work::CrewWorker => Box::pin(crew::worker(self, task)).await.map(Some),
            Work::CrewMaster => crew::master(self, task).await.map(Some),
            Work::Partition => Box::pin(partition::settle(self, task)).await.map(Some),
            Work::DoubleBarrier => barrier::rounds(self, task).await.map(Some),
            Work::SharedValue => value::shared(self, task).await.map(Some),
            Work::CacheSmall | Work::CacheLarge | Work::CacheMemory => {
                cache::complete(self, task).await.map(Some)
            }
            Work::CacheSeen => cache::seen(self, task).await.map(Some),
            Work::CacheChanges => cache::changes(self, task).await.map(Some),
            Work::QueueLong | Work::QueueShort => queue::with_waiting(self, task).await.map(Some),
            Work::Instance => instance::killed(self, task).await.map(Some),
            Work::Observe => watch::observe(self, task).await.map(Some),
            Work::Resign | Work::ResignLate => leader::resign(self, task).await.map(Some),
            Work::Lead => leader::lead(self, task).await.map(Some),
            Work::SetIfThere => Ok(None),
        }
    }
}

#[async_trait(?Send)]
impl Racer for Plain {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::LockTasks => lock::one_process(&self.0, task).await.map(Some),
            _ => Ok(None),
        }
    }
}

#[async_trait(?Send)]
impl Racer for Floor {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::GetLocal | Work::Get | Work::Set | Work::CreateDelete => {
                node::at_the_floor(&self.store, &self.dir, task).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}
