//! Users and groups of `/etc/passwd` and `/etc/group`.

/// User and groups of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// User ID; the server's own if absent.
    pub user: Option<u32>,
    /// Group ID.
    pub group: u32,
    /// Supplementary group IDs.
    pub groups: Vec<u32>,
}

/// The system's users and groups.
pub(super) struct Names {
    passwd: String,
    group: String,
}

impl Names {
    /// Reads the files. A file that cannot be read counts as empty.
    pub(super) fn load() -> Self {
        let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// Finds user ID, group ID and supplementary groups by name or number.
    pub(super) fn user(&self, user: &str) -> Option<Owner> {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let known = self
            .passwd
            .lines()
            .map(fields)
            .find(|fields| fields.len() > 3 && (fields[0] == user || fields[2] == user))?;
        let (number, group) = (known[2].parse().ok()?, known[3].parse().ok()?);
        let member = |fields: &Vec<String>| {
            fields.len() > 3 && fields[3].split(',').any(|name| name == known[0])
        };
        let more = self.group.lines().map(fields).filter(member);
        let more = more.filter_map(|fields| fields[2].parse().ok()).filter(|&other| other != group);
        Some(Owner { user: Some(number), group, groups: more.collect() })
    }

    /// Finds a group ID by name or number.
    pub(super) fn group(&self, group: &str) -> Option<u32> {
        let mut lines = self.group.lines().map(|line| line.split(':'));
        lines.find_map(|mut fields| {
            let name = fields.next()?;
            let number = fields.nth(1)?;
            (name == group || number == group).then(|| number.parse().ok())?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let names = Names {
            passwd: "root:x:0:0::/:/bin/sh\nann:x:1000:100::/home/ann:\nbad\n".into(),
            group: "users:x:100:ann\nweb:x:33:bob,ann\nstaff:x:50:anna\n".into(),
        };
        let ann = Owner { user: Some(1000), group: 100, groups: vec![33] };
        assert_eq!(names.user("ann"), Some(ann.clone()));
        assert_eq!(names.user("1000"), Some(ann));
        assert_eq!((names.user("an"), names.user("x"), names.user("")), (None, None, None));
        assert_eq!(
            (names.group("web"), names.group("33"), names.group("x")),
            (Some(33), Some(33), None)
        );
    }
}
