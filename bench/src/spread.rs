//! [`Spread`]: many measurements in three numbers.

/// The median and the quartiles of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "three numbers")]
pub struct Spread {
    /// A quarter is below.
    pub low: f64,
    /// Half is below.
    pub median: f64,
    /// A quarter is above.
    pub high: f64,
}

impl Spread {
    /// The spread of these numbers.
    ///
    /// # Panics
    ///
    /// If there are no numbers.
    pub fn of(all: impl IntoIterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = all.into_iter().collect();
        assert!(!all.is_empty(), "nothing was measured");
        all.sort_by(f64::total_cmp);
        let at = |quarter: usize| all[(all.len() - 1) * quarter / 4];
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_disturbs_a_few_rounds_does_not_move_the_middle() {
        let spread = Spread::of([5.0, 3.0, 1.0, 4.0, 900.0]);
        assert_eq!(spread, Spread { low: 3.0, median: 4.0, high: 5.0 });
    }
}
