//! The signs of a mistake of clients: the laws that it breaks, or the assertion of the scene
//! that it fails. A scene that fails for another reason has not found the mistake.

use std::any::Any;

use synod_conformance::wrong::Mistake;
use synod_core::mutant::Mutant;
use synod_servers::clients::holder::Lapse;

use crate::scenarios::Fault;

/// Two processes hold a lock that only one can hold.
const EXCLUSION: &[&str] = &["L-MX-1:", "L-RW-1:", "L-SEM-1:", "L-EL-1:", "L-Q-6:"];

/// The texts one of which is in the report of a scene that shows this mistake.
pub(crate) fn of(fault: Fault) -> &'static [&'static str] {
    match fault {
        Fault::Store(mistake) => of_a_store(mistake),
        Fault::Client(Lapse::RemembersYes)
        | Fault::Core(Mutant::CertainUntilTold | Mutant::PredecessorGoneIsTurn) => EXCLUSION,
        // No guarded write was refused, as the scene wants to see.
        Fault::Core(Mutant::TxnUnguarded) => &["L-MX-5:", "L-EL-10:", "no write was refused"],
        Fault::Client(Lapse::PutsAgain) => &["L-Q-3:"],
        Fault::Client(Lapse::WritesFirst) => &["L-Q-6:"],
        // An item that is back in the queue while its claim exists cannot be claimed.
        Fault::Core(Mutant::ClaimIgnored) => &["L-Q-4:", "L-Q-5:", "L-Q-6:"],
        Fault::Core(Mutant::ClaimsNeverEnd) => &["L-Q-4:"],
        Fault::Core(Mutant::ResultUnguarded) => &["L-MW-1:", "L-MW-2:"],
        Fault::Core(Mutant::AssignsInTwoCalls) => &["L-MW-4:"],
        Fault::Core(Mutant::TransactionRunsAgain) => &["L-STM-3:"],
        Fault::Core(Mutant::EntersOnAnyEvent) => &["L-DB-1:"],
        Fault::Core(Mutant::GivenUnasked) => &["L-SP-3:"],
        Fault::Core(_) | Fault::Client(_) => panic!("{fault} needs a row in tests/faults/signs.rs"),
    }
}

fn of_a_store(mistake: Mistake) -> &'static [&'static str] {
    match mistake {
        // The second create of an ephemeral node may be of a later session.
        Mistake::RetriesBlindly => &["L-OUT-1:", "L-OUT-2:", "L-OUT-3:", "L-SES-13:"],
        Mistake::LostReplyIsNone => &["L-OUT-1:"],
        Mistake::CloseKeepsEphemerals => &["L-SES-7:"],
        Mistake::EventDropped | Mistake::GapUnreported => &["L-WAT-6:"],
        Mistake::CasIgnoresVersion => &["L-KV-1:"],
        Mistake::ParentGoesWithLastChild => &["L-KV-8:"],
        Mistake::LeaseExtendedByHope => &["L-SES-2:"],
        Mistake::NeverLost => &["it knows: not within"],
        Mistake::LostSessionRevived => &["L-SES-3:", "it stays so"],
        Mistake::ExpiredSessionAnswers => &["L-OUT-6:", ": Ok(Answer"],
        Mistake::ExpiryOneByOne | Mistake::WriteDetachesEphemeral => {
            &["L-SES-5:", "is gone: not within"]
        }
        Mistake::LocalGoesBack => &["L-KV-3:"],
        Mistake::LatestLags => &["L-KV-2:"],
        Mistake::WatchSilentAfterOutage => &["L-WAT-6:", "holds the"],
        mistake => panic!("{mistake} needs a row in tests/faults/signs.rs"),
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}
