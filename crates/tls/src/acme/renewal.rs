//! When a certificate is renewed.

use std::path::Path;
use std::time::SystemTime;

use super::advice::Advice;
use crate::certificate;

/// Returns the time at which to renew the certificate in `file`; now when there is none. The authority's renewal window
/// applies between 1 % and 95 % of the lifetime. Without one, it is when a third of the lifetime is left, or up to a
/// twentieth earlier, so that many servers do not renew in the same hour.
pub(crate) fn renewal(file: &Path) -> SystemTime {
    let usable = certificate::check_pair(file, file).and_then(|()| certificate::validity(file));
    let Ok(validity) = usable else { return SystemTime::now() };
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    if let Some(advice) = Advice::read(file) {
        // Bounds against a wrong window: neither hourly renewal nor none at all.
        let (first, last) = (life.mul_f64(0.01), life.mul_f64(0.95));
        return advice.time(validity.spread).clamp(validity.from + first, validity.from + last);
    }
    let earlier = f64::from(validity.spread) / 255.0 / 20.0;
    validity.from + life.mul_f64(2.0 / 3.0 - earlier)
}
