//! Record formats.

/// The layout of the records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// A record is text only.
    Variable,
    /// A record begins with `control` bytes that are not text.
    Vfc {
        /// Number of control bytes in each record; 2 in RMS by default.
        control: u16,
    },
}

impl RecordFormat {
    /// Number of control bytes in each record.
    pub(crate) fn control(self) -> usize {
        match self {
            Self::Variable => 0,
            Self::Vfc { control } => usize::from(control),
        }
    }
}
