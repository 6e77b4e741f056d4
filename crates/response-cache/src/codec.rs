//! Numbers and texts as bytes.

/// Bytes that are written.
#[derive(Debug, Default)]
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.0.push(flag.into());
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text);
    }

    pub(crate) fn optional(&mut self, text: Option<&[u8]>) {
        self.flag(text.is_some());
        text.into_iter().for_each(|text| self.text(text));
    }
}

/// Bytes that are left to read. Each method returns `None` if they are not what it reads.
#[derive(Debug)]
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.0.split_first()?;
        self.0 = rest;
        (*flag <= 1).then_some(*flag == 1)
    }

    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// Returns the inner `None` if there is no text.
    pub(crate) fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        Some(if self.flag()? { Some(self.text()?) } else { None })
    }
}
