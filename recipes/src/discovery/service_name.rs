//! [`text_of`]: the name of a service or of an instance, from that of its node.

use synod_core::name::Name;

/// The text that a name was made of. Names of other programs that this library would not write are left as they are.
pub(super) fn text_of(name: &str) -> String {
    let decoded = Name::new(name).ok().and_then(|name| name.decode());
    decoded.unwrap_or_else(|| name.to_owned())
}
