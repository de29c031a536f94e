use futures_util::future::poll_fn;
use tokio::sync::oneshot;

use super::*;

const CZXID: Czxid = 7;

/// One session that creates tickets in one directory.
struct Contender {
    state: SoleContender,
    dir: Path,
    next: u64,
    connection: u64,
    /// Fires the watch on the directory, if there is one.
    watch: Option<oneshot::Sender<()>>,
}

/// The way in which the session learns that a ticket was the only child.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Known,
    Listed,
    /// A listing that the session had expected not to need.
    ListedLate,
}
use Source::{Known, Listed, ListedLate};

impl Contender {
    fn new() -> Self {
        let dir = Path::new("/d").expect("valid");
        Self { state: SoleContender::default(), dir, next: 0, connection: 0, watch: None }
    }

    /// Creates a session that is known to be the only contender.
    fn settled() -> Self {
        let mut contender = Self::new();
        assert_eq!(
            [contender.cycle(), contender.cycle(), contender.cycle()],
            [Listed, Listed, Known]
        );
        contender
    }

    fn before_create(&mut self) -> PendingCreate {
        let mut create =
            self.state.before_create(&self.dir, self.connection).expect("there is room");
        if create.wants_watch && self.state.request_watch(&self.dir, &mut create) {
            self.answer(CZXID);
        }
        create
    }

    fn answer(&mut self, czxid: Czxid) {
        let (fire, fired) = oneshot::channel();
        let fired = fired.map(|_event| ()).boxed();
        assert!(self.state.watch_answered(&self.dir, Some((czxid, fired))).is_none());
        self.watch = Some(fire);
    }

    /// Creates a ticket with the next number. `found` is the czxid of the directory, if the ticket
    /// is the only child.
    fn after_create(&mut self, mut create: PendingCreate, found: Option<Czxid>) -> (Source, Path) {
        let ticket = self.dir.join(&format!("t-{:010}", self.next)).expect("valid");
        let sequence = Sequence::new(self.next);
        self.next += 1;
        let created = CreatedTicket { path: &ticket, sequence, connection: self.connection };
        if create.skips_listing
            && self.state.created(&self.dir, &mut create, &created, Listing::Omitted)
        {
            return (Known, ticket);
        }
        let listing = found.map_or(Listing::Others, Listing::OnlyChild);
        self.state.created(&self.dir, &mut create, &created, listing);
        (if create.skips_listing { ListedLate } else { Listed }, ticket)
    }

    fn cycle(&mut self) -> Source {
        let create = self.before_create();
        let (source, ticket) = self.after_create(create, Some(CZXID));
        self.state.deleted(&ticket);
        source
    }

    fn fire(&mut self) {
        let _delivered = self.watch.take().expect("it is watch_answered").send(());
    }
}

impl SoleContender {
    fn watched_dirs(&self) -> usize {
        self.dirs.values().filter(|dir| !matches!(dir.watch, Watch::None)).count()
    }
}

#[test]
fn a_third_ticket_needs_no_listing_after_two_only_children() {
    let mut contender = Contender::settled();
    for _ in 0..100 {
        assert_eq!(contender.cycle(), Known);
    }
    assert_eq!(contender.state.watched_dirs(), 1);
}

#[test]
fn a_possible_change_between_two_tickets_needs_a_listing() {
    type Between = fn(&mut Contender);
    let table: [(&str, Between, Source); 6] = [
        ("a child of another session", |contender| contender.next += 1, ListedLate),
        ("another connection", |contender| contender.connection += 1, Listed),
        ("the watch fired", Contender::fire, Listed),
        (
            "it is left to the registry",
            |contender| drop(contender.state.release_watch(&contender.dir.clone())),
            Listed,
        ),
        (
            "a ticket that still exists",
            |contender| assert!(contender.before_create().skips_listing),
            Listed,
        ),
        ("a new session", |contender| contender.state = SoleContender::default(), Listed),
    ];
    for (what, between, source) in table {
        let mut contender = Contender::settled();
        between(&mut contender);
        assert_eq!(contender.cycle(), source, "{what}");
    }
}

