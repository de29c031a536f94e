//! Behaviour that only etcd has, and how the backend handles it.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use synod_servers::etcd::Cluster;
use synod_servers::required;
use synod_servers::stall::Stall;
use synod_testkit::limit::limited;
use tokio::runtime::Builder;

mod advice;
mod certificates;
mod failover;
mod foreign;
mod full;
mod listing;
mod many;
mod names;
mod outage;
mod prompt;
mod proxy;
mod restored;
mod secure;
mod stalled;
mod trips;
mod world;

/// The time limit of a test that waits, on a machine of any speed.
const PATIENCE: Duration = Duration::from_secs(4 * 60);

/// The time limit of a test that blocks its thread, and so does not notice that [`PATIENCE`] has
/// elapsed.
const BLOCKED: Duration = Duration::from_secs(8 * 60);

const NEED_TLS: &[&str] = &[
    "advice::tls_where_there_is_none_is_said",
    "advice::what_certificates_lack_is_said",
    "secure::a_session_outlives_its_certificates",
    "secure::both_sides_show_certificates",
];

/// Lists the tests of a module.
macro_rules! quirks {
    ($($module:ident: $($case:ident)*;)*) => {
        vec![$($(trial(
            concat!(stringify!($module), "::", stringify!($case)),
            || Box::pin($module::$case()),
        ),)*)*]
    };
}

type Case = fn() -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn trial(name: &'static str, case: Case) -> Trial {
    Trial::test(name, move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let run = move || runtime.block_on(async { tokio::time::timeout(PATIENCE, case()).await });
        let ended = limited(BLOCKED, run)?;
        ended.map_err(|_elapsed| format!("no end within {PATIENCE:?}").into())
    })
}

fn main() -> ExitCode {
    let trials = quirks![
        advice: where_no_server_is_is_said
            an_unknown_host_name_is_reported
            a_server_that_is_not_etcd_is_reported
            a_server_that_accepts_and_never_answers_is_reported
            tls_where_there_is_none_is_said
            what_certificates_lack_is_said
            a_denied_client_gets_the_reason
            a_minority_says_that_it_is_one
            what_is_forgotten_before_it_is_read_is_said
            a_full_store_says_how_to_go_on;
        failover: a_leader_that_dies_is_not_missed
            a_member_that_stands_still_is_passed_over
            a_server_that_comes_back_is_found_again
            what_was_never_sent_did_not_happen;
        foreign: what_others_keep_is_left_alone
            what_others_keep_is_in_the_way_of_a_delete
            a_lease_of_others_is_an_owner
            etcdctl_shows_a_tree_that_a_person_can_read
            a_lock_of_etcdctl_is_a_child_with_an_owner;
        full: a_write_that_a_full_store_refused_for_certain_is_not_there
            a_lock_that_failed_for_want_of_space_blocks_no_other
            the_alarm_of_a_full_store_is_in_its_status;
        listing: a_crowded_directory_is_of_one_moment
            a_large_tree_is_cached_by_some_requests
            large_nodes_are_listed_in_pieces
            a_path_too_deep_for_etcd_is_refused;
        many: ten_thousand_watches_outlive_their_server;
        trips: every_call_is_one_request
            recipes_ask_for_no_more_than_they_need
            a_client_that_waits_for_a_node_again_sends_one_request
            a_release_notifies_few_clients
            a_long_term_holder_watches_its_own_ticket
            a_refusal_for_what_seldom_matters_is_asked_once_more
            what_is_observed_is_asked_for_at_once
            a_node_with_a_time_to_live_needs_more;
        prompt: watches_have_nothing_to_catch_up_with
            a_change_is_heard_of_when_it_is_answered;
        names: a_client_that_locks_again_uses_the_same_name;
        outage: a_compacted_history_is_reported_as_a_resync
            a_delete_right_after_the_compacted_revision_is_reported
            a_watch_goes_on_where_it_broke_off
            what_was_missed_may_be_larger_than_a_message
            watches_without_a_reader_are_cancelled
            a_session_has_one_stream_and_no_watch_twice;
        restored: a_session_of_a_restored_server_is_over;
        stalled: no_session_is_certain_of_what_the_next_leader_has_ended;
        secure: a_client_without_permission_is_denied
            a_role_for_a_directory_permits_no_other_node
            a_watch_without_a_user_ends_when_one_is_required
            a_token_that_ran_out_is_renewed
            a_session_survives_that_another_user_is_added
            a_session_on_three_members_survives_that_another_user_is_added
            a_session_with_a_plain_token_survives_that_another_user_is_added
            sessions_go_on_while_authentication_is_disabled_and_after_it
            a_session_outlives_its_certificates
            both_sides_show_certificates;
        proxy: a_session_through_the_grpc_proxy_is_refused_by_name
            a_watch_through_a_proxy_that_hides_is_refused_by_name;
    ];
    let missing = Cluster::missing();
    assert!(missing.is_none() || !required(), "{missing:?}");
    let no_stall = Stall::missing();
    let skip = |trial: Trial| match &missing {
        Some(why) => trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}")),
        None if no_stall.is_some() && trial.name().starts_with("stalled::") => {
            let why = no_stall.unwrap_or_default();
            trial.with_ignored_flag(true).with_kind(format!("cannot run: {why}"))
        }
        None if !cfg!(feature = "tls") && NEED_TLS.contains(&trial.name()) => {
            trial.with_ignored_flag(true).with_kind("cannot run: built without the feature `tls`")
        }
        None => trial,
    };
    let trials = trials.into_iter().map(skip).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
