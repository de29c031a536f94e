//! The planned faults, random or scripted, and a log of the fired ones: [`Plan`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use synod_core::path::Path;
use synod_core::random::mix;

use crate::choice::Actor;
use crate::fault::script::{Asked, Cue, Verb};
use crate::fault::site::{Choice, Site, Spot};

/// The rates and sizes of random faults. By default, none.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use synod_testkit::fault::{Faults, Site};
///
/// let faults = Faults::none()
///     .with(Site::ReplyLost, 20)
///     .with(Site::RequestSlow, 100)
///     .delayed_up_to(Duration::from_millis(500));
/// let written = r#"{ "rates": { "reply_lost": 20, "request_slow": 100 }, "delay": "500ms" }"#;
/// assert_eq!(serde_json::from_str::<Faults>(written)?, faults);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Faults {
    /// The number of calls at each site that fail, of a thousand.
    pub rates: BTreeMap<Site, u32>,
    /// The maximum duration of a slow request or a slow reply. Most take far less.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// The maximum time from the error of a call to its late write. Most are far shorter.
    #[serde(with = "humantime_serde")]
    pub lateness: Duration,
}

impl Faults {
    /// Creates a value without random faults. A delay that a script requests takes a second.
    pub fn none() -> Self {
        let second = Duration::from_secs(1);
        Self { rates: BTreeMap::new(), delay: second, lateness: second }
    }

    /// Sets the number of calls that fail at a site, of a thousand.
    pub fn with(mut self, site: Site, permille: u32) -> Self {
        self.rates.insert(site, permille);
        self
    }

    /// Sets the maximum duration of a slow request or a slow reply.
    pub fn delayed_up_to(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the maximum time from the error of a call to its late write.
    pub fn late_up_to(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    /// Selects some of these faults by a seed, and switches the others off, so that rare faults are
    /// not hidden by frequent ones. Each is off for two seeds out of five, and otherwise up to
    /// twice as frequent.
    pub fn swarm(mut self, seed: u64) -> Self {
        for (site, permille) in &mut self.rates {
            let drawn = mix(mix(seed) ^ mix(*site as u64));
            let scale = u32::try_from(drawn / 5 % 2_001).unwrap_or(1_000);
            let on = drawn % 5 >= 2;
            *permille = if on { (permille.saturating_mul(scale) / 1_000).min(1_000) } else { 0 };
        }
        self
    }

    fn longest(&self, site: Site) -> Option<Duration> {
        match site {
            Site::AppliedLate => Some(self.lateness),
            Site::RequestSlow | Site::ReplySlow => Some(self.delay),
            _ => None,
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

/// The planned faults, and a log of those that fired. Clones share the plan, so that all stores of
/// a test can use one.
#[derive(Clone, Debug)]
pub struct Plan(Arc<PlanFaults>);

/// A fault that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fired {
    /// The spot of the decision: [`Choice::without`] switches it off.
    pub spot: Spot,
    /// The verb of the call; of a commit, the kind of its first write.
    pub verb: Verb,
    /// The path of the call; of a commit, its first.
    pub path: Option<Path>,
    /// The duration of the delay.
    pub lasting: Option<Duration>,
}

#[derive(Debug)]
struct PlanFaults {
    faults: Faults,
    choice: Choice,
    state: Mutex<PlanState>,
}

#[derive(Debug, Default)]
struct PlanState {
    uses: BTreeMap<(Site, Actor), u64>,
    cues: Vec<Cue>,
    log: Vec<Fired>,
}

impl Plan {
    /// Creates a plan of random faults.
    pub fn new(faults: Faults, choice: Choice) -> Self {
        Self(Arc::new(PlanFaults { faults, choice, state: Mutex::default() }))
    }

    /// Creates a plan with only the faults of the script.
    pub fn scripted(cues: impl IntoIterator<Item = Cue>) -> Self {
        let plan = Self::new(Faults::none(), Choice::never());
        plan.lock().cues.extend(cues);
        plan
    }

    /// Adds to the script, from now on.
    pub fn cue(&self, cue: Cue) {
        self.lock().cues.push(cue);
    }

    /// Returns the faults that fired so far, in order.
    pub fn fired(&self) -> Vec<Fired> {
        self.lock().log.clone()
    }

    /// Returns the number of cues that have not fired. A test that ends with a pending cue has not
    /// tested its fault.
    pub fn pending(&self) -> usize {
        self.lock().cues.len()
    }

    fn lock(&self) -> MutexGuard<'_, PlanState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides the course of a call.
    pub(super) fn decide(&self, actor: Actor, call: &Asked<'_>) -> Course {
        let mut state = self.lock();
        let cues = state.cued(actor, call);
        let mut ask = |site| self.ask(&mut state, site, actor, &cues);

        // Each site is evaluated each time, so that a decision at one changes no decision at
        // another.
        let fates = Site::FATES.map(&mut ask);
        let slow = [Site::RequestSlow, Site::ReplySlow].map(&mut ask);

        // A disabled fault still takes the place of the faults after it, so that none of them fires
        // instead.
        let fate = fates.into_iter().flatten().find(|hit| call.takes(hit.spot.site));
        let [fate, before, after] = [fate, slow[0], slow[1]].map(|hit| {
            let hit = hit.filter(|hit| !self.0.choice.is_off(hit.spot))?;
            state.log.push(hit.fired(call));
            Some(hit)
        });
        let lasting = |hit: Option<Hit>| hit.and_then(|hit| hit.lasting).unwrap_or_default();
        Course {
            fate: fate.map(|hit| hit.spot.site),
            lateness: lasting(fate),
            before: lasting(before),
            after: lasting(after),
        }
    }

    fn ask(&self, state: &mut PlanState, site: Site, actor: Actor, cues: &[Cue]) -> Option<Hit> {
        let PlanFaults { faults, choice, .. } = &*self.0;
        let n = state.uses.entry((site, actor)).or_default();
        *n += 1;
        let spot = Spot { site, actor, n: *n };
        let longest = faults.longest(site);
        if let Some(cue) = cues.iter().find(|cue| cue.site == site) {
            return Some(Hit { spot, lasting: longest.map(|most| cue.lasting.unwrap_or(most)) });
        }
        let permille = faults.rates.get(&site).copied().unwrap_or_default();
        let millis = |most: Duration| u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        let drawn = |most| Duration::from_millis(choice.size(spot, millis(most)));
        choice.fires(spot, permille).then(|| Hit { spot, lasting: longest.map(drawn) })
    }
}

impl PlanState {
    /// Removes the cues that match this call from the script.
    fn cued(&mut self, actor: Actor, call: &Asked<'_>) -> Vec<Cue> {
        self.cues.extract_if(.., |cue| cue.count_match(actor, call)).collect()
    }
}

/// A decision that a fault fires.
#[derive(Clone, Copy, Debug)]
struct Hit {
    spot: Spot,
    lasting: Option<Duration>,
}

impl Hit {
    fn fired(self, call: &Asked<'_>) -> Fired {
        let (verb, path) = (call.telling_verb(), call.path().cloned());
        Fired { spot: self.spot, verb, path, lasting: self.lasting }
    }
}

/// The course of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    /// The fault that diverts it.
    pub(super) fate: Option<Site>,
    /// The time from the error of its caller to the late write.
    pub(super) lateness: Duration,
    /// The duration of the request.
    pub(super) before: Duration,
    /// The duration of the reply.
    pub(super) after: Duration,
}

impl Course {
    /// Returns `true` if the call is not disturbed.
    pub(super) fn is_plain(&self) -> bool {
        self.fate.is_none() && self.before.is_zero() && self.after.is_zero()
    }
}
