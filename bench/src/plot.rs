//! [`plot()`]: draws the time of a lap against the number of clients, without a plotting library.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::record::Case;
use crate::table::{Cell, OURS, Table};
use crate::task::Work;

/// The width and height of a picture in pixels, including its labels.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
/// The number of pictures in a row.
const COLUMNS: usize = 2;

/// The colour of each racer. They can be distinguished without seeing red or green.
const COLOURS: [(&str, &str); 8] = [
    (OURS, "#d55e00"),
    ("plain", "#cc79a7"),
    ("floor", "#e69f00"),
    ("bare", "#777777"),
    ("same", "#009e73"),
    ("curator", "#0072b2"),
    ("kazoo", "#56b4e9"),
    ("go", "#0072b2"),
];

/// One picture: one kind of work on one server.
#[derive(Debug, Default)]
struct Picture {
    /// For each racer, the numbers of clients and the median times of a lap in microseconds.
    lines: BTreeMap<String, Vec<(f64, f64)>>,
}

/// The pictures of one server, as SVG: one for each kind of work that was measured with several
/// numbers of clients.
pub fn plot(table: &Table, server: &str) -> String {
    let mut pictures: BTreeMap<Work, Picture> = BTreeMap::new();
    for (case, row) in table.rows().filter(|(case, _)| is_plotted(case, server)) {
        let picture = pictures.entry(case.work).or_default();
        for (racer, cell) in row {
            picture.add(racer, case, cell);
        }
    }
    pictures.retain(|_, picture| picture.lines.values().any(|line| line.len() > 1));
    let rows = pictures.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * whole(COLUMNS), HEIGHT * whole(rows));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (place, (work, picture)) in pictures.iter().enumerate() {
        let (x, y) = (WIDTH * whole(place % COLUMNS), HEIGHT * whole(place / COLUMNS));
        add(&mut svg, &format!("<g transform=\"translate({x} {y})\">"));
        picture.draw(&mut svg, &format!("{work} on {server}"));
        add(&mut svg, "</g>");
    }
    add(&mut svg, "</svg>");
    svg
}

fn is_plotted(case: &Case, server: &str) -> bool {
    case.server == server && !case.fsync && !case.busy
}

impl Picture {
    fn add(&mut self, racer: &str, case: &Case, cell: &Cell) {
        if let Some(micros) = cell.median(|report| Some(report.p50)).filter(|micros| *micros > 0.0)
        {
            let line = self.lines.entry(racer.to_owned()).or_default();
            line.push((whole(case.clients), micros));
        }
    }

    fn draw(&self, svg: &mut String, title: &str) {
        let points = || self.lines.values().flatten();
        let across = Axis::over(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        // Small values of y are at the top.
        let up = Axis::over(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        add(svg, &format!("<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{title}</text>"));
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        let below = HEIGHT - 8.0;
        let axis =
            format!("<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">clients</text>");
        add(svg, &axis);
        for clients in self.lines.values().max_by_key(|line| line.len()).into_iter().flatten() {
            let (x, y) = (across.place(clients.0), HEIGHT - BOTTOM + 16.0);
            add(
                svg,
                &format!(
                    "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                    clients.0
                ),
            );
        }
        for micros in up.powers() {
            let (y, end) = (up.place(micros), WIDTH - RIGHT);
            let rule = format!("x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"");
            add(svg, &format!("<line {rule} stroke=\"#dddddd\"/>"));
            let (x, y, label) = (LEFT - 6.0, y + 4.0, duration(micros));
            add(svg, &format!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>"));
        }
        let mut taken = Vec::new();
        for (racer, line) in &self.lines {
            draw_line(svg, racer, line, &across, &up, &mut taken);
        }
    }
}

/// Draws one line with its name at the end, below the names that are there already.
fn draw_line(
    svg: &mut String,
    racer: &str,
    line: &[(f64, f64)],
    across: &Axis,
    up: &Axis,
    taken: &mut Vec<f64>,
) {
    let colour = COLOURS.iter().find(|(name, _)| *name == racer).map_or("black", |(_, it)| it);
    let places: Vec<(f64, f64)> =
        line.iter().map(|(x, y)| (across.place(*x), up.place(*y))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let path = path.join(" ");
    let width = if racer == OURS { 2.5 } else { 1.5 };
    let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"");
    add(svg, &format!("<polyline points=\"{path}\" {stroke}/>"));
    for (x, y) in &places {
        add(svg, &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
    }
    if let Some((x, mut y)) = places.last().map(|(x, y)| (x + 7.0, y + 4.0)) {
        while taken.iter().any(|other| (other - y).abs() < 11.0) {
            y += 1.0;
        }
        taken.push(y);
        add(svg, &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{racer}</text>"));
    }
}

/// Maps numbers to positions, logarithmically.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(numbers: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for number in numbers {
            (low, high) = (low.min(number.log10()), high.max(number.log10()));
        }
        // A single number would give an axis of length zero.
        if high - low < 0.1 {
            (low, high) = (low - 0.5, high + 0.5);
        }
        Self { low, high, from, to }
    }

    fn place(&self, number: f64) -> f64 {
        self.from + (self.to - self.from) * (number.log10() - self.low) / (self.high - self.low)
    }

    /// The ones, threes, tens and so on within it.
    fn powers(&self) -> impl Iterator<Item = f64> {
        let all = (0..10).flat_map(|power| [1.0, 3.0].map(|it| it * 10_f64.powi(power)));
        all.filter(|number| (self.low..=self.high).contains(&number.log10()))
    }
}

fn duration(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros} µs"),
        ..1e6 => format!("{} ms", micros / 1e3),
        _ => format!("{} s", micros / 1e6),
    }
}

fn whole(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

fn add(svg: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _written = writeln!(svg, "{text}").is_ok();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::{Fact, Record};
    use crate::report::report;

    fn record(server: &str, work: Work, clients: usize, micros: u64) -> Record {
        let case = Case { server: server.to_owned(), fsync: false, work, clients, busy: false };
        let lap = Duration::from_micros(micros);
        let fact = Fact::Round(0, report(vec![lap], 1.0, None, None));
        Record { case, racer: OURS.to_owned(), fact }
    }

    #[test]
    fn what_was_done_by_few_and_by_many_is_drawn() {
        let table = Table::of(&[
            record("etcd", Work::LockContended, 2, 100),
            record("etcd", Work::LockContended, 64, 10_000),
            record("etcd", Work::Observe, 1, 100),
            record("zookeeper", Work::Lock, 1, 100),
            record("zookeeper", Work::Lock, 16, 100),
        ]);
        let svg = plot(&table, "etcd");

        assert_eq!(svg.matches("<polyline").count(), 1, "{svg}");
        assert!(svg.contains("lock, contended on etcd"), "{svg}");
        // From the lower left to the upper right of the picture.
        assert!(svg.contains("points=\"56.0,220.0 290.0,34.0\""), "{svg}");
        assert!(svg.contains(">1 ms<") && svg.contains(">64<"), "{svg}");
    }
}
