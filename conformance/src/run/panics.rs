//! Catches what panics say, so that it becomes a reason instead of a line on the terminal.

use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    /// What was said on this thread since somebody listens.
    static SAID: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Does `work`, and returns what every panic on this thread said meanwhile.
pub(super) fn capture<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !heard(info) {
                before(info);
            }
        }));
    });

    let outer = SAID.replace(Some(Vec::new()));
    let done = work();
    (done, SAID.replace(outer).unwrap_or_default())
}

/// Keeps what a panic says, if this thread listens.
fn heard(info: &PanicHookInfo<'_>) -> bool {
    let payload = info.payload();
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "something that is no text",
    };
    let place = info.location().map_or_else(String::new, |place| {
        let file = place.file().rsplit(['/', '\\']).next().unwrap_or_default();
        format!(" ({file}:{})", place.line())
    });
    SAID.with_borrow_mut(|said| {
        let Some(said) = said else { return false };
        said.push(format!("{message}{place}"));
        true
    })
}
