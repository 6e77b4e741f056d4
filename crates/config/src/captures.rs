//! What a pattern captures of a path.

/// The parts of a path for the placeholders of templates.
#[derive(Debug, Clone)]
pub(super) struct Captures<'r, 'p> {
    rest: &'p [u8],
    /// Groups of a regular expression, by number.
    groups: Vec<Option<&'p [u8]>>,
    /// Names of the groups; each in the place of its number.
    names: Vec<Option<&'r str>>,
}

impl<'r, 'p> Captures<'r, 'p> {
    /// Creates the captures of a pattern with a `*`, which matches `rest`.
    pub(super) fn of_rest(rest: &'p [u8]) -> Self {
        Self { rest, groups: Vec::new(), names: Vec::new() }
    }

    /// Creates the captures of a regular expression. The first group is the whole match.
    pub(super) fn of_groups(
        rest: &'p [u8],
        groups: Vec<Option<&'p [u8]>>,
        names: Vec<Option<&'r str>>,
    ) -> Self {
        Self { rest, groups, names }
    }

    /// Returns the value of the placeholder `rest`.
    pub(super) fn rest(&self) -> &'p [u8] {
        self.rest
    }

    /// Returns the group of that name or number; `None` if it is none or matches nothing.
    pub(super) fn group(&self, name: &str) -> Option<&'p [u8]> {
        let at = match name.parse::<usize>() {
            Ok(number) => number,
            Err(_) => self.names.iter().position(|other| *other == Some(name))?,
        };
        *self.groups.get(at)?
    }
}
