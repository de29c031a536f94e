//! [`World`]: the servers of one ensemble, their common log, and their sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use synod_conformance::harness::Link;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::judge::{Draft, Identity};
use crate::protocol::{Request, event};
use crate::script::Script;
use crate::tree::{Entry, Stat, Tree, Write};
use crate::watches::{Line, Watches};

/// A message on a connection.
#[derive(Debug)]
pub(crate) enum Out {
    /// Bytes, when they were ready, and how long they are delayed.
    Bytes(Instant, Duration, Vec<u8>),
    Close,
}

/// One connection, as its server sees it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) out: mpsc::UnboundedSender<Out>,
    pub(crate) session: i64,
    pub(crate) identities: Vec<Identity>,
    pub(crate) mute: bool,
    /// Events that are held back, if they are.
    pub(crate) held: Option<Vec<Vec<u8>>>,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that may be wrong with it")]
pub(crate) struct Server {
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    pub(crate) conns: BTreeMap<Line, Conn>,
    /// The number of applied entries of the log.
    applied: usize,
    /// The stats that the last transaction returned for its writes.
    pub(crate) shown: Vec<Option<Stat>>,
    /// The sessions with heartbeats since its last report to the leader.
    touched: BTreeSet<i64>,
    /// The server applies only the transactions that it must.
    pub(crate) lags: bool,
    /// The server has lost the leader, and has not noticed.
    pub(crate) parted: bool,
    /// The server accepts no connection.
    pub(crate) down: bool,
    /// The longest time to live that it grants.
    pub(crate) longest: Duration,
    /// The operation codes that it does not know.
    pub(crate) unknown: BTreeSet<i32>,
    /// Its nodes may have a time to live.
    pub(crate) extended: bool,
    /// Each create in a transaction of several returns its stat: servers before 3.9 do not return
    /// it (ZOOKEEPER-4026).
    pub(crate) shows_births: bool,
    /// Events have the number of their transaction, as those of 3.9 do (ZOOKEEPER-4655).
    pub(crate) numbers_events: bool,
    /// A client that has a session gets another one, as at servers of other makers.
    pub(crate) replaces_sessions: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) password: [u8; 16],
    pub(crate) timeout: Duration,
    /// When the leader will end it.
    pub(crate) deadline: Instant,
    /// The server that it is connected to.
    pub(crate) server: usize,
}

#[derive(Debug)]
pub(crate) struct World {
    began: Instant,
    pub(crate) tick: Duration,
    pub(crate) servers: Vec<Server>,
    pub(crate) leader: usize,
    pub(crate) sessions: BTreeMap<i64, Session>,
    /// When each session was ended.
    pub(crate) ended: BTreeMap<i64, Instant>,
    pub(crate) log: Vec<Entry>,
    pub(crate) script: Script,
    pub(crate) links: BTreeMap<i64, Link>,
    /// The number of requests that arrived, of all kinds.
    pub(crate) requests: usize,
    /// The number of heartbeats that were answered.
    pub(crate) signs: usize,
    /// Empty containers and expired nodes are collected.
    pub(crate) collects: bool,
    next: u64,
}

impl Server {
    /// Answers as servers of this version do.
    pub(crate) fn follow(&mut self, version: &str) {
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        let is_newer = (numbers.next(), numbers.next()) >= (Some(3), Some(9));
        self.shows_births = is_newer;
        self.numbers_events = is_newer;
        self.watches.several_modes = is_newer;
    }
}

impl World {
    pub(crate) fn new(servers: usize, tick: Duration) -> Self {
        let server = |_| Server {
            tree: Tree::new(),
            watches: Watches::default(),
            conns: BTreeMap::new(),
            applied: 0,
            shown: Vec::new(),
            touched: BTreeSet::new(),
            lags: false,
            parted: false,
            down: false,
            longest: tick * 600,
            unknown: BTreeSet::new(),
            extended: true,
            shows_births: false,
            numbers_events: false,
            replaces_sessions: false,
        };
        Self {
            began: Instant::now(),
            tick,
            servers: (0..servers).map(server).collect(),
            leader: 0,
            sessions: BTreeMap::new(),
            ended: BTreeMap::new(),
            log: Vec::new(),
            script: Script::default(),
            links: BTreeMap::new(),
            requests: 0,
            signs: 0,
            collects: true,
            next: 1,
        }
    }

