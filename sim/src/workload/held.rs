//! [`Held`]: what a process holds, for all recipes.

use std::sync::Arc;

use synod_core::path::Path;
use synod_core::recipe::passing::PassingGuard;
use synod_core::recipe::reentrant::ReentrantGuard;
use synod_core::recipe::{Hold, Token};
use synod_core::store::Txn;

/// What a process holds, and how it is judged.
pub(super) trait Held: Send + Sync {
    fn is_held(&self) -> bool;
    fn token(&self) -> Token;
    fn path(&self) -> &Path;
    fn txn(&self) -> Txn;
}

impl<K: Send + Sync> Held for Hold<K> {
    fn is_held(&self) -> bool {
        Self::is_held(self)
    }

    fn token(&self) -> Token {
        Self::token(self)
    }

    fn path(&self) -> &Path {
        Self::seen_path(self)
    }

    fn txn(&self) -> Txn {
        Self::txn(self)
    }
}

impl Held for Arc<Hold> {
    fn is_held(&self) -> bool {
        Hold::is_held(self)
    }

    fn token(&self) -> Token {
        Hold::token(self)
    }

    fn path(&self) -> &Path {
        Hold::seen_path(self)
    }

    fn txn(&self) -> Txn {
        Hold::txn(self)
    }
}

impl Held for ReentrantGuard {
    fn is_held(&self) -> bool {
        self.hold().is_held()
    }

    fn token(&self) -> Token {
        self.hold().token()
    }

    fn path(&self) -> &Path {
        self.hold().seen_path()
    }

    fn txn(&self) -> Txn {
        self.hold().txn()
    }
}

impl Held for PassingGuard {
    fn is_held(&self) -> bool {
        Self::is_held(self)
    }

    fn token(&self) -> Token {
        Self::token(self)
    }

    fn path(&self) -> &Path {
        Self::seen_path(self)
    }

    fn txn(&self) -> Txn {
        Self::txn(self)
    }
}
