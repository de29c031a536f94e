//! The unchanged backend on a ZooKeeper peer of our own that implements the protocol over loopback:
//! without faults, and under a script of faults.
//!
//! `one::` and `three::` are the conformance suite on one server and on three. `replay` compares
//! the peer with a real server, `scene::` has one disturbance each, and `soak` has random ones:
//! `SYNOD_SEED` repeats its choices, and `SYNOD_SOAK=10` runs for that many minutes.
//! `SYNOD_LISTING_CACHE=off` runs the suite without the listing cache of the backend.

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use synod_conformance::run::Suite;
use synod_servers::required;
use synod_servers::zookeeper::Ensemble;
use synod_testkit::limit::limited;

use crate::counted::{
    a_check_reads_only_where_a_container_would_pass, a_create_is_one_plain_request,
    a_revision_is_asked_for_only_where_nothing_has_it,
    a_server_that_ends_each_connection_is_not_asked_all_the_time, a_sole_contender_lists_nothing,
    a_transaction_needs_no_sync, absence_deep_below_nothing_takes_two_requests,
    every_ticket_is_listed_without_the_listing_cache, one_event_needs_no_lasting_watch,
    watches_for_one_event_are_set_again_at_once,
};
use crate::effects::{
    a_directory_that_is_created_meanwhile_is_used, a_directory_that_is_emptied_gives_way_to_a_node,
    a_malformed_answer_is_an_error, nothing_is_said_of_a_write_that_is_not_so,
    what_a_server_does_not_know_is_unsupported, what_a_transaction_creates_has_its_stat,
    what_is_not_permitted_is_denied,
};
use crate::endings::{
    a_close_that_was_dropped_remembers_how_long_the_session_was_certain,
    a_session_that_ended_long_ago_is_not_closed_by_its_client,
    a_session_that_its_client_gave_up_ends_at_its_servers,
    a_session_that_its_client_gave_up_is_not_closed_by_a_call,
    a_session_whose_heartbeats_are_writes_needs_no_right_to_the_root,
    a_session_whose_runtime_has_ended_is_not_closed,
};
use crate::ends::{
    a_directory_without_numbers_refuses, a_lock_whose_numbers_end_is_held_by_one,
    a_number_from_the_reserve_is_of_use_in_a_transaction_of_several,
};
use crate::follow_up_reads::{
    a_lock_whose_looks_are_refused_leaves_no_ticket, a_look_shows_no_ticket_after_the_own_one,
    a_look_that_fails_says_nothing_of_the_commit, a_look_that_fails_says_nothing_of_the_rejection,
    a_look_that_was_lost_is_asked_for_again, a_ticket_hides_nothing_in_another_directory,
};
use crate::harness::OverPeer;
use crate::leaderless::{
    a_follower_that_stops_right_after_its_answer_proves_no_more,
    a_follower_without_its_leader_proves_nothing,
};
use crate::lives::{
    a_session_is_no_longer_than_its_last_connection_grants,
    a_session_is_requested_for_24_days_at_most, a_session_outlives_whatever_ends_its_connection,
    a_session_that_ended_meanwhile_is_lost, a_session_that_took_long_to_open_is_not_lost_at_once,
    a_silent_server_is_in_doubt_after_three_heartbeats,
};
use crate::moves::{
    a_client_logs_in_on_each_connection, a_server_that_fell_silent_is_the_last_to_be_tried,
    a_session_that_is_replaced_by_another_is_over,
    the_rest_of_a_transaction_is_reported_on_the_next_connection,
    two_silent_servers_of_five_end_no_session,
    watches_that_a_server_refuses_at_first_are_set_all_the_same,
};
use crate::noise::{
    an_answer_that_dribbles_ends_its_connection, an_event_of_an_unknown_kind_ends_no_connection,
    events_without_a_watcher_cause_no_requests, what_ends_a_connection_is_no_answer_to_a_request,
};
use crate::older::{
    a_latest_observation_of_one_event_is_of_now,
    a_local_read_follows_no_sync_but_on_a_new_connection, a_view_is_no_older_than_what_it_shows,
    a_view_is_no_older_than_what_the_session_has_seen, what_is_read_is_no_older_than_an_event,
};
use crate::places::{
    a_container_in_the_place_of_a_ticket_is_no_node,
    no_collector_deletes_what_took_the_place_of_a_container,
    the_place_of_a_container_is_of_use_at_once,
    what_is_below_a_directory_that_is_created_meanwhile_is_looked_for,
    what_is_below_a_node_that_is_just_created_is_absent, what_is_below_a_sessions_node_is_absent,
    what_is_below_a_sessions_node_is_proved_again_with_the_rest, what_is_protected_can_be_deleted,
    what_protects_from_collectors_goes_after_a_while,
    what_took_the_place_of_one_container_is_not_removed_with_the_others,
};
use crate::programs::programs_do_the_same_as_on_memory;
use crate::races::a_transaction_is_before_a_write_of_others_or_after_it;
use crate::refused::a_client_outlives_that_it_is_not_accepted_for_a_while;
use crate::threads::immediate_answers_block_no_thread;
use crate::watching::{
    a_change_around_the_read_is_reported, a_change_while_disconnected_is_reported,
    a_check_for_absence_is_not_reported, a_container_is_not_reported_and_what_takes_its_place_is,
    a_directory_is_observed_on_after_the_session_forgot_its_tickets,
    a_lasting_watch_is_set_again_by_one_request,
    a_server_without_lasting_watches_is_not_asked_for_ever, a_watch_that_is_refused_ends,
    an_observation_outlives_the_connection_that_it_began_on, another_node_in_its_place_is_no_write,
    changes_are_reported_in_order_while_one_is_verified, one_event_is_what_happened,
    watches_outlive_many_connections, what_took_the_place_of_a_container_meanwhile_is_reported,
    what_was_only_a_hint_is_no_container_any_more,
};
use crate::wide::{
    a_large_tree_may_take_long_as_long_as_more_of_it_is_read,
    a_node_with_very_many_children_is_not_deleted, what_is_too_much_for_a_request_is_of_one_moment,
    what_is_too_much_for_an_answer_is_read_in_parts, what_never_rests_is_not_read_for_ever,
};

