//! Priorities of responses (RFC 9218).

/// Urgency of a response, and whether the client can process it incrementally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0 (most urgent) to 7; 3 by default.
    pub urgency: u8,
    /// The client can process parts of the response. Such responses share the bandwidth of their urgency.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Returns a key by which the streams that can be sent on are sorted (RFC 9218 §10): the most urgent one is first. Among
    /// equals, non-incremental responses go first and in the order of their requests; incremental ones take turns, by the
    /// sequence number of what was sent last on each.
    pub(crate) fn order(self, last_sent: u64, stream: u64) -> (u8, bool, u64, u64) {
        let turn = if self.incremental { last_sent } else { 0 };
        (self.urgency, self.incremental, turn, stream)
    }

    /// Parses the value of a `priority` field. Unknown members and invalid values have no effect (RFC 9218 §4).
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&byte| byte == b',') {
            // No parameters of members are defined.
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_members_are_parsed_and_others_ignored() {
        let of = |urgency, incremental| Priority { urgency, incremental };
        for (value, expected) in [
            ("", of(3, false)),
            ("u=0", of(0, false)),
            ("u=5, i", of(5, true)),
            ("i;a=1,u=1;b", of(1, true)),
            ("i, i=?0", of(3, false)),
            ("u=8, i=1, x=2", of(3, false)),
            ("u=-1", of(3, false)),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
