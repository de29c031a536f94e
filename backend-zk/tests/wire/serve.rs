//! The sessions and answers of a server.

use std::time::Duration;

use crate::judge::{READ, permits};
use crate::jute::Writer;
use crate::protocol::{Connect, PING, Request, answer, code, event, op, stat};
use crate::script::Deed;
use crate::tree::Stat;
use crate::watches::Line;
use crate::world::World;

/// The result of processing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// The message waits for the leader, and so does every later request.
    Waits,
}

/// The answer to a request: a body, or an error.
type Response = Result<Vec<u8>, i32>;

impl World {
    /// The first message of a connection.
    pub(crate) fn connect(&mut self, server: usize, line: Line, connect: &Connect) -> Taken {
        if self.servers[server].tree.zxid < connect.last_zxid {
            // Its client has seen a later state than this server has.
            self.servers[server].close(line);
            return Taken::Yes;
        }
        if !self.agrees(server) {
            return Taken::Waits;
        }
        let wanted = Duration::from_millis(connect.timeout.try_into().unwrap_or(0));
        let timeout = wanted.clamp(self.tick * 2, self.servers[server].longest);
        let is_new = connect.session == 0 || self.servers[server].replaces_sessions;
        let granted = if is_new {
            Some(self.open(server, timeout))
        } else {
            let session = self.sessions.get_mut(&connect.session);
            let session = session.filter(|session| session.password[..] == connect.password);
            session.map(|session| {
                (session.timeout, session.server) = (timeout, server);
                (connect.session, session.password)
            })
        };
        let Some((id, password)) = granted else {
            self.servers[server].send(line, Duration::ZERO, Connect::answer(0, 0, &[0; 16]));
            self.servers[server].close(line);
            return Taken::Yes;
        };
        self.renew(id);
        if let Some(conn) = self.servers[server].conns.get_mut(&line) {
            conn.session = id;
        }
        let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let granted = Connect::answer(id, timeout, &password);
        self.servers[server].send(line, Duration::ZERO, granted);
        Taken::Yes
    }

    /// A request of a client that is connected.
    pub(crate) fn take(
        &mut self,
        server: usize,
        line: Line,
        (xid, request): &(i32, Request),
        deed: &Deed,
    ) -> Taken {
        let Some(conn) = self.servers[server].conns.get(&line) else { return Taken::Yes };
        let session = conn.session;
        self.requests += 1;
        if !self.agrees(server) && (request.is_write() || matches!(request, Request::Sync { .. })) {
            return Taken::Waits;
        }
        match deed {
            Deed::CloseBefore => {
                self.servers[server].close(line);
                return Taken::Yes;
            }
            Deed::Meanwhile(writes) => {
                let _refused = self.write(writes).is_err();
            }
            _ => {}
        }
        self.touch(server, session);
        let sign = matches!(request, Request::Sync { .. } | Request::Ping);
        let root = matches!(request, Request::Exists { path, .. } if path == "/");
        self.signs += usize::from(sign || root);
        let moved = self.sessions.get(&session).is_some_and(|session| session.server != server);
        if moved && request.is_write() {
            // An error of the connection: it is torn down.
            self.servers[server].close(line);
            return Taken::Yes;
        }
        let response = match deed {
            Deed::Refuse(error) => Err(*error),
            Deed::Deny(error) => self.serve(server, line, session, request).and(Err(*error)),
            _ => self.serve(server, line, session, request),
        };
        self.reply(server, line, (*xid, request), &response, deed);
        if let Deed::Afterwards(writes) = deed {
            let _refused = self.write(writes).is_err();
        }
        Taken::Yes
    }

