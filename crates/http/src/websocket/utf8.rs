//! Validation of a text that arrives in parts.

/// The state between two parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Utf8 {
    /// The bytes of a character that is not complete.
    partial: [u8; 3],
    length: u8,
}

impl Utf8 {
    /// Takes the next part. Returns `false` if the text cannot become valid any more.
    pub(super) fn push(&mut self, mut part: &[u8]) -> bool {
        while self.length > 0 {
            let Some((&next, rest)) = part.split_first() else { return true };
            part = rest;
            let mut character = [0; 4];
            let length = usize::from(self.length);
            character[..length].copy_from_slice(&self.partial[..length]);
            character[length] = next;
            match std::str::from_utf8(&character[..=length]) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_some() || length == 3 => return false,
                Err(_) => {
                    self.partial[length] = next;
                    self.length += 1;
                }
            }
        }
        match std::str::from_utf8(part) {
            Ok(_) => true,
            Err(error) if error.error_len().is_some() => false,
            Err(error) => {
                let rest = &part[error.valid_up_to()..];
                self.partial[..rest.len()].copy_from_slice(rest);
                self.length = rest.len() as u8;
                true
            }
        }
    }

    /// Returns `true` if the text may end here.
    pub(super) fn is_complete(self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_valid(text: &[u8], size: usize) -> bool {
        let mut utf8 = Utf8::default();
        text.chunks(size).all(|part| utf8.push(part)) && utf8.is_complete()
    }

    #[test]
    fn invalid_text_is_found_at_its_first_wrong_byte() {
        let mut utf8 = Utf8::default();
        assert!(utf8.push(b"\xf4") && !utf8.push(b"\x90"), "beyond U+10FFFF");
        let mut utf8 = Utf8::default();
        assert!(utf8.push(b"\xed") && !utf8.push(b"\xa0"), "a surrogate");
        let mut utf8 = Utf8::default();
        assert!(utf8.push(b"\xe2\x82") && !utf8.is_complete());
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_result(text in ".{0,20}", wrong in any::<u8>(), at in 0_usize..40, size in 1_usize..6) {
            prop_assert!(is_valid(text.as_bytes(), size));
            let mut bytes = text.into_bytes();
            bytes.insert(at.min(bytes.len()), wrong);
            prop_assert_eq!(is_valid(&bytes, size), std::str::from_utf8(&bytes).is_ok());
        }
    }
}
