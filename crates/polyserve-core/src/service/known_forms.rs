//! What a service knows of the JSON of large entities: its length and its tag, for the version that the repo gives.
//!
//! A HEAD, a 304 and a 412 need no more. So a client cannot make the service write and hash a large entity by requests of a few
//! bytes: each version is written and hashed once, while no write of its stripe is in progress. A repo without versions, such as
//! one over an engine, has no known forms.
//!
//! Invariant: the form of a version is that of its JSON. So JSON is noted, and the form of a version is used for JSON, only if
//! the version was the same before and after the get that found the JSON.
//!
//! Cost: a lookup takes a shared lock and clones nothing. At most [`MAX_ENTRIES`] entries are kept, and none of an entity with less
//! than [`MIN_LENGTH`] bytes of JSON: to write it again costs about as much as to find its entry.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::condition::ETag;
use crate::sync::{RwLock, read, write};

/// The length of JSON from which on an entity is known.
pub(super) const MIN_LENGTH: usize = 4096;

/// The maximum number of entries. A further one takes the place of any other.
const MAX_ENTRIES: usize = 1024;

/// The JSON of one version of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownForm {
    pub(super) length: usize,
    /// `None` if the service has no tags.
    pub(super) etag: Option<ETag>,
}

impl KnownForm {
    /// Returns the form of JSON that was written now. Hashes it if `etags`.
    fn of(json: &[u8], etags: bool) -> Self {
        Self { length: json.len(), etag: etags.then(|| ETag::of(json)) }
    }
}

/// The known forms by id, each with its version. A clone is the same.
pub(super) struct KnownForms<I> {
    forms: Arc<RwLock<HashMap<I, (u64, KnownForm)>>>,
}

impl<I: Eq + Hash + Clone> KnownForms<I> {
    /// Returns the form of this version.
    pub(super) fn get(&self, id: &I, version: Option<u64>) -> Option<KnownForm> {
        let version = version?;
        let (known, form) = *read(&self.forms).get(id)?;
        (known == version).then_some(form)
    }

    /// Returns the form of `json`, which was read after the repo gave `version`. `is_current` returns whether the repo still gives
    /// that version: then `json` is of that version, and its form is noted. Otherwise a write has begun in between, and `json`
    /// may be of a later version.
    pub(super) fn of(
        &self,
        id: &I,
        version: Option<u64>,
        json: &[u8],
        etags: bool,
        is_current: impl FnOnce(u64) -> bool,
    ) -> KnownForm {
        let version = version.filter(|version| json.len() >= MIN_LENGTH && is_current(*version));
        let Some(version) = version else { return KnownForm::of(json, etags) };
        if let Some(form) = self.get(id, Some(version)) {
            return form;
        }
        let form = KnownForm::of(json, etags);
        let mut forms = write(&self.forms);
        if forms.len() >= MAX_ENTRIES
            && !forms.contains_key(id)
            && let Some(other) = forms.keys().next().cloned()
        {
            forms.remove(&other);
        }
        forms.insert(id.clone(), (version, form));
        form
    }
}

impl<I> Clone for KnownForms<I> {
    fn clone(&self) -> Self {
        Self { forms: Arc::clone(&self.forms) }
    }
}

impl<I> Default for KnownForms<I> {
    fn default() -> Self {
        Self { forms: Arc::default() }
    }
}
