use futures_util::future::poll_fn;
use tokio::sync::oneshot;

use super::*;

const BORN: Birth = 7;

/// The tickets of one session in one directory.
struct Line {
    alone: SoleContender,
    dir: Path,
    next: u64,
    connection: u64,
    /// Fires the watch on the directory, if there is one.
    watch: Option<oneshot::Sender<()>>,
}

/// How the session found out whether a ticket was the only child.
#[derive(Debug, PartialEq, Eq)]
enum How {
    Knew,
    Looked,
    /// By a listing, although it had expected to need none.
    LookedLate,
}
use How::{Knew, Looked, LookedLate};

impl Line {
    fn new() -> Self {
        let dir = Path::new("/d").expect("valid");
        Self { alone: SoleContender::default(), dir, next: 0, connection: 0, watch: None }
    }

    /// A session that knows that it is the only contender.
    fn settled() -> Self {
        let mut line = Self::new();
        assert_eq!([line.cycle(), line.cycle(), line.cycle()], [Looked, Looked, Knew]);
        line
    }

    fn begin(&mut self) -> Draw {
        let mut draw = self.alone.draw(&self.dir, self.connection).expect("there is room");
        if draw.wants_watch && self.alone.ask(&self.dir, &mut draw) {
            self.answer(BORN);
        }
        draw
    }

    fn answer(&mut self, born: Birth) {
        let (tell, told) = oneshot::channel();
        let coming = told.map(|_told| ()).boxed();
        assert!(self.alone.watched(&self.dir, Some((born, coming))).is_none());
        self.watch = Some(tell);
    }

    /// The ticket gets the next number, and is the only child of a directory of this birth.
    fn end(&mut self, mut draw: Draw, found: Option<Birth>) -> (How, Path) {
        let ticket = self.dir.join(&format!("t-{:010}", self.next)).expect("valid");
        let sequence = Sequence::new(self.next);
        self.next += 1;
        let drawn = Drawn { ticket: &ticket, sequence, connection: self.connection };
        if draw.bet && self.alone.won(&self.dir, &mut draw, &drawn) {
            return (Knew, ticket);
        }
        self.alone.looked(&self.dir, &draw, &drawn, found);
        (if draw.bet { LookedLate } else { Looked }, ticket)
    }

    fn cycle(&mut self) -> How {
        let draw = self.begin();
        let (how, ticket) = self.end(draw, Some(BORN));
        self.alone.deleted(&ticket);
        how
    }

    fn fire(&mut self) {
        let _heard = self.watch.take().expect("it is watched").send(());
    }
}

impl SoleContender {
    fn watched_dirs(&self) -> usize {
        self.dirs.values().filter(|dir| !matches!(dir.watch, Watch::No)).count()
    }
}

#[test]
fn a_session_that_was_alone_twice_knows_it_the_third_time() {
    let mut line = Line::settled();
    for _ in 0..100 {
        assert_eq!(line.cycle(), Knew);
    }
    assert_eq!(line.alone.watched_dirs(), 1);
}

#[test]
fn whatever_may_have_happened_between_is_looked_at() {
    type Between = fn(&mut Line);
    let table: [(&str, Between, How); 6] = [
        ("another's child", |line| line.next += 1, LookedLate),
        ("another connection", |line| line.connection += 1, Looked),
        ("the watch fired", Line::fire, Looked),
        ("it is left to the hub", |line| drop(line.alone.leave(&line.dir.clone())), Looked),
        ("a ticket that stands", |line| assert!(line.begin().bet), Looked),
        ("the session begins anew", |line| line.alone = SoleContender::default(), Looked),
    ];
    for (what, between, how) in table {
        let mut line = Line::settled();
        between(&mut line);
        assert_eq!(line.cycle(), how, "{what}");
    }
}

#[test]
fn what_happens_while_a_ticket_is_drawn_is_looked_at() {
    type Meanwhile = fn(&mut Line);
    let table: [(&str, Meanwhile, How); 5] = [
        ("nothing", |_| {}, Knew),
        ("another's child", |line| line.next += 1, LookedLate),
        ("another connection", |line| line.connection += 1, LookedLate),
        ("the watch fires", Line::fire, LookedLate),
        ("it is left to the hub", |line| drop(line.alone.leave(&line.dir.clone())), LookedLate),
    ];
    for (what, meanwhile, how) in table {
        let mut line = Line::settled();
        let draw = line.begin();
        meanwhile(&mut line);
        assert_eq!(line.end(draw, None).0, how, "{what}");
    }
}

#[test]
fn a_ticket_that_may_stand_proves_nothing() {
    let mut line = Line::settled();
    let draw = line.begin();
    let (how, ticket) = line.end(draw, None);
    assert_eq!(how, Knew);
    // The deletion of another ticket has no effect on this one.
    line.alone.deleted(&line.dir.join("t-0000000001").expect("valid"));
    line.alone.deleted(&line.dir);
    assert_eq!(line.cycle(), Looked);
    line.alone.deleted(&ticket);
    assert_eq!(line.cycle(), Looked);
}

#[test]
fn a_directory_that_is_not_the_one_that_is_watched_is_looked_at() {
    let mut line = Line::settled();
    line.fire();
    // It is unknown which directory the next watch is on.
    for _ in 0..6 {
        let mut draw = line.alone.draw(&line.dir, 0).expect("there is room");
        if draw.wants_watch && line.alone.ask(&line.dir, &mut draw) {
            line.answer(BORN + 1);
        }
        let (how, ticket) = line.end(draw, Some(BORN));
        assert_eq!(how, Looked);
        line.alone.deleted(&ticket);
    }
    // From here on it is known.
    let draw = line.begin();
    let (_, ticket) = line.end(draw, Some(BORN + 1));
    line.alone.deleted(&ticket);
    assert_eq!(line.cycle(), Knew);
}

