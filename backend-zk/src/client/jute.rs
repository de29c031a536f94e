//! Jute, the encoding of ZooKeeper's messages: numbers are big-endian, and data of variable length
//! begins with its length.

use crate::client::node::ZkStat;
use crate::client::zk_error::ZkError;

/// Writes a message.
#[derive(Debug, Default)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    /// Begins with this many zeros, to be overwritten later.
    pub(super) fn after(zeros: usize) -> Self {
        let mut bytes = Vec::with_capacity(zeros + 128);
        bytes.resize(zeros, 0);
        Self(bytes)
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(super) fn int(&mut self, number: i32) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, number: i64) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.buffer(text.as_bytes())
    }

    pub(super) fn texts<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t str>) -> &mut Self {
        self.length(texts.len());
        for text in texts {
            self.text(text);
        }
        self
    }

    /// No server accepts a message of the largest length.
    fn length(&mut self, length: usize) {
        self.int(i32::try_from(length).unwrap_or(i32::MAX));
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a message.
#[derive(Debug)]
pub(super) struct Decoder<'a>(&'a [u8]);

const SHORT: ZkError = ZkError::Malformed("it is too short");

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ZkError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], ZkError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn flag(&mut self) -> Result<bool, ZkError> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn int(&mut self) -> Result<i32, ZkError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, ZkError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Empty if the length is -1, by which servers mark absent data.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], ZkError> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| SHORT)?),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, ZkError> {
        std::str::from_utf8(self.buffer()?).map_err(|_| ZkError::Malformed("it is no UTF-8"))
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, ZkError> {
        let count = match self.int()? {
            -1 => 0,
            count => usize::try_from(count).map_err(|_| SHORT)?,
        };
        // Each has a length of at least four bytes: this limits the reserved memory to the received
        // bytes.
        let mut texts = Vec::with_capacity(count.min(self.0.len() / 4));
        for _ in 0..count {
            texts.push(self.text()?.to_owned());
        }
        Ok(texts)
    }

    pub(super) fn stat(&mut self) -> Result<ZkStat, ZkError> {
        let (czxid, mzxid) = (self.long()?, self.long()?);
        let _times = (self.long()?, self.long()?);
        let (version, cversion, aversion) = (self.int()?, self.int()?, self.int()?);
        let ephemeral_owner = self.long()?;
        let _data_length = self.int()?;
        let (num_children, pzxid) = (self.int()?, self.long()?);
        Ok(ZkStat {
            czxid,
            mzxid,
            pzxid,
            version,
            cversion,
            aversion,
            ephemeral_owner,
            num_children,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let mut message = Encoder::after(2);
        message.flag(true).int(-7).long(1 << 40).buffer(b"ab").text("\u{e9}");
        message.texts(["x", ""].into_iter());
        let message = message.finish();
        assert_eq!(message[..2], [0, 0]);
        let mut reading = Decoder::new(&message[2..]);
        assert_eq!(reading.flag(), Ok(true));
        assert_eq!((reading.int(), reading.long()), (Ok(-7), Ok(1 << 40)));
        assert_eq!((reading.buffer(), reading.text()), (Ok(&b"ab"[..]), Ok("\u{e9}")));
        assert_eq!(reading.texts(), Ok(vec!["x".to_owned(), String::new()]));
        assert!(reading.is_empty());
    }

    #[test]
    fn what_is_cut_off_or_lies_about_its_length_is_an_error() {
        let whole = {
            let mut message = Encoder::default();
            message.texts(["abc", "def"].into_iter());
            message.finish()
        };
        for length in 0..whole.len() {
            assert!(Decoder::new(&whole[..length]).texts().is_err(), "{length}");
        }
        for length in [i32::MAX, -2, i32::MIN] {
            let mut lie = Encoder::default();
            lie.int(length);
            let lie = lie.finish();
            assert!(Decoder::new(&lie).texts().is_err(), "{length}");
            assert!(Decoder::new(&lie).buffer().is_err(), "{length}");
        }
        let mut nothing = Encoder::default();
        nothing.int(-1).int(-1).buffer(&[0xff]);
        let nothing = nothing.finish();
        let mut reading = Decoder::new(&nothing);
        assert_eq!((reading.texts(), reading.buffer()), (Ok(vec![]), Ok(&[][..])));
        assert!(reading.text().is_err());
        assert!(Decoder::new(&[0; 67]).stat().is_err());
    }
}