mod connection;
mod counted;
mod effects;
mod endings;
mod ends;
mod follow_up_reads;
mod harness;
mod judge;
mod jute;
mod leaderless;
mod lives;
mod moves;
mod noise;
mod older;
mod peer;
mod places;
mod programs;
mod protocol;
mod races;
mod refused;
mod replay;
mod scene;
mod script;
mod serve;
mod soak;
mod threads;
mod tree;
mod watches;
mod watching;
mod wide;
mod world;

/// The cases wait more than they compute.
const CONCURRENT_CASES: usize = 16;

type Scene = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

macro_rules! scenes {
    ($list:ident: $($name:ident,)*) => {
        const $list: &[Scene] = &[$((stringify!($name), || Box::pin($name())),)*];
    };
}

scenes![
    SCENES:
    nothing_is_said_of_a_write_that_is_not_so,
    what_a_server_does_not_know_is_unsupported,
    what_a_transaction_creates_has_its_stat,
    a_malformed_answer_is_an_error,
    a_directory_that_is_created_meanwhile_is_used,
    a_follower_without_its_leader_proves_nothing,
    a_follower_that_stops_right_after_its_answer_proves_no_more,
    a_look_that_fails_says_nothing_of_the_commit,
    a_look_that_fails_says_nothing_of_the_rejection,
    a_lock_whose_looks_are_refused_leaves_no_ticket,
    a_lock_whose_numbers_end_is_held_by_one,
    a_client_outlives_that_it_is_not_accepted_for_a_while,
    what_is_read_is_no_older_than_an_event,
    a_view_is_no_older_than_what_it_shows,
    a_local_read_follows_no_sync_but_on_a_new_connection,
    a_view_is_no_older_than_what_the_session_has_seen,
    a_ticket_hides_nothing_in_another_directory,
    a_directory_that_is_emptied_gives_way_to_a_node,
    a_session_is_no_longer_than_its_last_connection_grants,
    a_session_is_requested_for_24_days_at_most,
    a_session_outlives_whatever_ends_its_connection,
    a_session_that_ended_meanwhile_is_lost,
    a_session_that_its_client_gave_up_ends_at_its_servers,
    a_session_that_ended_long_ago_is_not_closed_by_its_client,
    a_close_that_was_dropped_remembers_how_long_the_session_was_certain,
    a_session_whose_heartbeats_are_writes_needs_no_right_to_the_root,
    a_change_around_the_read_is_reported,
    a_change_while_disconnected_is_reported,
    changes_are_reported_in_order_while_one_is_verified,
    a_server_without_lasting_watches_is_not_asked_for_ever,
    watches_outlive_many_connections,
    what_is_too_much_for_a_request_is_of_one_moment,
    a_large_tree_may_take_long_as_long_as_more_of_it_is_read,
    what_never_rests_is_not_read_for_ever,
    a_node_with_very_many_children_is_not_deleted,
    a_look_shows_no_ticket_after_the_own_one,
    a_look_that_was_lost_is_asked_for_again,
    a_directory_without_numbers_refuses,
    a_number_from_the_reserve_is_of_use_in_a_transaction_of_several,
    another_node_in_its_place_is_no_write,
    a_check_for_absence_is_not_reported,
    what_was_only_a_hint_is_no_container_any_more,
    a_create_is_one_plain_request,
    what_is_not_permitted_is_denied,
    a_sole_contender_lists_nothing,
    every_ticket_is_listed_without_the_listing_cache,
    one_event_needs_no_lasting_watch,
    a_latest_observation_of_one_event_is_of_now,
    a_container_is_not_reported_and_what_takes_its_place_is,
    what_took_the_place_of_a_container_meanwhile_is_reported,
    an_observation_outlives_the_connection_that_it_began_on,
    one_event_is_what_happened,
    a_container_in_the_place_of_a_ticket_is_no_node,
    no_collector_deletes_what_took_the_place_of_a_container,
    what_protects_from_collectors_goes_after_a_while,
    the_place_of_a_container_is_of_use_at_once,
    what_is_protected_can_be_deleted,
    what_took_the_place_of_one_container_is_not_removed_with_the_others,
    what_is_below_a_sessions_node_is_absent,
    what_is_below_a_sessions_node_is_proved_again_with_the_rest,
    what_is_below_a_node_that_is_just_created_is_absent,
    what_is_below_a_directory_that_is_created_meanwhile_is_looked_for,
    a_directory_is_observed_on_after_the_session_forgot_its_tickets,
    a_session_that_took_long_to_open_is_not_lost_at_once,
    a_silent_server_is_in_doubt_after_three_heartbeats,
    a_transaction_needs_no_sync,
    absence_deep_below_nothing_takes_two_requests,
    a_check_reads_only_where_a_container_would_pass,
    a_revision_is_asked_for_only_where_nothing_has_it,
    watches_for_one_event_are_set_again_at_once,
    a_server_that_ends_each_connection_is_not_asked_all_the_time,
    programs_do_the_same_as_on_memory,
    a_transaction_is_before_a_write_of_others_or_after_it,
    a_session_that_its_client_gave_up_is_not_closed_by_a_call,
    a_server_that_fell_silent_is_the_last_to_be_tried,
    two_silent_servers_of_five_end_no_session,
    a_session_that_is_replaced_by_another_is_over,
    watches_that_a_server_refuses_at_first_are_set_all_the_same,
    a_client_logs_in_on_each_connection,
    the_rest_of_a_transaction_is_reported_on_the_next_connection,
    an_event_of_an_unknown_kind_ends_no_connection,
    events_without_a_watcher_cause_no_requests,
    an_answer_that_dribbles_ends_its_connection,
    what_ends_a_connection_is_no_answer_to_a_request,
    what_is_too_much_for_an_answer_is_read_in_parts,
    a_session_whose_runtime_has_ended_is_not_closed,
    a_watch_that_is_refused_ends,
    a_lasting_watch_is_set_again_by_one_request,
];

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == soak::WORKER) {
        return soak::work();
    }
    scene::note_panics();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(CONCURRENT_CASES));
    let suite = |servers| Suite::fallible(move || OverPeer::start(servers));
    let mut trials = suite(1).trials("one");
    trials.extend(suite(3).trials("three"));
    trials.extend(SCENES.iter().map(|(name, act)| alone(&format!("scene::{name}"), *act)));
    trials.push(Trial::test("scene::immediate_answers_block_no_thread", || {
        limited(limit(), immediate_answers_block_no_thread).map_err(Failed::from)
    }));
    trials.push(alone("soak", || Box::pin(soak::whatever_happens_the_laws_are_kept())));
    let replay = alone("replay", || Box::pin(replay::the_peer_and_a_server_say_the_same()));
    trials.push(match Ensemble::missing() {
        None => replay,
        Some(why) => {
            assert!(!required(), "{why}");
            replay.with_ignored_flag(true).with_kind(format!("cannot run: {why}"))
        }
    });
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The time limit of a test: far more than a slow machine needs, in addition to the requested time.
fn limit() -> Duration {
    let asked = std::env::var("SYNOD_SOAK").ok().and_then(|minutes| minutes.parse().ok());
    let is_long = std::env::var_os("SYNOD_PROGRAMS").is_some();
    Duration::from_secs(60 * (asked.unwrap_or(0) + if is_long { 600 } else { 20 }))
}

/// A test on a runtime of its own, with one thread.
fn alone(name: &str, act: fn() -> Pin<Box<dyn Future<Output = ()>>>) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        limited(limit(), move || runtime.block_on(act())).map_err(Failed::from)
    })
}
