//! The answers of `cancel` and `wait` about the same task, which must agree.

use std::sync::{Arc, Mutex, PoisonError};

use synod_recipes::crew::TaskEnd;

use crate::findings::Truth;
use crate::workload::crew_truth::ends;

/// The answers of both calls about each task. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<Vec<Ends>>>);

/// The end of a task as `cancel` returned it, and then as `wait` returned it.
struct Ends {
    task: String,
    cancelled: TaskEnd,
    waited: TaskEnd,
}

impl Told {
    pub(super) fn add(&self, task: &str, cancelled: TaskEnd, waited: TaskEnd) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Ends { task: task.to_owned(), cancelled, waited });
    }

    /// L-MW-8: the end of a task does not change after it was returned.
    pub(super) fn judge(&self, truth: &Truth, crew: &str) -> Result<(), String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter().find(|told| !told.agree(&ends(truth, crew, &told.task))) {
            Some(Ends { task, cancelled, waited }) => {
                Err(format!("{task} ended as {cancelled:?}, and as {waited:?}"))
            }
            None => Ok(()),
        }
    }
}

impl Ends {
    /// Returns `true` if both are the end of one task. A removed task may be submitted again: the
    /// second end may then belong to a later task of this name.
    fn agree(&self, ends: &[&str]) -> bool {
        let mut ends = ends.iter();
        self.cancelled == self.waited
            || ends.any(|end| *end == state(&self.cancelled))
                && ends.any(|end| *end == state(&self.waited))
    }
}

/// The state in the node of a task with this end.
fn state(end: &TaskEnd) -> &'static str {
    match end {
        TaskEnd::Done(_) => "done",
        TaskEnd::Failed(_) => "failed",
        TaskEnd::Cancelled => "cancelled",
        TaskEnd::Expired => "expired",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_end_is_that_of_a_later_task_of_the_same_name() {
        let failed = || TaskEnd::Failed("on purpose".into());
        let told = |cancelled, waited| Ends { task: "one".to_owned(), cancelled, waited };

        assert!(told(failed(), failed()).agree(&["failed"]));
        assert!(told(failed(), TaskEnd::Cancelled).agree(&["done", "failed", "cancelled"]));

        let other = told(failed(), TaskEnd::Cancelled);
        assert!(!other.agree(&["cancelled"]), "it was told another end than the task has");
        assert!(!other.agree(&["cancelled", "failed"]), "the later one was told first");
        assert!(!told(failed(), TaskEnd::Failed("otherwise".into())).agree(&["failed"]));
    }
}
