//! The child watches that servers keep for a session: [`ChildWatches`]. No server reports them, so
//! they are derived from the traffic.

use std::collections::{BTreeMap, BTreeSet};

/// The paths with child watches, and the requests for such watches that are not answered yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildWatches {
    watched: BTreeSet<String>,
    requests: BTreeMap<i32, WatchRequest>,
}

#[derive(Clone, Debug)]
enum WatchRequest {
    Watch(String),
    Unwatch(String),
    Rewatch(Vec<String>),
}

/// The number of messages that are not answers.
const EVENT: i32 = -1;

impl ChildWatches {
    pub(crate) fn len(&self) -> usize {
        self.watched.len()
    }

    /// Returns `true` if a message of a server is an event.
    pub(crate) fn is_event(answer: &[u8]) -> bool {
        Reader(answer).skip(4).number() == Some(EVENT)
    }

    /// Clears the watches after a connection ended: the next server does not know them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Handles a message of the client, including its length.
    pub(crate) fn request(&mut self, message: &[u8]) {
        if let Some((number, request)) = request(message) {
            self.requests.insert(number, request);
        }
    }

    /// Handles a message of the server, including its length.
    pub(crate) fn answer(&mut self, message: &[u8]) {
        let mut reader = Reader(message).skip(4);
        let Some(number) = reader.number() else { return };
        let mut reader = reader.skip(8);
        let Some(error) = reader.number() else { return };
        if number == EVENT {
            self.hear(reader);
        } else if let Some(request) = self.requests.remove(&number)
            && error == 0
        {
            match request {
                WatchRequest::Watch(path) => drop(self.watched.insert(path)),
                WatchRequest::Unwatch(path) => drop(self.watched.remove(&path)),
                WatchRequest::Rewatch(paths) => self.watched.extend(paths),
            }
        }
    }

    /// An event about a node's deletion or its children has consumed the watch.
    fn hear(&mut self, mut event: Reader<'_>) {
        const DELETED: i32 = 2;
        const CHILDREN: i32 = 4;

        if matches!(event.number(), Some(DELETED | CHILDREN))
            && let Some(path) = event.skip(4).text()
        {
            self.watched.remove(&path);
        }
    }
}

/// Returns the number of a request and its effect on child watches, if it has one.
fn request(message: &[u8]) -> Option<(i32, WatchRequest)> {
    const LIST: [i32; 2] = [8, 12];
    const UNWATCH: i32 = 18;
    const REWATCH: [i32; 2] = [101, 105];
    // Watches of children, or of all kinds.
    const OF_CHILDREN: [i32; 2] = [1, 3];

    let mut reader = Reader(message).skip(4);
    let (number, kind) = (reader.number()?, reader.number()?);
    if LIST.contains(&kind) {
        let path = reader.text()?;
        return (*reader.0.first()? != 0).then_some((number, WatchRequest::Watch(path)));
    }
    if kind == UNWATCH {
        let path = reader.text()?;
        return OF_CHILDREN
            .contains(&reader.number()?)
            .then_some((number, WatchRequest::Unwatch(path)));
    }
    if !REWATCH.contains(&kind) {
        return None;
    }
    let mut reader = reader.skip(8);
    let (_data, _absent) = (reader.texts()?, reader.texts()?);
    Some((number, WatchRequest::Rewatch(reader.texts()?)))
}

/// Returns the rest of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn skip(self, count: usize) -> Self {
        Self(self.0.get(count..).unwrap_or_default())
    }

    fn number(&mut self) -> Option<i32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*number))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn texts(&mut self) -> Option<Vec<String>> {
        (0..self.number()?).map(|_| self.text()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let length = i32::try_from(body.len()).expect("short").to_be_bytes();
        [&length, &body[..]].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        let length = i32::try_from(text.len()).expect("short").to_be_bytes();
        [&length, text.as_bytes()].concat()
    }

    fn list(number: i32, path: &str, watch: bool) -> Vec<u8> {
        message(&[&number.to_be_bytes(), &[0, 0, 0, 12], &text(path), &[watch.into()]])
    }

    fn answer(number: i32, error: i32) -> Vec<u8> {
        message(&[&number.to_be_bytes(), &[0; 8], &error.to_be_bytes(), b"whatever"])
    }

    fn event(kind: u8, path: &str) -> Vec<u8> {
        let number = EVENT.to_be_bytes();
        message(&[&number, &[0; 8], &[0; 4], &[0, 0, 0, kind], &[0, 0, 0, 3], &text(path)])
    }

    #[test]
    fn a_watch_is_set_until_it_fires_or_is_removed() {
        let mut nursery = ChildWatches::default();
        for (number, path) in [(1, "/a"), (2, "/b"), (3, "/c")] {
            nursery.request(&list(number, path, number != 3));
            assert!(!nursery.watched.contains(path), "there was no answer");
            nursery.answer(&answer(number, 0));
        }
        assert_eq!(nursery.len(), 2);
        nursery.request(&list(4, "/none", true));
        nursery.answer(&answer(4, -101));
        assert_eq!(nursery.len(), 2, "there is no node");

        nursery.answer(&event(3, "/a"));
        assert_eq!(nursery.len(), 2, "its data is something else");
        assert!(ChildWatches::is_event(&event(3, "/a")) && !ChildWatches::is_event(&answer(1, 0)));
        nursery.answer(&event(2, "/a"));
        let unwatch = message(&[&[0, 0, 0, 5], &[0, 0, 0, 18], &text("/b"), &[0, 0, 0, 3]]);
        nursery.request(&unwatch);
        assert_eq!(nursery.len(), 1);
        nursery.answer(&answer(5, 0));
        assert_eq!(nursery.len(), 0);
    }

    #[test]
    fn another_server_gets_every_watch_again() {
        let mut nursery = ChildWatches::default();
        nursery.request(&list(1, "/a", true));
        nursery.answer(&answer(1, 0));
        nursery.clear();
        assert_eq!(nursery.len(), 0);
        let of_children = [&[0, 0, 0, 1][..], &text("/a")].concat();
        let of_data = [&[0, 0, 0, 1][..], &text("/d")].concat();
        let all = [&[0; 8][..], &of_data, &[0; 4], &of_children].concat();
        nursery.request(&message(&[&[0, 0, 0, 2], &[0, 0, 0, 101], &all]));
        nursery.answer(&answer(2, 0));
        assert_eq!(nursery.watched.iter().collect::<Vec<_>>(), ["/a"]);
    }
}
