//! The format in which Curator's `DistributedQueue` writes the items of a node: a version, the
//! length and the bytes of each item, an end.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use synod_core::error::{Error, ErrorKind, Result};

/// The action that error messages name.
const DOING: &str = "writing items for Curator";

const VERSION: u32 = 0x0001_0001;
const ITEM: u8 = 1;
const END: u8 = 2;

/// Writes items.
pub(super) fn encode(items: &[Bytes]) -> Result<Bytes> {
    let mut data = BytesMut::new();
    data.put_u32(VERSION);
    for item in items {
        let Ok(length) = i32::try_from(item.len()) else {
            return Err(Error::new(ErrorKind::TooLarge, DOING).because("an item is too long"));
        };
        data.put_u8(ITEM);
        data.put_i32(length);
        data.extend_from_slice(item);
    }
    data.put_u8(END);
    Ok(data.freeze())
}

/// Reads items. `None` if they are not in this format.
pub(super) fn decode(data: &Bytes) -> Option<Vec<Bytes>> {
    let (mut rest, mut items) = (data.clone(), Vec::new());
    if rest.try_get_u32().ok()? != VERSION {
        return None;
    }
    loop {
        match rest.try_get_u8().ok()? {
            END => return Some(items),
            ITEM => {
                let length = usize::try_from(rest.try_get_i32().ok()?).ok()?;
                if rest.remaining() < length {
                    return None;
                }
                items.push(rest.split_to(length));
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_they_were_written() {
        for items in [vec![], vec![Bytes::new()], vec![Bytes::from("one"), Bytes::from("\u{2}two")]]
        {
            assert_eq!(decode(&encode(&items).expect("short")), Some(items));
        }
        let one = [0, 1, 0, 1, 1, 0, 0, 0, 2, b'h', b'i', 2];
        assert_eq!(decode(&Bytes::copy_from_slice(&one)), Some(vec![Bytes::from("hi")]));
    }

    #[test]
    fn what_is_cut_off_or_of_another_version_is_not_read() {
        let whole = encode(&[Bytes::from("one")]).expect("short");
        for length in 0..whole.len() {
            assert_eq!(decode(&whole.slice(..length)), None, "{length}");
        }
        assert_eq!(decode(&Bytes::from_static(&[0, 1, 0, 2, 2])), None);
        assert_eq!(decode(&Bytes::from_static(&[0, 1, 0, 1, 3])), None);
        assert_eq!(decode(&Bytes::from_static(&[0, 1, 0, 1, 1, 255, 255, 255, 255, 2])), None);
    }
}
