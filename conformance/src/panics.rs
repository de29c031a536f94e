//! Captures the messages of panics, so that they become a reason instead of a line on the terminal.

use std::cell::RefCell;
use std::mem::take;
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, Once, PoisonError};

thread_local! {
    /// The receiver of the panic messages of this thread.
    static SAID: RefCell<Option<Said>> = const { RefCell::new(None) };
}

/// The panic messages of all threads that [`listen`] with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    /// Takes the messages so far.
    pub(crate) fn take(&self) -> Vec<String> {
        take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, message: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

/// Runs `work`, and returns the messages of all panics on this thread during that time.
pub(crate) fn capture<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let said = Said::default();
    let outer = listen(&said);
    let done = work();
    SAID.set(outer);
    (done, said.take())
}

/// Sends the panic messages of this thread to `said` from now on. Returns the previous receiver.
pub(crate) fn listen(said: &Said) -> Option<Said> {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !heard(info) {
                before(info);
            }
        }));
    });
    SAID.replace(Some(said.clone()))
}

/// Records the message of a panic, if this thread listens. Returns `true` if it does.
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
    SAID.with_borrow(|said| {
        let Some(said) = said else { return false };
        said.push(format!("{message}{place}"));
        true
    })
}
