//! The forms of a file for dictionaries, which are kept with it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dunlin_dictionary::Hash;

use crate::cache::resource::Representation;

/// What is known of a file as a dictionary, and of dictionaries for it.
#[derive(Debug, Default)]
pub(crate) struct Dictionaries {
    /// A copy of it is or was being kept.
    pub(super) is_begun: AtomicBool,
    /// The value of `Use-As-Dictionary`; `None` if no copy could be kept.
    pub(super) offer: OnceLock<Option<Box<str>>>,
    forms: Mutex<Vec<(Hash, Form)>>,
}

#[derive(Debug)]
pub(super) enum Form {
    /// It is being made.
    Pending,
    /// It is not smaller than other codings.
    Useless,
    Made(Arc<Representation>),
}

/// A file has at most this many forms; clients with the oldest of many versions get another coding.
const MAX_FORMS: usize = 8;

impl Dictionaries {
    /// Returns the bytes and the descriptors that its forms occupy.
    pub(crate) fn cost(&self) -> (usize, usize) {
        let forms = self.forms();
        let made = forms.iter().filter_map(|(_, form)| match form {
            Form::Made(form) => Some(form.body.cost()),
            Form::Pending | Form::Useless => None,
        });
        made.fold((0, 0), |(bytes, descriptors), (b, d)| (bytes + b, descriptors + d))
    }

    /// Reserves the form for a dictionary; `false` if it is known or being made, or there are too many.
    pub(super) fn reserve(&self, hash: Hash) -> bool {
        let mut forms = self.forms();
        if forms.iter().any(|(known, _)| *known == hash) {
            return false;
        }
        if forms.len() >= MAX_FORMS {
            let ended = forms.iter().position(|(_, form)| !matches!(form, Form::Pending));
            let Some(oldest) = ended else { return false };
            forms.remove(oldest);
        }
        forms.push((hash, Form::Pending));
        true
    }

    pub(super) fn set(&self, hash: &Hash, form: Form) {
        let mut forms = self.forms();
        if let Some((_, known)) = forms.iter_mut().find(|(known, _)| known == hash) {
            *known = form;
        }
    }

    pub(super) fn forms(&self) -> MutexGuard<'_, Vec<(Hash, Form)>> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
