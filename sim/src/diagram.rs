//! [`Diagram`]: a history as lanes, one for each process and one for the store, for readers who see
//! it for the first time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::{Line, What};

use crate::report::Report;

mod html;
mod text;
mod words;

pub(crate) use html::LEGEND;

/// A history as lanes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagram {
    /// The names of the lanes: the processes, then the store.
    pub lanes: Vec<String>,
    /// The events, in order.
    pub cells: Vec<Cell>,
}

/// One event, in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cell {
    /// The time since the beginning.
    pub at: Duration,
    /// The index of its lane.
    pub lane: usize,
    /// The kind of event.
    pub what: What,
    /// A description.
    pub text: String,
    /// `true` if the failure is about this event.
    pub is_marked: bool,
    /// One flag for each lane: `true` if a state that began there has not ended.
    pub goes_on: Vec<bool>,
    /// Number of times that the event happened in a row.
    pub times: usize,
}

/// The maximum number of events; further ones are omitted.
const MOST: usize = 160;
/// The number of events shown before and after an event that the failure mentions.
const AROUND: usize = 25;

impl Diagram {
    /// The lanes of a traced history: the events near the failure, and all faults.
    pub fn of(report: &Report) -> Self {
        let Self { lanes, cells } = Self::whole(report);
        Self { lanes, cells: shortened(cells) }
    }

    /// [`Diagram::of`] with all events.
    pub fn whole(report: &Report) -> Self {
        let mut lanes = report.names.clone();
        let audited = report.lines.iter().any(|line| line.actor == lanes.len() as u64 + 1);
        if audited {
            lanes.push("auditor".to_owned());
        }
        lanes.push("the store".to_owned());
        let mut drawing = Drawing::new(report, lanes.len());
        for line in &report.lines {
            drawing.line(line);
        }
        drawing.verdict(report);
        Self { lanes, cells: joined(drawing.cells) }
    }
}

/// A text with names in place of long ids.
pub(crate) fn short(report: &Report, text: &str) -> String {
    words::Words::of(report).short(text)
}

/// The state while the lines are processed.
struct Drawing<'a> {
    report: &'a Report,
    store: usize,
    words: words::Words,
    asked: BTreeMap<u64, &'a str>,
    /// The calls with a fault.
    troubled: BTreeSet<u64>,
    /// The calls that ended without an answer.
    failed: BTreeSet<u64>,
    /// The states that have not ended, by their ids: the lane, and the cell in which each began.
    begun: BTreeMap<u64, (usize, usize)>,
    cells: Vec<Cell>,
}

impl<'a> Drawing<'a> {
    fn new(report: &'a Report, lanes: usize) -> Self {
        let faults = report.lines.iter().filter(|line| line.what == What::Fault && line.id > 0);
        Self {
            report,
            store: lanes - 1,
            words: words::Words::of(report),
            asked: BTreeMap::new(),
            troubled: faults.map(|line| line.id).collect(),
            failed: BTreeSet::new(),
            begun: BTreeMap::new(),
            cells: Vec::new(),
        }
    }

    fn line(&mut self, line: &'a Line) {
        let quiet = || self.asked.get(&line.id).is_some_and(|it| *it == "heartbeat");
        match line.what {
            What::Sent => {
                self.asked.insert(line.id, &line.text);
                if line.text != "heartbeat" || self.troubled.contains(&line.id) {
                    self.put(line, format!("→ {}", line.text));
                }
            }
            What::Returned if quiet() && !self.troubled.contains(&line.id) => {}
            What::Returned => self.put(line, format!("← {}", line.text)),
            What::Failed => {
                self.failed.insert(line.id);
                if !quiet() || self.troubled.contains(&line.id) {
                    let asked = self.asked.get(&line.id).copied().unwrap_or_default();
                    self.put(line, format!("✗ {}: {asked}", line.text));
                }
            }
            What::Arrived if self.failed.contains(&line.id) => {
                self.put(line, format!("only now arrives: {}", line.text));
            }
            What::Arrived | What::Answered => {}
            What::Fault => self.put(line, format!("⚡ {}", line.text)),
            What::Told => self.put(line, format!("! notified: {}", line.text)),
            What::Begun => {
                self.begun.insert(line.id, (self.lane(line), self.cells.len()));
                self.put(line, format!("┏ {}", line.text));
            }
            What::Over => {
                self.put(line, format!("┗ no more: {}", line.text));
                self.begun.remove(&line.id);
            }
            _ => self.put(line, line.text.clone()),
        }
    }

