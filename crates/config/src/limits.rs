//! Limits of this process.

use std::path::Path;

/// Returns the maximum number of open descriptors.
pub fn descriptor_limit() -> usize {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .map_or(65_536, |limit| limit as usize)
}

/// Returns the size of the file cache unless the configuration has one, in bytes: a sixteenth of the memory of the machine
/// or of the container, but at least 32 MiB and at most 1 GiB.
pub(crate) fn default_cache_size() -> usize {
    share_for_cache(memory())
}

/// Returns the memory of requests and responses in progress unless the configuration has a limit, in bytes: a quarter of
/// the memory of the machine or of the container, but at least 64 MiB.
pub(crate) fn default_memory() -> u64 {
    share_for_messages(memory())
}

/// Returns the memory of the machine or of the container.
fn memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    memory_of_machine().min(memory_of_groups(&groups, Path::new("/sys/fs/cgroup")))
}

fn share_for_messages(memory: u64) -> u64 {
    (memory / 4).max(64 << 20)
}

fn share_for_cache(memory: u64) -> usize {
    (memory / 16).clamp(32 << 20, 1 << 30) as usize
}

fn memory_of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// Returns the lowest memory limit of the control groups that `groups`, the content of `/proc/self/cgroup`, names, and of
/// their ancestors. `mounted` is where control groups are mounted: version 2, or the controllers of version 1.
fn memory_of_groups(groups: &str, mounted: &Path) -> u64 {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ => (mounted.join("memory"), "memory.limit_in_bytes"),
        };
        let is_of_memory = controllers.is_empty() || controllers.split(',').any(|c| c == "memory");
        let group = root.join(path.trim_start_matches('/'));
        // Without a namespace of its own, a container sees its group at the root.
        let above = group.ancestors().filter(|group| group.starts_with(&root));
        let above: Vec<_> = above.filter(|_| is_of_memory).map(|group| group.join(file)).collect();
        above.into_iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
    });
    limits.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_cache_gets_a_sixteenth_of_the_memory_within_bounds() {
        assert_eq!(share_for_cache(4 << 30), 256 << 20);
        assert_eq!(share_for_cache(64 << 20), 32 << 20);
        assert_eq!(share_for_cache(u64::MAX), 1 << 30);
        assert!(memory_of_machine() > 64 << 20);
        assert_eq!(share_for_messages(4 << 30), 1 << 30);
        assert_eq!(share_for_messages(64 << 20), 64 << 20);
    }

    #[test]
    fn the_lowest_limit_of_a_control_group_and_its_ancestors_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(memory_of_groups("0::/a/b\n", root), u64::MAX);
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("memory.max", "3000\n");
        assert_eq!(memory_of_groups("0::/a/b\n", root), 1000);
        assert_eq!(memory_of_groups("0::/\n", root), 3000);
        write("memory/c/memory.limit_in_bytes", "500\n");
        assert_eq!(memory_of_groups("5:cpu,memory:/c\n1:name=systemd:/d\n", root), 500);
        assert_eq!(memory_of_groups("5:cpuset:/c\n", root), u64::MAX);
    }
}
