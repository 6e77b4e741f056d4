//! Files in the record formats of OpenVMS (VARIABLE, VFC), converted to lines.
//!
//! OpenVMS's record management (RMS) stores sequential text as records, not as lines. On disk a record is a length of two
//! bytes (little-endian), the bytes of the record, and one byte of padding after an odd length, so that each length starts
//! at an even offset. In VFC files (variable with fixed control), each record begins with control bytes for printers: the
//! same number in every record of the file. The length includes them; the text does not.
//!
//! The layout leaves three cases open:
//! - A length of 0xFFFF (-1) marks the rest of a 512-byte block as unused. RMS writes it where records may not span
//!   blocks. The next record begins at the next block; the file ends if there is none.
//! - RMS limits records to 32,767 bytes. Lengths up to 65,534 are unambiguous and accepted.
//! - The padding of the last record may be missing, as some transfer programs remove it.

pub(crate) mod convert;
pub(crate) mod error;
pub(crate) mod stored_copy;