    /// A number that was not returned before.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The servers' time in milliseconds.
    pub(crate) fn time(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns `true` if a server can reach the leader.
    pub(crate) fn agrees(&self, server: usize) -> bool {
        let this = &self.servers[server];
        let leader = &self.servers[self.leader];
        !this.down && !leader.down && (server == self.leader || !this.parted)
    }

    /// Commits a transaction: when this returns, every server that keeps up has applied it, and so
    /// has the leader.
    pub(crate) fn commit(&mut self, session: i64, writes: Vec<Write>, closes: bool) -> i64 {
        let zxid = self.log.last().map_or(0, |entry| entry.zxid) + 1;
        self.log.push(Entry { zxid, time: self.time(), session, writes, closes });
        for server in 0..self.servers.len() {
            // The leader judges the next transaction by its own tree, so it always has this one.
            if server == self.leader || (self.agrees(server) && !self.servers[server].lags) {
                self.catch_up(server);
            }
        }
        zxid
    }

    /// Lets the ids of transactions jump, as they do with each new leader.
    pub(crate) fn jump(&mut self) {
        let zxid = self.log.last().map_or(0, |entry| entry.zxid);
        let entry = Entry {
            zxid: ((zxid >> 32) + 1) << 32,
            time: self.time(),
            session: 0,
            writes: Vec::new(),
            closes: false,
        };
        self.log.push(entry);
        for server in 0..self.servers.len() {
            if self.agrees(server) {
                self.catch_up(server);
            }
        }
    }

    /// Makes a server apply everything that was committed.
    pub(crate) fn catch_up(&mut self, server: usize) {
        let this = &mut self.servers[server];
        for entry in &self.log[this.applied..] {
            this.shown.clear();
            for write in &entry.writes {
                this.tree.apply(entry.zxid, entry.time, write);
                let path = match write {
                    Write::Create { path, .. } | Write::Set { path, .. } => Some(path),
                    Write::Delete { .. } => None,
                };
                let node = path.and_then(|path| this.tree.nodes.get(path));
                this.shown.push(node.map(crate::tree::Node::stat));
                let number = if this.numbers_events { entry.zxid } else { -1 };
                for (lines, kind, path) in this.watches.hear(write) {
                    for line in lines {
                        if let Some(conn) = this.conns.get_mut(&line) {
                            conn.tell(event(kind, &path, number));
                        }
                    }
                }
            }
            this.tree.zxid = entry.zxid;
            if entry.closes {
                this.close_session(entry.session);
            }
        }
        this.applied = self.log.len();
    }

    /// Writes as another client. Returns the error of the first request that is refused.
    pub(crate) fn write(&mut self, requests: &[Request]) -> Result<i64, i32> {
        let (writes, _) = self.judge(self.leader, 0, &[], requests).map_err(|(_, error)| error)?;
        Ok(self.commit(0, writes, false))
    }

    /// The leader's decision about the operations of one transaction: the changes, and the
    /// operation that caused each; or the first operation that is refused, and why.
    pub(crate) fn judge(
        &self,
        server: usize,
        session: i64,
        identities: &[Identity],
        requests: &[Request],
    ) -> Result<(Vec<Write>, Vec<bool>), (usize, i32)> {
        let tree = &self.servers[self.leader].tree;
        let extended = self.servers[server].extended;
        let mut draft = Draft::new(tree, session, identities, extended);
        let (mut writes, mut changes) = (Vec::new(), Vec::new());
        for (index, request) in requests.iter().enumerate() {
            let decided = draft.judge(request).map_err(|error| (index, error))?;
            changes.push(decided.is_some());
            writes.extend(decided);
        }
        Ok((writes, changes))
    }

    /// Opens a session.
    pub(crate) fn open(&mut self, server: usize, timeout: Duration) -> (i64, [u8; 16]) {
        let number = self.number().cast_signed();
        let id = 0x0100_0000_0000_0000 + number;
        let mut password = [7; 16];
        password[..8].copy_from_slice(&id.to_be_bytes());
        let deadline = self.deadline(timeout);
        self.sessions.insert(id, Session { password, timeout, deadline, server });
        self.commit(id, Vec::new(), false);
        self.catch_up(server);
        (id, password)
    }

    /// The leader checks its clock once a tick, and never expires early.
    fn deadline(&self, timeout: Duration) -> Instant {
        let end = Instant::now() + timeout;
        let ticks = end.duration_since(self.began).as_nanos() / self.tick.as_nanos() + 1;
        self.began + self.tick * u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// A server received a heartbeat of a session. The leader knows immediately, other servers
    /// report it when the leader pings them.
    pub(crate) fn touch(&mut self, server: usize, session: i64) {
        if server == self.leader {
            self.renew(session);
        } else {
            self.servers[server].touched.insert(session);
        }
    }

    pub(crate) fn renew(&mut self, session: i64) {
        let Some(timeout) = self.sessions.get(&session).map(|session| session.timeout) else {
            return;
        };
        let deadline = self.deadline(timeout);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.deadline = deadline;
        }
    }

    /// Ends a session: its ephemeral nodes are deleted in one transaction.
    pub(crate) fn end(&mut self, session: i64) {
        if self.sessions.remove(&session).is_none() {
            return;
        }
        self.ended.insert(session, Instant::now());
        let owned = self.servers[self.leader].tree.owned(session);
        let writes = owned.into_iter().map(|path| Write::Delete { path }).collect();
        self.commit(session, writes, true);
    }

    /// The sessions that own no node below a directory: two processes would hold a lock at the same
    /// time if an operator ended the session of its holder.
    pub(crate) fn without_tickets(&self, dir: &str) -> Vec<i64> {
        let tree = &self.servers[self.leader].tree;
        let holds = |session: i64| tree.owned(session).iter().any(|path| path.starts_with(dir));
        self.sessions.keys().copied().filter(|session| !holds(*session)).collect()
    }

    /// The periodic work, twice a tick: the leader collects the reports of the others, expires
    /// sessions, and collects containers.
    pub(crate) fn beat(&mut self) {
        for server in 0..self.servers.len() {
            if self.agrees(server) {
                for session in std::mem::take(&mut self.servers[server].touched) {
                    self.renew(session);
                }
            }
        }
        let now = Instant::now();
        let over = self.sessions.iter().filter(|(_, session)| session.deadline <= now);
        for session in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(session);
        }
        if self.collects {
            for path in self.servers[self.leader].tree.collectable(self.time()) {
                self.commit(0, vec![Write::Delete { path }], false);
            }
        }
    }

