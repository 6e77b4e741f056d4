//! Incremental parser of chunk extensions (RFC 9112 §7.1.1).

use crate::semantics::token::is_token_byte;

/// Position in the grammar after the last byte:
/// `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// In whitespace before a semicolon.
    BeforeSemicolon,
    /// After a semicolon.
    BeforeName,
    Name,
    /// In whitespace after a name.
    AfterName,
    /// After an equals sign.
    BeforeValue,
    Value,
    Quoted,
    /// After the backslash of a quoted pair.
    QuotedPair,
    /// After the closing quotation mark.
    AfterQuoted,
}

use Position::{
    AfterName, AfterQuoted, BeforeName, BeforeSemicolon, BeforeValue, Name, Quoted, QuotedPair,
    Value,
};

impl Position {
    /// Returns the position after the first `byte` behind a chunk size; `None` if no extension begins with it.
    pub(super) fn first(byte: u8) -> Option<Self> {
        match byte {
            b';' => Some(BeforeName),
            b' ' | b'\t' => Some(BeforeSemicolon),
            _ => None,
        }
    }

    /// Returns the position after `byte`; `None` if the grammar does not permit it here.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Quoted, b'"') => AfterQuoted,
            (Quoted, b'\\') => QuotedPair,
            (Quoted | QuotedPair, b'\t' | 0x20..=0x7e | 0x80..) => Quoted,
            (BeforeSemicolon | Name | AfterName | Value | AfterQuoted, b';') => BeforeName,
            (BeforeSemicolon | Value | AfterQuoted, b' ' | b'\t') => BeforeSemicolon,
            (BeforeName | AfterName | BeforeValue, b' ' | b'\t') => self,
            (Name, b' ' | b'\t') => AfterName,
            (Name | AfterName, b'=') => BeforeValue,
            (BeforeValue, b'"') => Quoted,
            (BeforeName | Name, byte) if is_token_byte(byte) => Name,
            (BeforeValue | Value, byte) if is_token_byte(byte) => Value,
            _ => return None,
        })
    }

    /// Returns `true` if the extensions can end here.
    pub(super) fn may_end(self) -> bool {
        matches!(self, Name | Value | AfterQuoted)
    }
}
