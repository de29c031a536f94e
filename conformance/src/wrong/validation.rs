//! Mistakes in the validation before anything is sent.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Lifetime, Limits, Op, Query, Txn};

use crate::wrong::mistake::Mistake;
use crate::wrong::store::WrongStore;

pub(super) fn query(store: &WrongStore, mut query: Query) -> Result<Query> {
    if query.validate().is_err() && store.makes(Mistake::QueryNotValidated) {
        made_answerable(&mut query);
    }
    query.validate().map_err(|error| without_path(store, error))?;
    Ok(query)
}

/// Returns the query to observe.
pub(super) fn observed(store: &WrongStore, mut query: Query) -> Result<Query> {
    if store.makes(Mistake::SeveralObservedAsOne) {
        query.more.clear();
    }
    self::query(store, query)
}

fn made_answerable(query: &mut Query) {
    query.prefix.clear();
    query.window = None;
    query.once = false;
    query.more.clear();
}

pub(super) async fn txn(store: &WrongStore, mut txn: Txn) -> Result<Txn> {
    let limits = &store.inner.session().limits;
    if let Some(look) = &mut txn.look
        && store.makes(Mistake::LookNotValidated)
        && look.validate().is_err()
    {
        made_answerable(look);
    }
    if store.makes(Mistake::LimitsOffByOne) && fills(&txn, limits) {
        return Err(Error::new(ErrorKind::TooLarge, "commit"));
    }
    match (txn.validate(limits), store.mistake()) {
        (Ok(()), _) => Ok(txn),
        (Err(error), Some(Mistake::ValidateSkipped)) if error.kind() == ErrorKind::Invalid => {
            Ok(sensible(txn, limits))
        }
        (Err(error), Some(Mistake::SizeUnchecked)) if error.kind() == ErrorKind::TooLarge => {
            let _hung_up = store.inner.close().await.is_ok();
            Err(Error::new(ErrorKind::Unreachable, "commit").with_unknown_effect())
        }
        (Err(error), _) => Err(without_path(store, error)),
    }
}

fn without_path(store: &WrongStore, error: Error) -> Error {
    if store.makes(Mistake::ErrorWithoutPath) {
        Error::new(error.kind(), "request").because("the store refused it")
    } else {
        error
    }
}

/// Returns `true` if a transaction has exactly the maximum size.
fn fills(txn: &Txn, limits: &Limits) -> bool {
    let large = txn.ops.iter().any(|op| match op {
        Op::Create { data, .. } | Op::Set { data, .. } => data.len() == limits.data,
        _ => false,
    });
    large || txn.ops.len() == limits.operations
}

/// The valid operations of a transaction.
fn sensible(txn: Txn, limits: &Limits) -> Txn {
    let mut left = Txn::new();
    for mut op in txn.ops {
        if let Op::Create { lifetime: lifetime @ Lifetime::Ttl(_), .. } = &mut op {
            *lifetime = Lifetime::Persistent;
        }
        let more = left.clone().op(op);
        if more.validate(limits).is_ok() {
            left = more;
        }
    }
    left
}