    fn reply(
        &mut self,
        server: usize,
        line: Line,
        (xid, request): (i32, &Request),
        response: &Response,
        deed: &Deed,
    ) {
        let this = &mut self.servers[server];
        let zxid = if *request == Request::Ping { this.tree.zxid.max(0) } else { this.tree.zxid };
        let xid = if *request == Request::Ping { PING } else { xid };
        let message = answer(xid, zxid, response);
        let now = Duration::ZERO;
        match deed {
            Deed::CloseAfter => this.close(line),
            Deed::Late(delay) => this.send(line, *delay, message),
            Deed::Mute => {
                if let Some(conn) = this.conns.get_mut(&line) {
                    conn.mute = true;
                }
            }
            Deed::Twice => {
                this.send(line, now, message.clone());
                this.send(line, now, message);
            }
            Deed::Misnumber => {
                this.send(line, now, answer(xid.wrapping_add(1_000), zxid, response));
            }
            Deed::Garble => {
                // The body is malformed, not the result: its length is one of billions, and there
                // is nothing.
                let result = response.as_ref().err().copied().unwrap_or(0);
                let head = Writer::default().int(xid).long(zxid).int(result);
                this.send(line, now, head.raw(&[0x7F, 0xFF, 0xFF, 0xFF, 0xFF]).frame());
            }
            Deed::Dribble(pause) => {
                let bytes = message.iter().zip(0..);
                bytes.for_each(|(byte, number)| this.send(line, *pause * number, vec![*byte]));
            }
            Deed::Halve => {
                this.send(line, now, message[..message.len() / 2].to_vec());
                this.close(line);
            }
            _ => this.send(line, now, message),
        }
        let last = [Err(code::SESSION_EXPIRED), Err(code::AUTH_FAILED)];
        if matches!(request, Request::Close) || last.contains(response) {
            this.close(line);
        }
    }

    fn serve(&mut self, server: usize, line: Line, session: i64, request: &Request) -> Response {
        if self.servers[server].unknown.contains(&request.op()) {
            return Err(code::UNIMPLEMENTED);
        }
        if request.is_write() && session != 0 && !self.sessions.contains_key(&session) {
            return Err(code::SESSION_EXPIRED);
        }
        match request {
            Request::Create { .. } | Request::Delete { .. } | Request::SetData { .. } => {
                self.one(server, line, session, request)
            }
            Request::Multi(all) => Ok(self.several(server, line, session, all)),
            Request::Close => {
                // Its own connection is closed after the answer.
                let own = self.servers[server].conns.get_mut(&line);
                if let Some(conn) = own {
                    conn.session = 0;
                }
                self.end(session);
                Ok(Vec::new())
            }
            Request::Sync { path } => {
                self.catch_up(server);
                Ok(Writer::default().text(path).done())
            }
            Request::Ping => Ok(Vec::new()),
            Request::Auth { scheme, auth } => {
                let id = String::from_utf8_lossy(auth).into_owned();
                if let Some(conn) = self.servers[server].conns.get_mut(&line) {
                    conn.identities.push((scheme.clone(), id));
                }
                Ok(Vec::new())
            }
            Request::AddWatch { path, mode } => {
                self.servers[server].watches.add(path, line, *mode == 1);
                Ok(Writer::default().int(0).done())
            }
            Request::RemoveWatches { path, kind } => {
                let removed = self.servers[server].watches.remove(path, line, *kind);
                if removed { Ok(Vec::new()) } else { Err(code::NO_WATCHER) }
            }
            Request::SetWatches { since, lists, .. } => {
                let this = &mut self.servers[server];
                for (kind, path) in this.watches.set(&this.tree, line, *since, lists) {
                    if let Some(conn) = this.conns.get_mut(&line) {
                        conn.tell(event(kind, &path, -1));
                    }
                }
                Ok(Vec::new())
            }
            Request::MultiRead(all) => {
                let parts = all.iter().map(|one| (one.op(), self.read(server, line, one)));
                let parts: Vec<_> = parts.collect();
                Ok(results(parts.into_iter()))
            }
            read => self.read(server, line, read),
        }
    }

    /// A single write. An error takes a place in the log, too.
    fn one(&mut self, server: usize, line: Line, session: i64, request: &Request) -> Response {
        let identities = self.identities(server, line);
        let judged = self.judge(server, session, &identities, std::slice::from_ref(request));
        let (writes, _) = match judged {
            Ok(judged) => judged,
            Err((_, error)) => {
                self.commit(session, Vec::new(), false);
                self.catch_up(server);
                return Err(error);
            }
        };
        let made = created(&writes);
        self.commit(session, writes, false);
        self.catch_up(server);
        let shown = self.servers[server].shown.first().copied().flatten();
        Ok(done(request, made.first().map(String::as_str), shown.as_ref()))
    }

