//! The members of the cluster: reads their list, and follows it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbMember;
use synod_core::clock;

use crate::endpoints::{Call, Endpoints};
use crate::history::History;
use crate::link::Link;
use crate::reader::Reader;

/// The limit of one reading. The list remains as it was when it takes longer.
const LIMIT: Duration = Duration::from_secs(2);

/// The pause after a reading that failed, as the cluster has no leader then.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the list once in each interval, and after a failure of a member.
pub(crate) async fn follow(reader: Arc<Reader>) {
    loop {
        reader.endpoints.list().report_is_due().await;
        if !read(&reader.endpoints, &reader.history).await {
            clock::sleep(PAUSE).await;
        }
    }
}

/// Reads the list at any member, if it is of the cluster of this session. Returns `true` if a
/// member has answered.
pub(crate) async fn read(endpoints: &Endpoints, history: &History) -> bool {
    let call = Call::read("reading the members", endpoints.timeout().min(LIMIT));
    let reading = |link: Arc<Link>| async move { link.members().await };
    match endpoints.call(call, reading).await {
        // The session ends with its next heartbeat if it is of another cluster.
        Ok((cluster, _)) if cluster == 0 || history.same_cluster(cluster).is_err() => true,
        Ok((cluster, members)) => {
            endpoints.report(cluster, client_urls(&members, endpoints.scheme()));
            true
        }
        Err(error) => {
            tracing::debug!(%error, "the list of the members was not read");
            false
        }
    }
}

/// The client URLs of the members that have started and have a vote.
fn client_urls(members: &[PbMember], scheme: &str) -> Result<Vec<String>, String> {
    let members = members.iter().filter(|member| !member.is_learner);
    let urls = members.flat_map(|member| &member.client_ur_ls);
    let urls: Vec<String> = urls.filter(|url| is_usable(url, scheme)).cloned().collect();
    if urls.is_empty() {
        return Err(format!(
            "no member of the cluster has a client URL that begins with {scheme}: see \
             --advertise-client-urls"
        ));
    }
    Ok(urls)
}

/// True if a client can connect to this URL. The wildcard address is that of no server.
fn is_usable(url: &str, scheme: &str) -> bool {
    let Some(host) = url.strip_prefix(scheme) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split([':', '/']).next().unwrap_or_default(),
    };
    !name.is_empty() && !name.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(urls: &[&str], is_learner: bool) -> PbMember {
        let client_ur_ls = urls.iter().copied().map(str::to_owned).collect();
        PbMember { id: 1, client_ur_ls, is_learner, ..PbMember::default() }
    }

    #[test]
    fn learners_and_members_that_have_not_started_are_left_out() {
        let members = [
            member(&["http://a:1", "http://b:1"], false),
            member(&[], false),
            member(&["http://c:1"], true),
            member(&["https://d:1", "unix://e", "http://[::1]:1"], false),
            member(&["http://0.0.0.0:1", "http://[::]:1", "http://:1", "http://"], false),
        ];
        let plain = ["http://a:1", "http://b:1", "http://[::1]:1"].map(str::to_owned).to_vec();
        assert_eq!(client_urls(&members, "http://"), Ok(plain));
        assert_eq!(client_urls(&members, "https://"), Ok(vec!["https://d:1".to_owned()]));
        for nothing in [&members[1..3], &[]] {
            let fault = client_urls(nothing, "http://").expect_err("no client could use it");
            assert!(fault.contains("--advertise-client-urls"), "{fault}");
        }
    }
}