#[test]
fn a_possible_change_during_a_create_needs_a_listing() {
    type Meanwhile = fn(&mut Contender);
    let table: [(&str, Meanwhile, Source); 5] = [
        ("nothing", |_| {}, Known),
        ("a child of another session", |contender| contender.next += 1, ListedLate),
        ("another connection", |contender| contender.connection += 1, ListedLate),
        ("the watch fires", Contender::fire, ListedLate),
        (
            "it is left to the registry",
            |contender| drop(contender.state.release_watch(&contender.dir.clone())),
            ListedLate,
        ),
    ];
    for (what, meanwhile, source) in table {
        let mut contender = Contender::settled();
        let create = contender.before_create();
        meanwhile(&mut contender);
        assert_eq!(contender.after_create(create, None).0, source, "{what}");
    }
}

#[test]
fn a_ticket_that_may_still_exist_proves_nothing() {
    let mut contender = Contender::settled();
    let create = contender.before_create();
    let (source, ticket) = contender.after_create(create, None);
    assert_eq!(source, Known);
    // The deletion of another ticket has no effect on this one.
    contender.state.deleted(&contender.dir.join("t-0000000001").expect("valid"));
    contender.state.deleted(&contender.dir);
    assert_eq!(contender.cycle(), Listed);
    contender.state.deleted(&ticket);
    assert_eq!(contender.cycle(), Listed);
}

#[test]
fn a_directory_that_is_not_the_watched_one_needs_a_listing() {
    let mut contender = Contender::settled();
    contender.fire();
    // The next watch may be on another directory.
    for _ in 0..6 {
        let mut create = contender.state.before_create(&contender.dir, 0).expect("there is room");
        if create.wants_watch && contender.state.request_watch(&contender.dir, &mut create) {
            contender.answer(CZXID + 1);
        }
        let (source, ticket) = contender.after_create(create, Some(CZXID));
        assert_eq!(source, Listed);
        contender.state.deleted(&ticket);
    }
    // From now on the directory is known.
    let create = contender.before_create();
    let (_, ticket) = contender.after_create(create, Some(CZXID + 1));
    contender.state.deleted(&ticket);
    assert_eq!(contender.cycle(), Known);
}

#[test]
fn a_watch_that_was_requested_after_the_listing_proves_nothing() {
    let mut contender = Contender::new();
    contender.cycle();
    let unwatched = contender.state.before_create(&contender.dir, 0).expect("there is room");
    let mut create = contender.state.before_create(&contender.dir, 0).expect("there is room");
    assert!(contender.state.request_watch(&contender.dir, &mut create));
    contender.answer(CZXID);
    for create in [create, unwatched] {
        let ticket = contender.after_create(create, Some(CZXID)).1;
        contender.state.deleted(&ticket);
    }
    assert_eq!(contender.cycle(), Listed);
}

#[test]
fn the_end_of_the_numbers_needs_a_listing() {
    let mut contender = Contender::new();
    contender.next = LAST - 3;
    assert_eq!([contender.cycle(), contender.cycle(), contender.cycle()], [Listed, Listed, Known]);
    assert_eq!(contender.cycle(), Known, "the last number");
    contender.next = LAST + 1;
    assert_eq!(contender.cycle(), Listed);
}

#[test]
fn each_wrong_assumption_doubles_the_required_streak() {
    let mut contender = Contender::settled();
    let mut listings = Vec::new();
    for _ in 0..8 {
        contender.next += 1;
        assert_eq!(contender.cycle(), ListedLate);
        listings
            .push(1 + std::iter::from_fn(|| (contender.cycle() == Listed).then_some(())).count());
    }
    assert_eq!(listings, [4, 6, 10, 18, 34, 64, 64, 64]);
}

