//! Answers without a panic of the crate: it takes an answer to a create or to a read of data for well-formed, and panics
//! in the task that waits where it is too short. A server sends no such answer; what is in between may.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use zookeeper_client::Error as ZkError;

/// Waits for an answer. A panic is an answer that cannot be read: it tells nothing of what was done.
pub(crate) async fn contained<T>(
    answer: impl Future<Output = Result<T, ZkError>>,
) -> Result<T, ZkError> {
    // Nothing that the future has touched is used again.
    let caught = AssertUnwindSafe(answer).catch_unwind().await;
    caught.unwrap_or_else(|_panic| Err(ZkError::UnexpectedError("a malformed answer".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_is_not_definite() {
        let short: &[u8] = &[];
        let answer = contained(async { Ok(short[0]) }).now_or_never();
        let said = answer.expect("it is at its end").expect_err("it has panicked");
        assert!(!crate::error::is_definite(&said), "{said:?}");
    }
}
