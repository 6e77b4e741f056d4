//! The renewal window that an authority advises (RFC 9773). It is earlier than planned when the authority will revoke the
//! certificate.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use instant_acme::CertificateIdentifier;
use serde::{Deserialize, Serialize};

use super::files::replace;
use crate::clock::after_1970;
use crate::pem;

/// The renewal window that the authority suggests for a certificate, stored beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Advice {
    /// The identifier of the certificate (§4.1).
    pub(crate) certificate: String,
    /// The window, in seconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Advice {
    /// Returns the stored window of the certificate in `file`; `None` when it belongs to another certificate.
    pub(crate) fn read(file: &Path) -> Option<Self> {
        let advice: Self = serde_json::from_slice(&fs::read(path(file)).ok()?).ok()?;
        (advice.certificate == identifier(file)?.to_string()).then_some(advice)
    }

    /// Returns a time in the window, at `spread` / 255 of it, so that servers differ.
    pub(crate) fn time(&self, spread: u8) -> SystemTime {
        let (start, end) = (after_1970(self.start), after_1970(self.end));
        let window = end.duration_since(start).unwrap_or_default();
        start + window.mul_f64(f64::from(spread) / 255.0)
    }

    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        replace(&path(file), &serde_json::to_vec(self)?, |_| Ok(()))
    }
}

/// Returns the ARI identifier of the certificate in `file`.
pub(crate) fn identifier(file: &Path) -> Option<CertificateIdentifier<'static>> {
    let chain = pem::certificates(file).ok()?;
    let identifier = CertificateIdentifier::try_from(chain.first()?).ok()?;
    Some(identifier.into_owned())
}

/// Returns the file that stores the window of the certificate in `file`.
pub(crate) fn path(file: &Path) -> PathBuf {
    file.with_extension("renewal")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_renewal_time_is_within_the_window() {
        let advice = Advice { certificate: String::new(), start: 1000, end: 2000 };
        let at = |spread| advice.time(spread).duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((at(0), at(255)), (1000, 2000));
        assert!((1400..1600).contains(&at(128)));
        // Invalid times do not cause a panic.
        let wrong = Advice { start: u64::from(u32::MAX), end: 0, ..advice };
        assert!(wrong.time(255) > UNIX_EPOCH);
    }
}
