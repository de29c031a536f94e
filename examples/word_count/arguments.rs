//! [`Arguments`]: the arguments of the program.

use std::num::NonZeroU32;
use std::path::PathBuf;

use synod::crew::CrewWorker;

use crate::Failure;

pub(crate) const USAGE: &str = "\
word_count [--store URL] count PLACE    count the words of all files in a directory, or of one file
word_count --store URL work [TASKS]     help to count, as many pieces at once; 4 if no number is given

URL is zk://HOST:PORT/PATH or etcd://HOST:PORT/PATH. Without one, `count` does all the work in memory.";

/// The arguments of the program.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) store: String,
    pub(crate) job: Job,
}

#[derive(Debug)]
pub(crate) enum Job {
    Work { tasks: CrewWorker },
    Count { place: PathBuf },
}

impl Arguments {
    pub(crate) fn parse(all: impl IntoIterator<Item = String>) -> Result<Self, Failure> {
        let mut all: Vec<String> = all.into_iter().collect();
        let mut store = "mem://".to_owned();
        if all.first().is_some_and(|first| first == "--store") && all.len() > 1 {
            store = all.remove(1);
            all.remove(0);
        }
        let words: Vec<&str> = all.iter().map(String::as_str).collect();
        let job = match words[..] {
            ["count", place] => Job::Count { place: place.into() },
            ["work", ..] if store.starts_with("mem:") => {
                let why = "no other process reaches a store in memory: name one";
                return Err(format!("{why}\n\n{USAGE}").into());
            }
            ["work"] => Job::Work { tasks: at_once("4")? },
            ["work", tasks] => Job::Work { tasks: at_once(tasks)? },
            _ => return Err(format!("not understood\n\n{USAGE}").into()),
        };
        Ok(Self { store, job })
    }
}

fn at_once(tasks: &str) -> Result<CrewWorker, Failure> {
    let tasks: NonZeroU32 =
        tasks.parse().map_err(|_| format!("TASKS is a number above 0, and not {tasks}"))?;
    Ok(CrewWorker::new().capacity(tasks))
}
