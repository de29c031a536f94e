//! Random programs. Calls must interact, so there are few places and many ways to use them.

use synod_core::random::Random;

use crate::differential::program::{
    Act, Ask, Life, Program, Reach, SESSIONS, Step, TICKET, Verb, Wish,
};

const STEPS: usize = 30;

/// The abilities that all compared stores have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    pub(crate) ttl: bool,
    pub(crate) expiry: bool,
}

/// The program of this seed.
pub(crate) fn program(seed: u64, palette: Palette) -> Program {
    let random = Random::seeded(seed);
    let (tickets, fresh, over) = (Vec::new(), Vec::new(), [false; SESSIONS]);
    let mut writer = Writer { random, palette, tickets, fresh, over };
    Program { steps: (0..STEPS).map(|_| writer.step()).collect() }
}

struct Writer {
    random: Random,
    palette: Palette,
    /// Every ticket that was requested before this step.
    tickets: Vec<String>,
    /// Sequential nodes of the program, whose names are not known yet.
    fresh: Vec<String>,
    over: [bool; SESSIONS],
}

impl Writer {
    fn one_in(&self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn below(&self, n: usize) -> usize {
        usize::try_from(self.random.below(n as u64)).unwrap_or(0)
    }

    fn step(&mut self) -> Step {
        self.tickets.append(&mut self.fresh);
        let who = self.who();
        match self.random.below(100) {
            58..88 => Step::Read { who, ask: self.ask() },
            88..96 => Step::Observe { who, ask: self.observed() },
            96 | 97 if self.over.iter().filter(|over| !**over).count() > 1 => {
                self.over[who] = true;
                if self.palette.expiry && self.one_in(4) {
                    Step::Expire { who }
                } else {
                    Step::Close { who }
                }
            }
            _ => self.commit(who),
        }
    }

    /// Usually a session that is alive.
    fn who(&self) -> usize {
        let who = self.below(SESSIONS);
        let living = (0..SESSIONS).map(|step| (who + step) % SESSIONS).find(|who| !self.over[*who]);
        living.filter(|_| !self.one_in(10)).unwrap_or(who)
    }

    fn commit(&mut self, who: usize) -> Step {
        let count = if self.one_in(2) { 1 } else { 1 + self.below(6) };
        let mut acts: Vec<Act> = Vec::new();
        for _ in 0..count {
            let mut act = self.act();
            // Usually transactions that no store refuses before sending: one write per path, and
            // checks first.
            for _ in 0..4 {
                if acts.iter().any(|earlier| earlier.place == act.place) {
                    act = self.act();
                }
            }
            acts.push(act);
        }
        let look = self.one_in(4).then(|| self.ask());
        Step::Commit { who, acts, look }
    }

    fn act(&mut self) -> Act {
        // Few values, so that the same data, and empty data, is written repeatedly.
        let data = self.random.below(5);
        let (place, verb) = match self.random.below(20) {
            0..8 => {
                let mut place = self.place();
                if self.tickets.contains(&place) {
                    // Only a store that appends a number to the name may create it.
                    place.push_str("/a");
                }
                let life = self.life();
                return self.made(place, data, life);
            }
            8..11 => {
                let number = self.tickets.len() + self.fresh.len();
                let place = format!("{}{TICKET}{number:03}-", self.dir());
                self.fresh.push(place.clone());
                let life = match self.random.below(20) {
                    0..10 => Life::Session,
                    10 => Life::Container,
                    _ => Life::Persistent,
                };
                (place, Verb::Draw { data, life })
            }
            11..14 => (self.place(), Verb::Set { data, wish: self.wish(40) }),
            14..18 => (self.place(), Verb::Delete { wish: self.wish(40) }),
            _ => (self.place(), Verb::Check { wish: self.wish(3) }),
        };
        Act { place, verb }
    }

    /// No node is ever created below a node with a TTL: stores may differ in that.
    fn made(&self, place: String, data: u64, life: Life) -> Act {
        let (place, life) = match life {
            Life::Hour => (format!("{}t", self.dir()), life),
            _ => (place, life),
        };
        // A container must have no data; with data, the create is refused.
        let data = if life == Life::Container && !self.one_in(20) { 0 } else { data };
        Act { place, verb: Verb::Create { data, life } }
    }

    fn life(&self) -> Life {
        match self.random.below(12) {
            0..7 => Life::Persistent,
            7..10 => Life::Session,
            10 => Life::Container,
            _ if self.palette.ttl => Life::Hour,
            _ => Life::Persistent,
        }
    }

    fn wish(&self, absent_in: u64) -> Wish {
        if self.one_in(absent_in) {
            return Wish::Absent;
        }
        match self.random.below(12) {
            0..5 => Wish::Any,
            5..9 => Wish::Known,
            9 | 10 => Wish::Stale,
            _ => Wish::Never,
        }
    }

    /// A place that is likely to be used again.
    fn place(&self) -> String {
        if !self.tickets.is_empty() && self.one_in(5) {
            let ticket = self.tickets[self.below(self.tickets.len())].clone();
            return if self.one_in(4) { format!("{ticket}/a") } else { ticket };
        }
        if self.one_in(25) {
            return format!("{}t", self.dir());
        }
        format!("{}{}", self.dir(), self.pick(&["a", "a", "b", "a-", "é"]))
    }

    /// The start of a path: a directory with its slash, or nothing.
    fn dir(&self) -> String {
        let dir = self.pick(&["", "", "a/", "a/", "b/", "a/b/", "a/a/", "a-/"]);
        dir.to_owned()
    }

    fn ask(&self) -> Ask {
        let place = match self.random.below(3) {
            0 => self.place(),
            _ => self.dir().trim_end_matches('/').to_owned(),
        };
        let reach = match self.random.below(14) {
            0..4 => Reach::Node,
            4..7 => Reach::Children { prefix: "" },
            7 => Reach::Children { prefix: self.pick(&["a", "s", "s0", "é", "x"]) },
            8..10 => Reach::Subtree,
            10 => Reach::Oldest(self.below(4)),
            11 => Reach::Newest(self.below(4)),
            _ if self.tickets.is_empty() => Reach::Newest(1),
            _ => return self.before(),
        };
        Ask { place, reach, names_only: self.one_in(4), local: self.one_in(3) }
    }

    /// An observation, usually of a place that changes.
    fn observed(&self) -> Ask {
        let ask = self.ask();
        match self.random.below(3) {
            0 => Ask { place: self.place(), reach: Reach::Node, ..ask },
            _ => ask,
        }
    }

    /// A query of the tickets before a ticket, if there is one.
    fn before(&self) -> Ask {
        let ticket = self.tickets[self.below(self.tickets.len())].clone();
        let dir = ticket.rsplit_once('/').map_or("", |(dir, _)| dir);
        let (names_only, local) = (self.one_in(2), self.one_in(3));
        let place = dir.to_owned();
        Ask { place, reach: Reach::NewestBefore(self.below(3), ticket), names_only, local }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_program_and_another_seed_another() {
        let palette = Palette { ttl: true, expiry: true };
        assert_eq!(program(7, palette), program(7, palette));
        assert_ne!(program(7, palette), program(8, palette));
        assert_eq!(program(7, palette).steps.len(), STEPS);
    }
}
