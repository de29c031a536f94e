//! Jute, the encoding of ZooKeeper's messages: big-endian numbers, and bytes and lists after their
//! length.

/// The rest of a message. Every method returns `None` if the message is too short or malformed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn int(&mut self) -> Option<i32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*number))
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i64::from_be_bytes(*number))
    }

    pub(crate) fn boolean(&mut self) -> Option<bool> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte != 0)
    }

    /// Bytes; null is read as empty.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?.max(0)).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(crate) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        (0..self.int()?.max(0)).map(|_| one(self)).collect()
    }
}

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn boolean(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.int(length(bytes.len()));
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn texts<T: AsRef<str>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        let texts: Vec<T> = texts.into_iter().collect();
        let counted = self.int(length(texts.len()));
        texts.iter().fold(counted, |writer, text| writer.text(text.as_ref()))
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }

    /// The bytes on the wire: the length, then the message.
    pub(crate) fn frame(self) -> Vec<u8> {
        Self::default().bytes(&self.0).done()
    }
}

fn length(length: usize) -> i32 {
    i32::try_from(length).expect("a message is short")
}
