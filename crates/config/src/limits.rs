//! Limits of this process.

/// Returns the maximum number of open descriptors.
pub fn descriptor_limit() -> usize {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .map_or(65_536, |limit| limit as usize)
}