#[test]
fn a_watch_that_was_asked_for_after_the_look_proves_nothing() {
    let mut line = Line::new();
    line.cycle();
    let unwatched = line.alone.draw(&line.dir, 0).expect("there is room");
    let mut draw = line.alone.draw(&line.dir, 0).expect("there is room");
    assert!(line.alone.ask(&line.dir, &mut draw));
    line.answer(BORN);
    for draw in [draw, unwatched] {
        let ticket = line.end(draw, Some(BORN)).1;
        line.alone.deleted(&ticket);
    }
    assert_eq!(line.cycle(), Looked);
}

#[test]
fn the_end_of_the_numbers_is_looked_at() {
    let mut line = Line::new();
    line.next = LAST - 3;
    assert_eq!([line.cycle(), line.cycle(), line.cycle()], [Looked, Looked, Knew]);
    assert_eq!(line.cycle(), Knew, "the last number");
    line.next = LAST + 1;
    assert_eq!(line.cycle(), Looked);
}

#[test]
fn each_wrong_guess_makes_the_next_guess_wait_longer() {
    let mut line = Line::settled();
    let mut looks = Vec::new();
    for _ in 0..8 {
        line.next += 1;
        assert_eq!(line.cycle(), LookedLate);
        looks.push(1 + std::iter::from_fn(|| (line.cycle() == Looked).then_some(())).count());
    }
    assert_eq!(looks, [4, 6, 10, 18, 34, 64, 64, 64]);
}

#[test]
fn of_very_many_directories_some_are_kept_in_mind() {
    let mut alone = SoleContender::default();
    let dir = |number: usize| Path::new(&format!("/{number:099}")).expect("valid");
    let mut asked = 0;
    for round in 0..3 {
        for number in 0..2_000 {
            if let Some(mut draw) = alone.draw(&dir(number), 0)
                && alone.ask(&dir(number), &mut draw)
            {
                asked += 1;
            }
            assert!(alone.dirs.len() <= MOST, "{round}");
        }
    }
    assert!(asked > 160, "{asked}");

    // Directories that are in use are kept.
    let mut alone = SoleContender::default();
    for number in 0..10_000 {
        assert!(alone.draw(&dir(0), 0).is_some());
        let _draw = alone.draw(&dir(number), 0).is_some();
    }
    assert!(alone.dirs.contains_key(&dir(0)));
}

#[test]
fn directories_are_forgotten_once_in_so_many_tickets_and_their_watches_with_them() {
    let mut alone = SoleContender::default();
    let dir = |number: usize| Path::new(&format!("/{number:09}")).expect("valid");
    for number in 0..MOST {
        let mut draw = alone.draw(&dir(number), 0).expect("there is room");
        assert!(number >= 3 || alone.ask(&dir(number), &mut draw));
    }
    assert_eq!(alone.watched_dirs(), 3);
    assert!(alone.draw(&dir(MOST), 0).is_none(), "all were used since the beginning");
    assert!(alone.draw(&dir(MOST), 0).is_none(), "too few tickets came since then");
    for _ in 2..MOST {
        assert!(alone.draw(&dir(0), 0).is_some());
    }

    assert!(alone.draw(&dir(MOST), 0).is_some(), "most were not used since then");
    assert_eq!((alone.dirs.len(), alone.watched_dirs()), (2, 1));
}

#[test]
fn a_watch_that_has_fired_takes_no_room() {
    let mut alone = SoleContender::default();
    let dir = |number: usize| Path::new(&format!("/{number:09}")).expect("valid");
    for number in 0..2 {
        let mut draw = alone.draw(&dir(number), 0).expect("there is room");
        assert!(alone.ask(&dir(number), &mut draw));
        let fired = poll_fn(|_| std::task::Poll::Ready(())).boxed();
        assert!(alone.watched(&dir(number), Some((BORN, fired))).is_none(), "it is wanted");
    }
    assert_eq!(alone.watched_dirs(), 2);
    assert!(alone.draw(&dir(0), 0).is_some());
    assert_eq!(alone.watched_dirs(), 1);

    // Nor does one that was refused.
    let mut draw = alone.draw(&dir(2), 0).expect("there is room");
    assert!(alone.ask(&dir(2), &mut draw));
    assert_eq!(alone.watched_dirs(), 2);
    assert!(alone.watched(&dir(2), None).is_none());
    assert_eq!(alone.watched_dirs(), 1);
}

#[test]
fn an_unwanted_watch_is_given_back() {
    let mut line = Line::settled();
    let never = || poll_fn(|_| std::task::Poll::Pending).boxed();
    assert!(line.alone.watched(&line.dir, Some((BORN, never()))).is_some(), "there is one");
    assert!(line.alone.leave(&line.dir).is_some());
    assert!(line.alone.leave(&line.dir).is_none());
    assert_eq!(line.alone.watched_dirs(), 0);
    assert!(line.alone.watched(&line.dir, Some((BORN, never()))).is_some(), "none was asked for");
    assert!(line.alone.watched(&line.dir, None).is_none());
    assert_eq!(line.alone.watched_dirs(), 0);
}

#[test]
fn a_watch_that_fires_while_a_ticket_is_drawn_takes_no_room_either() {
    let mut line = Line::settled();
    let draw = line.begin();
    line.fire();
    let (how, _ticket) = line.end(draw, Some(BORN));
    assert_eq!((how, line.alone.watched_dirs()), (LookedLate, 0));
}
