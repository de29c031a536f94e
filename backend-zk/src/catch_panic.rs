//! Catches panics of the crate: it assumes that an answer to a create or a read of data is
//! well-formed, and panics in the waiting task if the answer is too short. A server sends no such
//! answer; a proxy may.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use zookeeper_client::Error as ZkError;

/// Waits for an answer. A panic becomes an answer that cannot be read, after which the effect is
/// unknown.
pub(crate) async fn catch_panic<T>(
    answer: impl Future<Output = Result<T, ZkError>>,
) -> Result<T, ZkError> {
    // No value that the future has touched is used again.
    let caught = AssertUnwindSafe(answer).catch_unwind().await;
    caught.unwrap_or_else(|_panic| Err(ZkError::UnexpectedError("a malformed answer".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_is_not_definite() {
        let short: &[u8] = &[];
        let answer = catch_panic(async { Ok(short[0]) }).now_or_never();
        let said = answer.expect("it is at its end").expect_err("it has panicked");
        assert!(!crate::error::is_definite(&said), "{said:?}");
    }
}
