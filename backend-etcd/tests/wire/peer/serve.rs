//! One connection to one member.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request as Head;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::answer::Answer;
use super::frame::{Incoming, Outgoing, unknown};
use super::message::{MembersResponse, StatusResponse};
use super::refusal::Refusal;
use super::request::Request;
use super::script::{Act, Kind};
use super::shared::{Caller, Counted, Shared};
use super::streams;

/// An order to a connection: close, or take no more requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Cut,
    GoAway,
}

/// The data needed to answer a request.
pub(crate) struct Asked {
    pub(crate) shared: Arc<Shared>,
    pub(crate) member: usize,
    pub(crate) network: usize,
    pub(crate) caller: Caller,
    pub(crate) orders: UnboundedSender<Order>,
}

/// A request, and the stream for its answer.
type Accepted = (Head<RecvStream>, SendResponse<Bytes>);

enum Next {
    Order(Option<Order>),
    Down,
    Request(Option<Result<Box<Accepted>, h2::Error>>),
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    shared: Arc<Shared>,
    member: usize,
    network: usize,
) {
    let _counted = Counted::new(&shared, |shared| &shared.connections);
    let _before = shared.dialled.fetch_add(1, Ordering::Relaxed);
    // etcd has no limit for the number of small messages that wait to be read.
    let handshake = h2::server::Builder::new().data_frame_budget(1 << 30).handshake(io);
    let Ok(mut connection) = handshake.await else { return };
    let (orders, mut taken) = unbounded_channel();
    let mut doing: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>> =
        FuturesUnordered::new();
    loop {
        let next = {
            let order = pin!(taken.recv());
            let down = pin!(is_down(&shared, member));
            let work = poll_fn(|cx| {
                while let Poll::Ready(Some(())) = doing.poll_next_unpin(cx) {}
                Poll::<Infallible>::Pending
            });
            let (accepting, work) = (pin!(connection.accept()), pin!(work));
            match select(select(order, down), select(accepting, work)).await {
                Either::Left((Either::Left((order, _)), _)) => Next::Order(order),
                Either::Left((Either::Right(_), _)) => Next::Down,
                Either::Right((Either::Left((request, _)), _)) => {
                    Next::Request(request.map(|accepted| accepted.map(Box::new)))
                }
                Either::Right((Either::Right((never, _)), _)) => match never {},
            }
        };
        match next {
            Next::Order(Some(Order::GoAway)) => connection.graceful_shutdown(),
            Next::Order(_) | Next::Down | Next::Request(None | Some(Err(_))) => return,
            Next::Request(Some(Ok(accepted))) => {
                let (head, answer) = *accepted;
                let asked = Asked {
                    shared: shared.clone(),
                    member,
                    network,
                    caller: caller(&head),
                    orders: orders.clone(),
                };
                doing.push(Box::pin(asked.answer(head, Outgoing::new(answer))));
            }
        }
    }
}

async fn is_down(shared: &Shared, member: usize) {
    let mut moved = shared.moved.subscribe();
    while !shared.member(member).down {
        moved.changed().await;
    }
}

fn caller(head: &Head<RecvStream>) -> Caller {
    let said = |name| head.headers().get(name).and_then(|value| value.to_str().ok());
    Caller { token: said("token").map(str::to_owned), wants_leader: said("hasleader").is_some() }
}

fn kind(path: &str) -> Option<Kind> {
    Some(match path {
        "/etcdserverpb.KV/Range" => Kind::Range,
        "/etcdserverpb.KV/Put" => Kind::Put,
        "/etcdserverpb.KV/DeleteRange" => Kind::Delete,
        "/etcdserverpb.KV/Txn" => Kind::Txn,
        "/etcdserverpb.Lease/LeaseGrant" => Kind::Grant,
        "/etcdserverpb.Lease/LeaseRevoke" => Kind::Revoke,
        "/etcdserverpb.Lease/LeaseKeepAlive" => Kind::KeepAlive,
        "/etcdserverpb.Auth/Authenticate" => Kind::Authenticate,
        "/etcdserverpb.Watch/Watch" => Kind::Watch,
        _ => return None,
    })
}