#[test]
fn some_of_very_many_directories_are_remembered() {
    let mut state = SoleContender::default();
    let dir = |number: usize| Path::new(&format!("/{number:099}")).expect("valid");
    let mut requested = 0;
    for round in 0..3 {
        for number in 0..2_000 {
            if let Some(mut create) = state.before_create(&dir(number), 0)
                && state.request_watch(&dir(number), &mut create)
            {
                requested += 1;
            }
            assert!(state.dirs.len() <= MAX_DIRS, "{round}");
        }
    }
    assert!(requested > 160, "{requested}");

    // Directories that are in use are kept.
    let mut state = SoleContender::default();
    for number in 0..10_000 {
        assert!(state.before_create(&dir(0), 0).is_some());
        let _create = state.before_create(&dir(number), 0).is_some();
    }
    assert!(state.dirs.contains_key(&dir(0)));
}

#[test]
fn unused_directories_are_evicted_with_their_watches() {
    let mut state = SoleContender::default();
    let dir = |number: usize| Path::new(&format!("/{number:09}")).expect("valid");
    for number in 0..MAX_DIRS {
        let mut create = state.before_create(&dir(number), 0).expect("there is room");
        assert!(number >= 3 || state.request_watch(&dir(number), &mut create));
    }
    assert_eq!(state.watched_dirs(), 3);
    assert!(state.before_create(&dir(MAX_DIRS), 0).is_none(), "all were used since the beginning");
    assert!(state.before_create(&dir(MAX_DIRS), 0).is_none(), "too few tickets came since then");
    for _ in 2..MAX_DIRS {
        assert!(state.before_create(&dir(0), 0).is_some());
    }

    assert!(state.before_create(&dir(MAX_DIRS), 0).is_some(), "most were not used since then");
    assert_eq!((state.dirs.len(), state.watched_dirs()), (2, 1));
}

#[test]
fn a_watch_that_has_fired_is_forgotten() {
    let mut state = SoleContender::default();
    let dir = |number: usize| Path::new(&format!("/{number:09}")).expect("valid");
    for number in 0..2 {
        let mut create = state.before_create(&dir(number), 0).expect("there is room");
        assert!(state.request_watch(&dir(number), &mut create));
        let fired = poll_fn(|_| std::task::Poll::Ready(())).boxed();
        assert!(state.watch_answered(&dir(number), Some((CZXID, fired))).is_none(), "it is wanted");
    }
    assert_eq!(state.watched_dirs(), 2);
    assert!(state.before_create(&dir(0), 0).is_some());
    assert_eq!(state.watched_dirs(), 1);

    // A refused watch also counts.
    let mut create = state.before_create(&dir(2), 0).expect("there is room");
    assert!(state.request_watch(&dir(2), &mut create));
    assert_eq!(state.watched_dirs(), 2);
    assert!(state.watch_answered(&dir(2), None).is_none());
    assert_eq!(state.watched_dirs(), 1);
}

#[test]
fn an_unwanted_watch_is_returned() {
    let mut contender = Contender::settled();
    let never = || poll_fn(|_| std::task::Poll::Pending).boxed();
    assert!(
        contender.state.watch_answered(&contender.dir, Some((CZXID, never()))).is_some(),
        "there is one"
    );
    assert!(contender.state.release_watch(&contender.dir).is_some());
    assert!(contender.state.release_watch(&contender.dir).is_none());
    assert_eq!(contender.state.watched_dirs(), 0);
    assert!(
        contender.state.watch_answered(&contender.dir, Some((CZXID, never()))).is_some(),
        "none was requested for"
    );
    assert!(contender.state.watch_answered(&contender.dir, None).is_none());
    assert_eq!(contender.state.watched_dirs(), 0);
}

#[test]
fn a_watch_that_fires_during_a_create_is_forgotten() {
    let mut contender = Contender::settled();
    let create = contender.before_create();
    contender.fire();
    let (source, _ticket) = contender.after_create(create, Some(CZXID));
    assert_eq!((source, contender.state.watched_dirs()), (ListedLate, 0));
}
