//! [`Plan`]: what goes wrong, by chance and by script, and what did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use synod_core::path::Path;
use synod_core::random::mix;

use crate::choice::Actor;
use crate::fault::script::{Asked, Cue, Verb};
use crate::fault::site::{Choice, Site, Spot};

/// How often things go wrong by chance, and how badly. By default, never.
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
    /// Of a thousand calls that come to a site, how many go wrong there.
    pub rates: BTreeMap<Site, u32>,
    /// The longest that a slow request or a slow reply takes. Most take far less.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// The longest time from the error that a caller gets to its late write. Most come far sooner.
    #[serde(with = "humantime_serde")]
    pub lateness: Duration,
}

impl Faults {
    /// Nothing goes wrong by chance. Where a script asks for it, a delay takes a second.
    pub fn none() -> Self {
        let second = Duration::from_secs(1);
        Self { rates: BTreeMap::new(), delay: second, lateness: second }
    }

    /// This goes wrong for so many of a thousand calls.
    pub fn with(mut self, site: Site, permille: u32) -> Self {
        self.rates.insert(site, permille);
        self
    }

    /// The longest that a slow request or a slow reply takes.
    pub fn delayed_up_to(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The longest time from the error that a caller gets to its late write.
    pub fn late_up_to(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    /// Some of these faults, the others switched off, by a seed: so that what is rare is not
    /// drowned by what is frequent. Each is off for two seeds of five, and otherwise up to twice as
    /// frequent.
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

/// What goes wrong, and a log of what did. Clones are the same plan, so one can be shared by all
/// the stores of a test.
#[derive(Clone, Debug)]
pub struct Plan(Arc<PlanFaults>);

/// A fault that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fired {
    /// Where it was decided: what [`Choice::without`] takes to switch it off.
    pub spot: Spot,
    /// What was called; of a commit, what its first write is.
    pub verb: Verb,
    /// The path of the call; of a commit, its first.
    pub path: Option<Path>,
    /// How long what is slow or late is.
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
    /// What goes wrong by chance.
    pub fn new(faults: Faults, choice: Choice) -> Self {
        Self(Arc::new(PlanFaults { faults, choice, state: Mutex::default() }))
    }

    /// Only what the script says.
    pub fn scripted(cues: impl IntoIterator<Item = Cue>) -> Self {
        let plan = Self::new(Faults::none(), Choice::never());
        plan.lock().cues.extend(cues);
        plan
    }

    /// Adds to the script, from now on.
    pub fn cue(&self, cue: Cue) {
        self.lock().cues.push(cue);
    }

    /// What fired so far, in order.
    pub fn fired(&self) -> Vec<Fired> {
        self.lock().log.clone()
    }

    /// How many cues still wait for their call. A test that ends with one left has tested
    /// something else.
    pub fn pending(&self) -> usize {
        self.lock().cues.len()
    }

    fn lock(&self) -> MutexGuard<'_, PlanState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a call.
    pub(super) fn decide(&self, actor: Actor, call: &Asked<'_>) -> Course {
        let mut state = self.lock();
        let cues = state.cued(actor, call);
        let mut ask = |site| self.ask(&mut state, site, actor, &cues);

        // Each site is asked each time, so that what is decided at one moves nothing at another.
        let fates = Site::FATES.map(&mut ask);
        let slow = [Site::RequestSlow, Site::ReplySlow].map(&mut ask);

        // A fault that is switched off still takes the place of the faults after it, so that none of them fires
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
    /// Takes the cues out of the script that wait for this call.
    fn cued(&mut self, actor: Actor, call: &Asked<'_>) -> Vec<Cue> {
        self.cues.extract_if(.., |cue| cue.meets(actor, call)).collect()
    }
}

/// A decision that something goes wrong.
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

/// What becomes of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    /// What takes it off its way.
    pub(super) fate: Option<Site>,
    /// How long a late write comes after the error that its caller gets.
    pub(super) lateness: Duration,
    /// How long the request takes.
    pub(super) before: Duration,
    /// How long the reply takes.
    pub(super) after: Duration,
}

impl Course {
    /// Whether nothing at all is done to the call.
    pub(super) fn is_plain(&self) -> bool {
        self.fate.is_none() && self.before.is_zero() && self.after.is_zero()
    }
}
