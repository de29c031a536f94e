//! The files, by name. `tests/corpus.rs` holds that none is left out.

/// Each file's name and its text.
pub(super) const FILES: &[(&str, &str)] = &[];
