//! [`Watches`]: the watches of the connections of one server, as its two `WatchManager`s keep them.
//!
//! Before 3.9 a manager has one mode for each connection and path: a watch of another mode replaces
//! the first (ZOOKEEPER-4466).

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Tree, Write, split};

/// The number of a connection.
pub(crate) type Line = u64;

pub(crate) mod kind {
    pub(crate) const CREATED: i32 = 1;
    pub(crate) const DELETED: i32 = 2;
    pub(crate) const CHANGED: i32 = 3;
    pub(crate) const CHILDREN: i32 = 4;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Once,
    Persistent,
    Recursive,
}

#[derive(Debug, Default)]
struct Manager(BTreeMap<String, BTreeMap<Line, BTreeSet<Mode>>>);

#[derive(Debug, Default)]
pub(crate) struct Watches {
    data: Manager,
    children: Manager,
    /// The watches of one connection at one path may have several modes, as since 3.9.
    pub(crate) several_modes: bool,
}

/// An event, and which connections it is for.
pub(crate) type Event = (BTreeSet<Line>, i32, String);

impl Manager {
    fn add(&mut self, path: &str, line: Line, mode: Mode, several_modes: bool) {
        let modes = self.0.entry(path.to_owned()).or_default().entry(line).or_default();
        if !several_modes {
            modes.clear();
        }
        modes.insert(mode);
    }

    /// Removes the watches of these modes. Returns `false` if there were none.
    fn remove(&mut self, path: &str, line: Line, is_meant: impl Fn(Mode) -> bool) -> bool {
        let Some(lines) = self.0.get_mut(path) else { return false };
        let Some(modes) = lines.get_mut(&line) else { return false };
        let before = modes.len();
        modes.retain(|mode| !is_meant(*mode));
        let removed = modes.len() < before;
        self.forget_empty(path);
        removed
    }

    fn trigger(&mut self, path: &str, kind: i32) -> BTreeSet<Line> {
        let mut notified = BTreeSet::new();
        if let Some(lines) = self.0.get_mut(path) {
            let here = |modes: &BTreeSet<Mode>| modes.iter().any(|mode| *mode != Mode::Recursive);
            notified.extend(lines.iter().filter(|(_, modes)| here(modes)).map(first));
            for modes in lines.values_mut() {
                modes.retain(|mode| *mode != Mode::Once);
            }
            self.forget_empty(path);
        }
        if kind != kind::CHILDREN {
            let mut at = path;
            loop {
                let lines = self.0.get(at).into_iter().flatten();
                notified.extend(lines.filter(|(_, it)| it.contains(&Mode::Recursive)).map(first));
                if at == "/" {
                    break;
                }
                at = split(at).0;
            }
        }
        notified
    }

    fn forget_empty(&mut self, path: &str) {
        if let Some(lines) = self.0.get_mut(path) {
            lines.retain(|_, modes| !modes.is_empty());
            if lines.is_empty() {
                self.0.remove(path);
            }
        }
    }

    fn count(&self) -> usize {
        self.0.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum()
    }
}

fn first<'a, T>((line, _): (&'a Line, &'a T)) -> Line {
    *line
}

impl Watches {
    /// A watch for one event of a node, whether it exists or not.
    pub(crate) fn node(&mut self, path: &str, line: Line) {
        self.data.add(path, line, Mode::Once, self.several_modes);
    }

    /// A watch for one event of a node's children.
    pub(crate) fn children(&mut self, path: &str, line: Line) {
        self.children.add(path, line, Mode::Once, self.several_modes);
    }

    /// A persistent watch.
    pub(crate) fn add(&mut self, path: &str, line: Line, recursive: bool) {
        self.add_lasting(path, line, if recursive { Mode::Recursive } else { Mode::Persistent });
    }

    fn add_lasting(&mut self, path: &str, line: Line, mode: Mode) {
        self.data.add(path, line, mode, self.several_modes);
        // Since 3.9 events of children are for no recursive watch.
        if !(self.several_modes && mode == Mode::Recursive) {
            self.children.add(path, line, mode, self.several_modes);
        }
    }

