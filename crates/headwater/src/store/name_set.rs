//! Sets of names, compared as the file systems of this system compare names; the names of a session's files.

use std::borrow::Cow;
use std::collections::BTreeSet;

use headwater_proto::delivery::{RelativePath, StoreError};

/// Whether the file systems of this system, as they come, take names that differ in case alone for one name.
pub(super) const IGNORES_CASE: bool = cfg!(any(windows, target_vendor = "apple"));

/// Names below a folder. On macOS and Windows, names that differ in case alone are one name.
#[derive(Clone, Debug)]
pub struct NameSet {
    keys: BTreeSet<String>,
    ignores_case: bool,
}

impl Default for NameSet {
    fn default() -> Self {
        Self::new(IGNORES_CASE)
    }
}

impl<'p> FromIterator<&'p RelativePath> for NameSet {
    fn from_iter<I: IntoIterator<Item = &'p RelativePath>>(names: I) -> Self {
        let mut set = Self::default();
        for name in names {
            set.insert(name);
        }
        set
    }
}

impl NameSet {
    /// Creates an empty set. With `ignores_case`, names that differ in case alone are one name.
    pub fn new(ignores_case: bool) -> Self {
        Self { keys: BTreeSet::new(), ignores_case }
    }

    /// Adds a name. Returns false if the set has the name.
    pub fn insert(&mut self, path: &RelativePath) -> bool {
        self.keys.insert(key(path, self.ignores_case).into_owned())
    }

    /// Whether the set has a name.
    pub fn contains(&self, path: &RelativePath) -> bool {
        self.keys.contains(&*key(path, self.ignores_case))
    }

    /// Whether the set has a name below a folder.
    pub(super) fn has_below(&self, folder: &RelativePath) -> bool {
        let below = format!("{}/", key(folder, self.ignores_case));
        self.keys.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below))
    }

    /// Whether the set has a name, or a folder above the name.
    pub(super) fn has_at_or_above(&self, path: &RelativePath) -> bool {
        let name = key(path, self.ignores_case);
        let mut folders = name.match_indices('/').map(|(slash, _)| &name[..slash]);
        self.keys.contains(&*name) || folders.any(|folder| self.keys.contains(folder))
    }
}

/// Returns the form in which equal names are the same. With `ignores_case`: each character in upper case,
/// then in lower case, since some characters share one of the cases only.
pub(super) fn key(path: &RelativePath, ignores_case: bool) -> Cow<'_, str> {
    let name = path.as_str();
    if !ignores_case {
        return name.into();
    }
    let upper = name.chars().flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).collect::<String>().into()
}

/// Names taken by the files of a session.
#[derive(Debug, Default)]
pub(super) struct Names(NameSet);

impl Names {
    /// Refuses a name taken twice, and a name used for both a file and a folder.
    pub(super) fn check(&self, path: &RelativePath) -> Result<(), StoreError> {
        if self.0.has_below(path) { Err(in_the_way(path)) } else { self.check_folder(path) }
    }

    /// Refuses a folder in the place of a file, or below a file.
    pub(super) fn check_folder(&self, path: &RelativePath) -> Result<(), StoreError> {
        if self.0.has_at_or_above(path) { Err(in_the_way(path)) } else { Ok(()) }
    }

    pub(super) fn take(&mut self, path: &RelativePath) {
        self.0.insert(path);
    }
}

fn in_the_way(path: &RelativePath) -> StoreError {
    StoreError(format!("another file of the session stands in the way of '{path}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> RelativePath {
        RelativePath::new(name).unwrap()
    }

    fn set(ignores_case: bool, names: &[&str]) -> NameSet {
        let mut set = NameSet::new(ignores_case);
        assert!(names.iter().all(|name| set.insert(&path(name))));
        set
    }

    #[test]
    fn names_that_differ_in_case_are_one_name_where_case_is_ignored() {
        for (one, other) in [("A/b", "a/B"), ("É", "é"), ("ſ", "S"), ("K", "k"), ("ΑΣ/x", "ας/X")] {
            assert!(set(true, &[one]).contains(&path(other)), "{one} {other}");
            assert!(!set(false, &[one]).contains(&path(other)), "{one} {other}");
            assert!(!set(true, &[one]).insert(&path(other)), "{one} {other}");
        }
        assert!(!set(true, &["a"]).contains(&path("b")));
    }

    #[test]
    fn folders_above_and_names_below_are_found_in_any_case() {
        let (ignores, heeds) = (set(true, &["D/E/f"]), set(false, &["D/E/f"]));
        assert!(ignores.has_below(&path("d/e")) && !ignores.has_below(&path("d/e/f")));
        assert!(ignores.has_at_or_above(&path("d/e/F/g")) && !ignores.has_at_or_above(&path("d/e")));
        assert!(heeds.has_below(&path("D")) && !heeds.has_below(&path("d")));
        assert!(heeds.has_at_or_above(&path("D/E/f")) && !heeds.has_at_or_above(&path("d/E/f")));
    }
}
