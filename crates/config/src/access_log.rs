//! Access logs: where lines go, their form, and which requests have one.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::log_format::AccessLogFormat;

/// An access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// A path, or `-` for standard output.
    pub path: PathBuf,
    /// The format of a line.
    pub format: AccessLogFormat,
    /// The first and the last status of each range that is logged; empty for all.
    pub statuses: Vec<(u16, u16)>,
    /// Requests of a million that are logged; `None` for all.
    pub sample: Option<u32>,
    /// Further logs of the same requests.
    pub also: Vec<AccessLog>,
}

impl AccessLog {
    /// Returns this log and the further ones.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self)
            .chain(self.also.iter().flat_map(|log| std::iter::once(log).chain(&log.also)))
    }

    /// Returns a number that logs with the same settings have.
    pub fn number(&self) -> u64 {
        let digest = Sha256::digest(format!("{self:?}"));
        digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// Returns the range of a status or of a class of statuses.
pub(super) fn statuses(text: &str) -> Option<(u16, u16)> {
    if let Some(class) = text.strip_suffix("xx") {
        let class = class.parse::<u16>().ok().filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let status = text.parse::<u16>().ok().filter(|status| (100..600).contains(status))?;
    Some((status, status))
}

/// Returns the share of requests, in millionths.
pub(super) fn share(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    let millionths = percent * 10_000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 1,000,000"
    )]
    (0.0..=1_000_000.0).contains(&millionths).then(|| millionths.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_shares_are_read() {
        assert_eq!(statuses("404"), Some((404, 404)));
        assert_eq!(statuses("5xx"), Some((500, 599)));
        assert!(["6xx", "99", "x", "-1xx"].into_iter().all(|text| statuses(text).is_none()));
        assert_eq!(
            (share("1%"), share("0.01 %"), share("100%")),
            (Some(10_000), Some(100), Some(1_000_000))
        );
        assert!(["1", "101%", "-1%", "NaN%"].into_iter().all(|text| share(text).is_none()));
    }
}
