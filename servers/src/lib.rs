//! Real servers as fixtures: started as child processes on free loopback ports, ended when dropped;
//! proxies in front of them and between them; and [clients] as processes that can be stopped and
//! killed, with [checks](check) of the record of a run.
//!
//! A server that is not installed is not a failure of the test: the start returns the reason, for
//! the list of skipped tests. On machines with `CI=true` it is a failure: see [`required`].

pub mod check;
pub mod child;
mod child_watches;
pub mod clients;
pub mod counter;
pub mod etcd;
pub mod home;
pub mod links;
pub mod members;
pub mod newer;
pub mod peers;
pub mod pipe;
pub mod ports;
mod reconfig;
pub mod stall;
pub mod verb;
pub mod zookeeper;
pub mod zookeeper_log;

/// Returns `true` if tests that need a server must run here: with `CI=true` in the environment.
pub fn required() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Returns the servers if this machine has them, and otherwise prints why the test checks nothing.
///
/// # Panics
///
/// If there are none and they are [required].
#[expect(clippy::print_stdout, reason = "a test that could not check says why")]
pub fn available<T>(servers: Result<T, String>) -> Option<T> {
    match servers {
        Ok(servers) => Some(servers),
        Err(why) => {
            assert!(!required(), "{why}");
            println!("not checked: {why}");
            None
        }
    }
}

/// Returns the reason for which a run of tests must fail. `obstacles` has, for each kind and size
/// of servers, the reason for which they cannot be started: if servers are required, all kinds are.
pub fn failure<'a>(
    required: bool,
    obstacles: impl IntoIterator<Item = Option<&'a str>>,
) -> Option<&'a str> {
    obstacles.into_iter().flatten().find(|_| required)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_every_size_are_required_or_none_is() {
        let (one, three) = (Some("one does not start"), Some("three do not start"));
        assert_eq!(failure(true, [None, None]), None);
        assert_eq!(failure(true, [one, None]), one);
        assert_eq!(failure(true, [None, three]), three);
        assert_eq!(failure(true, [one, three]), one);
        assert_eq!(failure(false, [one, three]), None);
    }
}