impl Asked {
    async fn answer(self, head: Head<RecvStream>, outgoing: Outgoing) {
        let path = head.uri().path().to_owned();
        let incoming = Incoming::new(head.into_body());
        match kind(&path) {
            None => self.other(&path, incoming, outgoing).await,
            Some(Kind::Watch) => streams::watch(self, incoming, outgoing).await,
            Some(kind) => self.once(kind, incoming, outgoing).await,
        }
    }

    /// Answers requests that are not about keys and leases.
    async fn other(self, path: &str, mut incoming: Incoming, mut outgoing: Outgoing) {
        let member = self.shared.member(self.member);
        let header = || {
            let applied = self.shared.applied(self.member);
            Some(self.shared.state().header_at(self.member, applied))
        };
        let message = match (path, member.version) {
            ("/etcdserverpb.Maintenance/Status", Some(version)) => {
                let version = version.to_owned();
                StatusResponse { header: header(), version }.encode_to_vec().into()
            }
            ("/etcdserverpb.Cluster/MemberList", Some(_)) if !member.proxy => {
                MembersResponse { header: header() }.encode_to_vec().into()
            }
            // A list without a header.
            ("/etcdserverpb.Cluster/MemberList", _) if member.proxy => Bytes::new(),
            _ => return outgoing.refuse(&unknown(path)),
        };
        let _asked = incoming.message().await;
        outgoing.message(&message);
        outgoing.well();
    }

    /// Answers one request. A lease is kept alive on a stream, whose first message is the only one
    /// that the backend uses.
    async fn once(self, kind: Kind, mut incoming: Incoming, outgoing: Outgoing) {
        let Some(message) = incoming.message().await else { return };
        let request = match Request::decode(kind, &message) {
            Ok(request) => request,
            Err(refusal) => return outgoing.refuse(&refusal),
        };
        let act = self.shared.next(kind, self.member, self.network);
        let said = match &act {
            Some(Act::Refuse(refusal)) => Err(refusal.clone()),
            Some(Act::Ignore) => return hold((incoming, outgoing)).await,
            Some(Act::Cut { applied: false }) => return self.cut().await,
            Some(Act::Reset { applied: false, reason }) => return outgoing.reset(*reason),
            Some(Act::Late(late)) => {
                let (caller, late) = (self.caller.clone(), *late);
                self.shared.clone().apply_late(self.member, caller, request, late).await
            }
            _ => self.shared.apply(self.member, &self.caller, &request).await,
        };
        self.say(act, said, kind, (incoming, outgoing)).await;
    }

    async fn say(
        self,
        act: Option<Act>,
        said: Result<Answer, Refusal>,
        kind: Kind,
        (incoming, mut outgoing): (Incoming, Outgoing),
    ) {
        match &act {
            Some(Act::ApplyAndRefuse(refusal)) => return outgoing.refuse(refusal),
            Some(Act::Mute) => return hold((incoming, outgoing)).await,
            Some(Act::Cut { .. }) => return self.cut().await,
            Some(Act::Reset { reason, .. }) => return outgoing.reset(*reason),
            Some(Act::GoAway) => drop(self.orders.send(Order::GoAway)),
            Some(Act::Slow(slow)) => sleep(*slow).await,
            Some(Act::NoStatus { message: false }) => return outgoing.end(),
            _ => {}
        }
        let answer = match said {
            Ok(answer) => answer,
            Err(refusal) => return outgoing.refuse(&refusal),
        };
        let answer = match &act {
            Some(Act::Edit(edit)) => (edit.0)(answer),
            _ => answer,
        };
        let message = answer.encode();
        outgoing.message(&message);
        match act {
            Some(Act::Twice) => outgoing.message(&message),
            Some(Act::NoStatus { .. }) => return outgoing.end(),
            _ => {}
        }
        if kind == Kind::KeepAlive {
            // The stream ends when the client has no more requests.
            let mut incoming = incoming;
            while incoming.message().await.is_some() {}
        }
        outgoing.well();
    }

    async fn cut(self) {
        let _cut = self.orders.send(Order::Cut).is_ok();
        pending::<()>().await;
    }
}

/// Keeps a stream open for ever.
pub(crate) async fn hold<T>(_held: T) {
    pending::<()>().await;
}
