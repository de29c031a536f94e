//! [`in_order`]: works on many things with all processors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Processes all items, on as many threads as there are processors, and passes on the results in
/// the order of the items. The first error ends it.
pub(super) fn in_order<T: Sync, R: Send, E>(
    things: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R) -> Result<(), E>,
) -> Result<(), E> {
    let (next, (done, results)) = (AtomicUsize::new(0), mpsc::channel());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            let (next, work, done) = (&next, &work, done.clone());
            scope.spawn(move || {
                while let Some((at, thing)) = one_of(things, next) {
                    if done.send((at, work(thing))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let (mut early, mut due) = (BTreeMap::new(), 0);
        for (at, result) in results {
            early.insert(at, result);
            while let Some(result) = early.remove(&due) {
                take(&things[due], result)?;
                due += 1;
            }
        }
        Ok(())
    })
}

/// The next item that no thread has taken.
fn one_of<'a, T>(things: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    things.get(at).map(|thing| (at, thing))
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn results_come_in_the_order_of_the_things() {
        let things: Vec<u64> = (0..100).collect();
        let mut taken = Vec::new();
        // The work on the first items takes longest.
        let work = |thing: &u64| (0..(100 - thing) * 1000).sum::<u64>();
        let ended: Result<(), ()> = in_order(&things, work, |thing, _| {
            taken.push(*thing);
            Ok(())
        });
        assert_eq!((ended, taken), (Ok(()), things));
    }

    #[test]
    fn the_first_error_in_that_order_ends_it() {
        let things: Vec<u64> = (0..100).collect();
        let work = |thing: &u64| if *thing >= 7 { Err(*thing) } else { Ok(()) };
        assert_eq!(in_order(&things, work, |_, result| result), Err(7));
    }
}
