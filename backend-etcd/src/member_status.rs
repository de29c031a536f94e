//! [`MemberStatus`]: the state of a member, as the member reports it.

use std::sync::Arc;

use etcd_client::proto::PbMember;
use etcd_client::{AlarmType, ResponseHeader};
use synod_core::error::Result;
use synod_core::random::Random;

use crate::endpoints::{Call, Endpoints};
use crate::link::{Link, Maintenance};
use crate::options::EtcdOptions;

/// The state of a member of etcd, and of its cluster, as the member reports it. No session is
/// needed: while the alarm `NOSPACE` is active, none can be opened.
///
/// ```no_run
/// # use synod_core::error::Result;
/// use synod_etcd::{EtcdOptions, MemberStatus};
///
/// # async fn example() -> Result<()> {
/// let status = MemberStatus::of(EtcdOptions::new(["localhost:2379"])).await?;
/// println!("etcd {}, led by {:?}", status.version, status.leader);
/// for alarm in &status.alarms {
///     println!("alarm {} at {}", alarm.name, alarm.member);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "endpoint status")]
pub struct MemberStatus {
    /// The version of the member.
    pub version: String,
    /// The name of the member; its id in hexadecimal digits if it has none.
    pub member: String,
    /// The name of the leader, like [`MemberStatus::member`]. `None` if the member knows no leader.
    pub leader: Option<String>,
    /// `true` if the member is the leader.
    pub is_leader: bool,
    /// `true` if the member has no vote.
    pub is_learner: bool,
    /// The size of the database of the member in bytes.
    pub db_size: u64,
    /// The active alarms of the whole cluster. Until an alarm is disarmed, the cluster rejects
    /// writes, or everything.
    pub alarms: Vec<MemberAlarm>,
    /// The number of leases in the cluster: one for each session, and those of other clients.
    /// `None` if the user of the client may not list them.
    pub leases: Option<u64>,
}

/// An alarm of a member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberAlarm {
    /// The name of the alarm: `NOSPACE` if the quota of the database is used up, `CORRUPT` if the
    /// data of the members differ.
    pub name: String,
    /// The name of the member, like [`MemberStatus::member`].
    pub member: String,
}

impl MemberStatus {
    /// Reads the status at the first of these members that answers, on a connection of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) for invalid options,
    /// [`ErrorKind::Denied`](synod_core::error::ErrorKind::Denied) if the user may not read the
    /// status, and [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if no
    /// member answers within [`EtcdOptions::timeout`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn of(options: EtcdOptions) -> Result<Self> {
        let endpoints = Endpoints::new(options, &Random::from_system())?;
        endpoints.list().ready().await?;
        let call = Call::read("reading the status of a member", endpoints.timeout());
        let reading = |link: Arc<Link>| async move { link.maintenance().await };
        Ok(Self::new(&endpoints.call(call, reading).await?))
    }

    fn new(report: &Maintenance) -> Self {
        let name = |id: u64| name_of(&report.members, id);
        let (status, own) =
            (&report.status, report.status.header().map_or(0, ResponseHeader::member_id));
        let alarms = report.alarms.iter().map(|alarm| MemberAlarm {
            name: name_of_alarm(alarm.alarm()),
            member: name(alarm.member_id()),
        });
        Self {
            version: status.version().to_owned(),
            member: name(own),
            leader: (status.leader() != 0).then(|| name(status.leader())),
            is_leader: status.leader() == own && own != 0,
            is_learner: status.is_learner(),
            db_size: u64::try_from(status.db_size()).unwrap_or_default(),
            alarms: alarms.collect(),
            leases: report.leases,
        }
    }
}

fn name_of(members: &[PbMember], id: u64) -> String {
    let member = members.iter().find(|member| member.id == id && !member.name.is_empty());
    member.map_or_else(|| format!("{id:x}"), |member| member.name.clone())
}

fn name_of_alarm(alarm: AlarmType) -> String {
    match alarm {
        AlarmType::None => "NONE",
        AlarmType::Nospace => "NOSPACE",
        AlarmType::Corrupt => "CORRUPT",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_without_a_name_has_its_id() {
        let named = PbMember { id: 10, name: "a".to_owned(), ..PbMember::default() };
        let nameless = PbMember { id: 255, ..PbMember::default() };
        let members = [named, nameless];
        assert_eq!([10, 255, 7].map(|id| name_of(&members, id)), ["a", "ff", "7"]);
    }
}