    /// Returns `false` if there was none. Kind 1 is of children, 2 of data, 3 of all; since 3.9 the
    /// first two are watches for one event.
    pub(crate) fn remove(&mut self, path: &str, line: Line, kind: i32) -> bool {
        let is_meant = |mode| kind == 3 || !self.several_modes || mode == Mode::Once;
        let children = kind != 2 && self.children.remove(path, line, is_meant);
        let data = kind != 1 && self.data.remove(path, line, is_meant);
        children || data
    }

    /// Sets the watches of a client's last connection again. Returns the events that it missed.
    pub(crate) fn set(
        &mut self,
        tree: &Tree,
        line: Line,
        since: i64,
        lists: &[Vec<String>],
    ) -> Vec<(i32, String)> {
        let mut missed = Vec::new();
        let empty = Vec::new();
        let list = |index: usize| lists.get(index).unwrap_or(&empty);
        for path in list(0) {
            match tree.nodes.get(path) {
                None => missed.push((kind::DELETED, path.clone())),
                Some(node) if node.mzxid > since => missed.push((kind::CHANGED, path.clone())),
                Some(_) => self.node(path, line),
            }
        }
        for path in list(1) {
            match tree.nodes.get(path) {
                Some(_) => missed.push((kind::CREATED, path.clone())),
                None => self.node(path, line),
            }
        }
        for path in list(2) {
            match tree.nodes.get(path) {
                None => missed.push((kind::DELETED, path.clone())),
                Some(node) if node.pzxid > since => missed.push((kind::CHILDREN, path.clone())),
                Some(_) => self.children(path, line),
            }
        }
        for (index, mode) in [(3, Mode::Persistent), (4, Mode::Recursive)] {
            for path in list(index) {
                self.add_lasting(path, line, mode);
            }
        }
        missed
    }

    /// The events of a write, with the connections that get them.
    pub(crate) fn hear(&mut self, write: &Write) -> Vec<Event> {
        match write {
            Write::Create { path, .. } => {
                let dir = split(path).0;
                vec![
                    (self.data.trigger(path, kind::CREATED), kind::CREATED, path.clone()),
                    (self.children.trigger(dir, kind::CHILDREN), kind::CHILDREN, dir.to_owned()),
                ]
            }
            Write::Set { path, .. } => {
                vec![(self.data.trigger(path, kind::CHANGED), kind::CHANGED, path.clone())]
            }
            Write::Delete { path } => {
                let dir = split(path).0;
                let of_data = self.data.trigger(path, kind::DELETED);
                let mut of_children = self.children.trigger(path, kind::DELETED);
                of_children.retain(|line| !of_data.contains(line));
                vec![
                    (of_data, kind::DELETED, path.clone()),
                    (of_children, kind::DELETED, path.clone()),
                    (self.children.trigger(dir, kind::CHILDREN), kind::CHILDREN, dir.to_owned()),
                ]
            }
        }
    }

    /// Removes the watches of a connection that has ended.
    pub(crate) fn forget(&mut self, line: Line) {
        for manager in [&mut self.data, &mut self.children] {
            manager.0.retain(|_, lines| {
                lines.remove(&line);
                !lines.is_empty()
            });
        }
    }

    pub(crate) fn count(&self) -> usize {
        // Each of the two managers has a half of a persistent watch.
        let halves = self.children.0.iter().flat_map(|(path, lines)| {
            let of_data = |line: &Line| self.data.0.get(path).and_then(|it| it.get(line));
            let both = move |line: &Line, mode: &Mode| {
                *mode != Mode::Once && of_data(line).is_some_and(|modes| modes.contains(mode))
            };
            let modes =
                lines.iter().flat_map(|(line, modes)| modes.iter().map(move |it| (line, it)));
            modes.filter(move |(line, mode)| both(line, mode))
        });
        self.data.count() + self.children.count() - halves.count()
    }
}