    fn put(&mut self, line: &Line, text: String) {
        let place = self.lane(line);
        let server = line.actor.checked_sub(100).filter(|_| place == self.store);
        let text = match server {
            Some(server) => format!("server {}: {text}", server + 1),
            None => text,
        };
        let text = self.words.short(&text);
        let is_marked = self.is_evidence(line) || self.words.is_about(&text);
        let mut goes_on = vec![false; self.store + 1];
        self.begun.values().for_each(|(lane, _)| goes_on[*lane] = true);
        let (at, what) = (line.at, line.what);
        self.cells.push(Cell { at, lane: place, what, text, is_marked, goes_on, times: 1 });
        if line.text.starts_with("WRONG") {
            // The failure conflicts with the states that had not ended then.
            for (_, cell) in self.begun.values() {
                self.cells[*cell].is_marked = true;
            }
        }
    }

    fn is_evidence(&self, line: &Line) -> bool {
        let Some(violation) = &self.report.violation else { return false };
        let its = line.actor == violation.actor && line.at == violation.at;
        line.text.starts_with("WRONG") || its && line.what == What::Session
    }

    /// The events of sessions are shown in the lane of the store.
    fn lane(&self, line: &Line) -> usize {
        match usize::try_from(line.actor).unwrap_or(0) {
            0 => self.store,
            _ if line.what == What::Session => self.store,
            actor if actor <= self.store => actor - 1,
            _ => self.store,
        }
    }

    fn verdict(&mut self, report: &Report) {
        let Some(violation) = &report.violation else { return };
        if self.cells.iter().any(|cell| cell.text.starts_with("WRONG")) {
            return;
        }
        let text = format!("WRONG, {}: {}", violation.law, violation.what);
        let place = usize::try_from(violation.actor).unwrap_or(0).checked_sub(1);
        let lane = place.filter(|place| *place < self.store).unwrap_or(self.store);
        let text = self.words.short(&text);
        let (at, what) = (violation.at, What::Note);
        let mut goes_on = vec![false; self.store + 1];
        self.begun.values().for_each(|(lane, _)| goes_on[*lane] = true);
        self.cells.push(Cell { at, lane, what, text, is_marked: true, goes_on, times: 1 });
    }
}

/// Merges repetitions of an event into one.
fn joined(cells: Vec<Cell>) -> Vec<Cell> {
    let mut joined: Vec<Cell> = Vec::new();
    for cell in cells {
        match joined.last_mut() {
            Some(last) if last.text == cell.text && last.lane == cell.lane => {
                last.times += 1;
                last.is_marked |= cell.is_marked;
            }
            _ => joined.push(cell),
        }
    }
    joined
}

/// Keeps only the events near the failure, and all faults, if there are too many.
fn shortened(cells: Vec<Cell>) -> Vec<Cell> {
    if cells.len() <= MOST {
        return cells;
    }
    let matters: Vec<usize> =
        (0..).zip(&cells).filter(|(_, cell)| cell.is_marked).map(|(place, _)| place).collect();
    let last = cells.len();
    let mut shown: Vec<Cell> = Vec::new();
    let mut quiet = 0;
    for (place, cell) in cells.into_iter().enumerate() {
        let is_near = |other: &usize| place.abs_diff(*other) <= AROUND;
        let matters = matches!(cell.what, What::Fault | What::Phase | What::Begun | What::Over)
            || last - place <= AROUND
            || matters.iter().any(is_near);
        if !matters {
            quiet += 1;
            continue;
        }
        if quiet > 0 {
            let (text, is_marked) = (format!("⋮ {quiet} more"), false);
            let (at, what, goes_on) = (cell.at, What::Phase, cell.goes_on.clone());
            let lane = cell.goes_on.len().saturating_sub(1);
            shown.push(Cell { at, lane, what, text, is_marked, goes_on, times: 1 });
            quiet = 0;
        }
        shown.push(cell);
    }
    shown
}
