//! The key `error_pages`: what responds in place of an error.

use std::collections::HashMap;
use std::fmt;

use super::file::{ErrorPageTable, PageStatus, Route};
use super::map::Maps;
use super::pattern::Pattern;
use super::redirect::Redirect;
use super::report::Report;
use super::spanned::Spanned;
use super::template::reject_variables;
use super::tries::{Candidate, TryPath};

/// What responds in place of an error.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorPage {
    target: Target,
    /// As in the configuration.
    text: String,
    /// The status of the response; that of the error if absent, unless the page has another than 200.
    pub status: Option<PageStatus>,
}

#[derive(Debug, Clone, PartialEq)]
enum Target {
    /// A path of the site without placeholders, and its query.
    Fixed { path: String, query: Option<String> },
    /// A path of the site that follows from that of the request.
    Path(Box<TryPath>),
    /// Another URL, to which the client is redirected.
    Redirect(Box<Redirect>),
}

impl ErrorPage {
    /// Reads the pages of a route by their status. Errors are reported, and the faulty pages omitted.
    pub(super) fn read(route: &Route, maps: &Maps, report: Report<'_>) -> HashMap<u16, Self> {
        let mut pages = HashMap::new();
        for (key, page) in route.error_pages.iter().flat_map(|pages| &pages.value) {
            let status = key.parse().ok().filter(|status| (400..600).contains(status));
            if status.is_none() {
                let what = "error_pages: the keys are statuses from 400 to 599";
                report(&key.span, what.into());
            }
            let place = page.to.span.as_ref().or(page.span.as_ref()).cloned();
            match Self::of_table(page, maps) {
                Ok(page) => pages.extend(status.map(|status| (status, page))),
                Err(what) => report(&place, format!("error_pages: {what}")),
            }
        }
        pages
    }

    fn of_table(table: &Spanned<ErrorPageTable>, maps: &Maps) -> Result<Self, String> {
        let (text, status) = (table.to.value.clone(), table.status);
        let is_url = ["http://", "https://", "//"].iter().any(|start| text.starts_with(start));
        let redirects = matches!(status, Some(PageStatus::Code(300..400)));
        let is_relative = redirects && text.starts_with("./");
        if !(text.starts_with('/') || is_url || is_relative) || text.contains('\0') {
            return Err(format!("{text:?} is not a path that begins with `/`"));
        }
        let target = if is_url || redirects {
            let status = match status {
                None => 302,
                Some(PageStatus::Code(status @ (301 | 302 | 303 | 307 | 308))) => status,
                Some(_) => {
                    let what = "the status of a redirect is one of 301, 302, 303, 307 and 308";
                    return Err(what.to_owned());
                }
            };
            Target::Redirect(Box::new(Redirect::parse(&text, status, &Pattern::EVERYTHING, maps)?))
        } else if text.starts_with("/{") {
            return Err(format!(
                "{text:?} begins with a placeholder: a client would choose the page"
            ));
        } else if text.contains('{') {
            Target::Path(Box::new(TryPath::of_page(&text)?))
        } else {
            reject_variables(&text, &[])?;
            let (path, query) = match text.split_once('?') {
                Some((path, query)) => (path, Some(query.to_owned())),
                None => (text.as_str(), None),
            };
            Target::Fixed { path: path.to_owned(), query }
        };
        Ok(Self { target, text, status })
    }

    /// Returns `true` if it is that of a table.
    pub(super) fn is_of(&self, table: &ErrorPageTable) -> bool {
        self.text == table.to.value && self.status == table.status
    }

    /// Returns the path without placeholders; `None` for others.
    pub fn fixed_path(&self) -> Option<&str> {
        match &self.target {
            Target::Fixed { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns the URL to which the client is redirected; `None` if a path of the site responds.
    pub fn redirect(&self) -> Option<&Redirect> {
        match &self.target {
            Target::Redirect(redirect) => Some(redirect),
            _ => None,
        }
    }

    /// Returns the path of the site that responds, and its query; `None` for a redirect, and if the path of the request makes the
    /// other one invalid.
    pub fn candidate(&self, path: &[u8], query: Option<&[u8]>) -> Option<Candidate> {
        match &self.target {
            Target::Fixed { path, query } => Some(Candidate {
                path: path.clone().into_bytes(),
                query: query.clone().map(String::into_bytes),
                is_fixed: true,
                is_directory: false,
            }),
            Target::Path(to) => {
                let found = to.expand(path, query, None)?;
                // The query of the request is that of the page only where it is named.
                let query = found.query.filter(|query| to.has_query() && !query.is_empty());
                Some(Candidate { query, is_fixed: true, ..found })
            }
            Target::Redirect(_) => None,
        }
    }
}

impl fmt::Display for ErrorPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.status {
            None => Ok(()),
            Some(PageStatus::OfPage) => f.write_str(" with its own status"),
            Some(PageStatus::Code(status)) => write!(f, " with status {status}"),
        }
    }
}
