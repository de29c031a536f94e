//! [`Hearing`]: the events of a watch, until they are taken over.

use std::collections::BTreeMap;
use std::mem::take;

use synod_core::path::Path;
use synod_core::store::{Change, End, Event};

use crate::mirror::extent::Extent;
use crate::mutant::mistake;

/// What was heard and is not taken over yet. It is never more than one change of each path: of several the last counts.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    changes: BTreeMap<Path, (u64, Change)>,
    /// How many changes were heard.
    count: u64,
    /// Whether others were missed, so that all must be read.
    pub(super) missed: bool,
    /// Why the watch is over, if it is.
    pub(super) ended: Option<End>,
}

impl Hearing {
    /// Takes note of an event.
    pub(super) fn hear(&mut self, extent: &Extent, event: Option<Event>) {
        match event {
            Some(Event::Changed(change)) if extent.has(&change.path) => {
                self.count += 1;
                let _earlier = self.changes.insert(change.path.clone(), (self.count, change));
            }
            Some(Event::Changed(_)) => {}
            Some(Event::Resync) => {
                mistake!(ResyncUnread: return);
                self.changes.clear();
                self.missed = true;
            }
            Some(Event::Ended(end)) => self.ended = Some(end),
            None => self.ended = self.ended.take().or(Some(End::Delivered)),
        }
    }

    /// All that was heard, in the order in which it was.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let mut changes: Vec<_> = take(&mut self.changes).into_values().collect();
        changes.sort_by_key(|(count, _)| *count);
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::Kind;

    use super::*;

    #[test]
    fn the_last_change_of_each_path_is_heard_in_order() {
        let (extent, mut hearing) = (Extent::subtree(path!("/a")), Hearing::default());
        let changed = |path: &str, kind| {
            Some(Event::Changed(Change::new(Path::new(path).expect("valid"), kind)))
        };
        hearing.hear(&extent, changed("/a/c", Kind::Created));
        hearing.hear(&extent, changed("/a/b", Kind::Created));
        hearing.hear(&extent, changed("/b", Kind::Created));
        hearing.hear(&extent, changed("/a/c", Kind::Deleted));
        let heard = |hearing: &mut Hearing| {
            let taken = hearing.take().into_iter();
            taken.map(|it| (it.path.to_string(), it.kind)).collect::<Vec<_>>()
        };
        let expected = [("/a/b".to_owned(), Kind::Created), ("/a/c".to_owned(), Kind::Deleted)];
        assert_eq!(heard(&mut hearing), expected);
        assert!(hearing.take().is_empty() && !hearing.missed);

        hearing.hear(&extent, changed("/a/b", Kind::Updated));
        hearing.hear(&extent, Some(Event::Resync));
        hearing.hear(&extent, changed("/a/c", Kind::Created));
        assert!(hearing.missed && hearing.ended.is_none());
        assert_eq!(heard(&mut hearing), [("/a/c".to_owned(), Kind::Created)]);
        hearing.hear(&extent, None);
        assert!(matches!(hearing.ended, Some(End::Delivered)));
    }
}