    /// Separates a server from the leader; the heartbeats that it has not reported yet are lost.
    pub(crate) fn part(&mut self, server: usize) {
        self.servers[server].parted = true;
        self.servers[server].touched.clear();
    }

    /// Makes another server the leader if the leader is down and there is one.
    pub(crate) fn elect(&mut self) {
        let can = |server: &usize| !self.servers[*server].down && !self.servers[*server].parted;
        if self.servers[self.leader].down
            && let Some(next) = (0..self.servers.len()).find(can)
        {
            self.lead(next);
        }
    }

    /// Makes another server the leader: every session has its full time again.
    pub(crate) fn lead(&mut self, server: usize) {
        self.leader = server;
        self.servers[server].parted = false;
        self.catch_up(server);
        self.jump();
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.renew(session);
        }
    }

    pub(crate) fn link(&self, session: i64) -> Link {
        self.links.get(&session).copied().unwrap_or(Link::Open)
    }
}

impl Server {
    pub(crate) fn send(&mut self, line: Line, delay: Duration, bytes: Vec<u8>) {
        if let Some(conn) = self.conns.get(&line)
            && !conn.mute
        {
            let _gone = conn.out.send(Out::Bytes(Instant::now(), delay, bytes)).is_err();
        }
    }

    /// Closes a connection after sending what is queued.
    pub(crate) fn close(&mut self, line: Line) {
        if let Some(conn) = self.conns.remove(&line) {
            let _gone = conn.out.send(Out::Close).is_err();
        }
        self.watches.forget(line);
    }

    pub(crate) fn close_all(&mut self) {
        for line in self.conns.keys().copied().collect::<Vec<_>>() {
            self.close(line);
        }
    }

    fn close_session(&mut self, session: i64) {
        let own = self.conns.iter().filter(|(_, conn)| conn.session == session);
        for line in own.map(|(line, _)| *line).collect::<Vec<_>>() {
            self.close(line);
        }
    }
}

impl Conn {
    /// Sends an event, or keeps it if events are held back.
    pub(crate) fn tell(&mut self, event: Vec<u8>) {
        match &mut self.held {
            Some(held) => held.push(event),
            None if self.mute => {}
            None => {
                let out = Out::Bytes(Instant::now(), Duration::ZERO, event);
                let _gone = self.out.send(out).is_err();
            }
        }
    }
}
