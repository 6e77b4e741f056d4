//! The verdict on each directive.

use std::collections::HashSet;
use std::fmt;

use crate::directive::{Directive, Place};

/// What becomes of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// It is carried over; the text is a difference that remains, if there is one.
    Carried(Option<String>),
    /// It has no counterpart and needs none, for this reason.
    NotNeeded(String),
    /// It is not carried over; the text is what a request sees.
    Lost(String),
}

/// A verdict on one directive.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The number of the directive in the order of reading.
    id: usize,
    /// Its line.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdicts, in the order of reading.
#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
    known: HashSet<(usize, Verdict)>,
    judged: HashSet<usize>,
}

impl Report {
    pub(crate) fn carried(&mut self, directive: &Directive) {
        self.add(directive, Verdict::Carried(None));
    }

    /// Reports a directive that is carried over with a difference.
    pub(crate) fn differs(&mut self, directive: &Directive, what: impl Into<String>) {
        self.add(directive, Verdict::Carried(Some(what.into())));
    }

    pub(crate) fn not_needed(&mut self, directive: &Directive, why: impl Into<String>) {
        self.add(directive, Verdict::NotNeeded(why.into()));
    }

    pub(crate) fn lost(&mut self, directive: &Directive, what: impl Into<String>) {
        self.add(directive, Verdict::Lost(what.into()));
    }

    /// Reports what cannot be carried over of a place that several directives are behind.
    pub(crate) fn lost_at(&mut self, place: Place, name: String, what: String) {
        let verdict = Verdict::Lost(what);
        self.findings.push(Finding { id: usize::MAX, place, name, verdict });
    }

    /// Returns `true` if there is a verdict on the directive.
    pub(crate) fn has(&self, directive: &Directive) -> bool {
        self.judged.contains(&directive.id)
    }

    fn add(&mut self, directive: &Directive, verdict: Verdict) {
        self.judged.insert(directive.id);
        if self.known.insert((directive.id, verdict.clone())) {
            let (place, name) = (directive.place.clone(), directive.name.clone());
            self.findings.push(Finding { id: directive.id, place, name, verdict });
        }
    }

    /// Sorts by place. A plain verdict is dropped where another one has more to state about the same directive.
    pub(crate) fn sort(&mut self) {
        self.findings.sort_by(|a, b| (a.id, &a.verdict).cmp(&(b.id, &b.verdict)));
        let stated: HashSet<usize> = self
            .findings
            .iter()
            .filter(|finding| {
                !matches!(finding.verdict, Verdict::Carried(None) | Verdict::NotNeeded(_))
            })
            .map(|finding| finding.id)
            .collect();
        let mut carried = HashSet::new();
        self.findings.retain(|finding| match finding.verdict {
            Verdict::Carried(None) => {
                carried.insert(finding.id);
                !stated.contains(&finding.id)
            }
            Verdict::NotNeeded(_) => {
                !stated.contains(&finding.id) && !carried.contains(&finding.id)
            }
            _ => true,
        });
    }

    /// Returns all verdicts.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// Returns the verdicts on what is lost.
    pub fn losses(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Lost(_)))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, name, verdict, .. } = self;
        match verdict {
            Verdict::Carried(None) => write!(f, "{place}: carried: {name}"),
            Verdict::Carried(Some(what)) => write!(f, "{place}: carried: {name}: {what}"),
            Verdict::NotNeeded(why) => write!(f, "{place}: not needed here: {name}: {why}"),
            Verdict::Lost(what) => write!(f, "{place}: lost: {name}: {what}"),
        }
    }
}