    fn several(&mut self, server: usize, line: Line, session: i64, all: &[Request]) -> Vec<u8> {
        let identities = self.identities(server, line);
        let (writes, wrote) = match self.judge(server, session, &identities, all) {
            Ok(judged) => judged,
            Err((at, error)) => {
                self.commit(session, Vec::new(), false);
                self.catch_up(server);
                let errors = (0..all.len()).map(|index| match index.cmp(&at) {
                    std::cmp::Ordering::Less => 0,
                    std::cmp::Ordering::Equal => error,
                    std::cmp::Ordering::Greater => code::RUNTIME_INCONSISTENCY,
                });
                return results(errors.map(|error| (op::ERROR, Err(error))));
            }
        };
        let mut made = created(&writes).into_iter();
        self.commit(session, writes, false);
        self.catch_up(server);
        let mut shown = self.servers[server].shown.clone().into_iter();
        let shows_births = self.servers[server].shows_births;
        let parts = all.iter().zip(wrote).map(|(request, wrote)| {
            let shown = if wrote { shown.next().flatten() } else { None };
            let path = matches!(request, Request::Create { .. }).then(|| made.next()).flatten();
            let op = in_multi(request.op(), shows_births);
            // Without its stat, the answer is that to another kind of create.
            let shown = shown.filter(|_| op != op::CREATE);
            (op, Ok(done(request, path.as_deref(), shown.as_ref())))
        });
        results(parts.collect::<Vec<_>>().into_iter())
    }

    fn identities(&self, server: usize, line: Line) -> Vec<(String, String)> {
        let conn = self.servers[server].conns.get(&line);
        conn.map(|conn| conn.identities.clone()).unwrap_or_default()
    }

    fn read(&mut self, server: usize, line: Line, request: &Request) -> Response {
        let identities = self.identities(server, line);
        let this = &mut self.servers[server];
        let node = this.tree.nodes.get(request.path());
        let may_read = node.is_none_or(|node| permits(&node.acl, READ, &identities));
        match request {
            Request::Exists { path, watch } => {
                let response = node.map(|node| stat(Writer::default(), &node.stat()).done());
                if *watch {
                    this.watches.node(path, line);
                }
                response.ok_or(code::NO_NODE)
            }
            _ if !may_read => Err(code::NO_AUTH),
            Request::GetData { path, watch } => {
                let node = node.ok_or(code::NO_NODE)?;
                let body = Writer::default().bytes(&node.data);
                let body = stat(body, &node.stat()).done();
                if *watch {
                    this.watches.node(path, line);
                }
                Ok(body)
            }
            Request::GetChildren { op, path, watch } => {
                let node = node.ok_or(code::NO_NODE)?;
                let body = Writer::default().texts(&node.children);
                let with_stat = *op == op::GET_CHILDREN_2;
                let body = if with_stat { stat(body, &node.stat()) } else { body };
                if *watch {
                    this.watches.children(path, line);
                }
                Ok(body.done())
            }
            _ => Err(code::UNIMPLEMENTED),
        }
    }
}

/// The paths that were created, in order.
fn created(writes: &[crate::tree::Write]) -> Vec<String> {
    let made = writes.iter().filter_map(|write| match write {
        crate::tree::Write::Create { path, .. } => Some(path.clone()),
        _ => None,
    });
    made.collect()
}

/// The answer to a write that was applied.
fn done(request: &Request, made: Option<&str>, shown: Option<&Stat>) -> Vec<u8> {
    let body = match made {
        Some(path) => Writer::default().text(path),
        None => Writer::default(),
    };
    match (request.op(), shown) {
        (op::CREATE, _) | (_, None) => body.done(),
        (_, Some(shown)) => stat(body, shown).done(),
    }
}

/// The operation code in the answer to an operation of a multi.
fn in_multi(op: i32, shows_births: bool) -> i32 {
    match op {
        op::CREATE_2 if shows_births => op::CREATE_2,
        op::CREATE | op::CREATE_2 => op::CREATE,
        op::CREATE_CONTAINER | op::CREATE_TTL => op::CREATE_2,
        op => op,
    }
}

fn results(parts: impl Iterator<Item = (i32, Response)>) -> Vec<u8> {
    let written = parts.fold(Writer::default(), |to, (op, response)| match response {
        Ok(body) => to.int(op).boolean(false).int(0).raw(&body),
        Err(error) => to.int(op::ERROR).boolean(false).int(error).int(error),
    });
    written.int(-1).boolean(true).int(-1).done()
}
