//! Reduces a program to the steps that a difference needs.

use crate::differential::lockstep::{Difference, Lockstep};
use crate::differential::program::{Program, Step};

/// The maximum number of programs to try.
const TRIES: usize = 300;

/// A smaller program whose results still differ between stores, and the difference.
pub(crate) async fn shrink(
    stores: &mut Lockstep,
    program: Program,
    difference: Difference,
) -> (Program, Difference) {
    let (mut best, mut shown, mut tries) = (program, difference, 0);
    if let Some(steps) = shown.steps() {
        best.steps.truncate(steps);
    }
    let mut span = best.steps.len() / 2;
    loop {
        let mut smaller = None;
        for candidate in candidates(&best, span) {
            if tries == TRIES {
                return (best, shown);
            }
            tries += 1;
            if let Err(difference) = stores.run(&candidate).await {
                smaller = Some((candidate, difference));
                break;
            }
        }
        match smaller {
            Some((program, difference)) => {
                (best, shown) = (program, difference);
                span = span.min(best.steps.len());
            }
            None if span > 0 => span /= 2,
            None => return (best, shown),
        }
    }
}

/// The programs without `span` successive steps; for a span of zero, without a part of a step.
fn candidates(program: &Program, span: usize) -> Vec<Program> {
    let steps = &program.steps;
    if span > 0 {
        // From the end: a step depends on earlier ones.
        let starts = (0..=steps.len().saturating_sub(span)).rev();
        return starts
            .map(|start| {
                let kept = steps[..start].iter().chain(&steps[start + span..]);
                Program { steps: kept.cloned().collect() }
            })
            .collect();
    }
    let with = |at: usize, step: Step| {
        let mut steps = steps.clone();
        steps[at] = step;
        Program { steps }
    };
    let mut all = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let Step::Commit { who, acts, look } = step else { continue };
        if look.is_some() {
            all.push(with(at, Step::Commit { who: *who, acts: acts.clone(), look: None }));
        }
        for left_out in (0..acts.len()).filter(|_| acts.len() > 1) {
            let mut acts = acts.clone();
            acts.remove(left_out);
            all.push(with(at, Step::Commit { who: *who, acts, look: look.clone() }));
        }
    }
    all
}
