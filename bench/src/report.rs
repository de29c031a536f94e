//! [`Report`]: a racer's result, and [`Stopwatch`], which measures it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::task::{Measure, Task};

/// The result of a [`Task`]. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the protocol")]
pub struct Report {
    /// The number of laps of all clients together.
    pub laps: u64,
    /// The time from the beginning of the first lap to the end of the last.
    pub micros: f64,
    /// Half of the laps took no longer.
    pub p50: f64,
    /// Nine tenths of the laps took no longer.
    pub p90: f64,
    /// All but a hundredth of the laps took no longer.
    pub p99: f64,
    /// CPU time of this process meanwhile, if the system reports it.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Memory of the process at the end, or while most clients wait, or its growth by a cache, in
    /// KiB, if the system reports it.
    #[serde(default)]
    pub rss: Option<u64>,
    /// Number of nodes in a cache when it reported that it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u64>,
}

impl Report {
    /// Laps per second.
    pub fn rate(&self) -> f64 {
        count(self.laps) / self.micros * 1e6
    }

    /// Microseconds of CPU time per lap.
    pub fn cpu_per_lap(&self) -> Option<f64> {
        (self.laps > 0).then_some(self.cpu? / count(self.laps))
    }

    /// Returns the cost by this measure: the less, the faster; zero if it was not measured.
    pub fn cost(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Rate => 1e6 / self.rate(),
            Measure::Latency => self.p50,
            Measure::Effort => self.cpu_per_lap().unwrap_or_default(),
            Measure::Memory => self.rss.map(count).unwrap_or_default(),
        }
    }
}

/// Measures the laps of one task.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
    cpu: Option<Duration>,
    task: Task,
}

impl Stopwatch {
    /// Starts the task.
    pub fn start(task: &Task) -> Self {
        Self { cpu: cpu(), started: Instant::now(), task: *task }
    }

    /// Returns `true` if a client that did `laps` laps does another.
    pub fn goes_on(&self, laps: usize) -> bool {
        if self.task.laps > 0 {
            return (laps as u64) < self.task.laps;
        }
        // At least one lap is measured.
        laps == 0 || self.started.elapsed() < Duration::from_millis(self.task.millis)
    }

    /// Ends the task, with laps that took this long.
    pub fn stop(self, laps: Vec<Duration>) -> Report {
        self.stop_with(laps, rss())
    }

    /// Like [`Stopwatch::stop`], with the memory at another time.
    pub fn stop_with(self, laps: Vec<Duration>, rss: Option<u64>) -> Report {
        let micros = micros(self.started.elapsed());
        let cpu = self.cpu.zip(cpu()).map(|(before, now)| self::micros(now.saturating_sub(before)));
        report(laps, micros, cpu, rss)
    }
}

/// A report of laps that took this long, `micros` altogether.
pub fn report(mut laps: Vec<Duration>, micros: f64, cpu: Option<f64>, rss: Option<u64>) -> Report {
    laps.sort_unstable();
    let at = |hundredths: usize| {
        let place = laps.len().saturating_sub(1) * hundredths / 100;
        laps.get(place).copied().map_or(0.0, self::micros)
    };
    let (p50, p90, p99) = (at(50), at(90), at(99));
    Report { laps: laps.len() as u64, micros, p50, p90, p99, cpu, rss, nodes: None }
}

/// The memory of this process in KiB, if the system reports it.
pub fn rss() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// CPU time of all threads of this process, if the system reports it.
fn cpu() -> Option<Duration> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let spent = threads.filter_map(|thread| {
        let told = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    });
    Some(spent.sum())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn count(laps: u64) -> f64 {
    u32::try_from(laps).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Work;

    #[test]
    fn a_report_has_the_percentiles_of_its_laps() {
        let laps = (1..=100).rev().map(Duration::from_micros).collect();
        let report = report(laps, 2e6, Some(300.0), None);

        assert_eq!((report.p50, report.p90, report.p99), (50.0, 90.0, 99.0));
        assert_eq!((report.rate(), report.cpu_per_lap()), (50.0, Some(3.0)));
        let cost = |measure| report.cost(measure);
        let costs = (cost(Measure::Rate), cost(Measure::Latency), cost(Measure::Effort));
        assert_eq!(costs, (20_000.0, 50.0, 3.0));
        let large = Report { rss: Some(7), ..report };
        assert_eq!((large.cost(Measure::Memory),), (7.0,));
    }

    #[test]
    fn a_report_without_laps_is_all_zeros() {
        let report = report(Vec::new(), 1.0, Some(1.0), None);
        assert_eq!((report.p50, report.rate(), report.cpu_per_lap()), (0.0, 0.0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_goes_on_until_its_time_or_its_laps_are_over() {
        let timed = Stopwatch::start(&Task::lasting(Work::Get, 1, Duration::from_millis(5)));
        let counted = Stopwatch::start(&Task::laps(Work::Get, 1, 2));
        assert!(timed.goes_on(1_000) && counted.goes_on(1) && !counted.goes_on(2));

        tokio::time::advance(Duration::from_millis(5)).await;

        assert!(!timed.goes_on(1) && timed.goes_on(0), "one lap is always done");
    }
}
