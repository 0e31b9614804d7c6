//! Files that a receiver wants, by patterns of names.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use headwater_proto::delivery::RelativePath;

/// Patterns of wanted and unwanted names. Default: every file is wanted.
///
/// A pattern with a slash is compared with the whole name, where `*` ends at a slash and `**` does not; other
/// patterns are compared with the name alone, in any folder. A pattern that fits a folder fits all below.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Option<Patterns>,
    exclude: Option<Patterns>,
}

#[derive(Clone, Debug)]
struct Patterns {
    /// For whole names.
    whole: GlobSet,
    /// For the last component.
    last: GlobSet,
}

/// Pattern that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the pattern cannot be read: {0}")]
pub struct PatternError(#[from] globset::Error);

impl Selection {
    /// Wants the files that fit a pattern of `include`, or all files if `include` is empty, except files
    /// that fit a pattern of `exclude`.
    ///
    /// # Errors
    /// If a pattern cannot be read.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, PatternError> {
        Ok(Self { include: Patterns::new(include)?, exclude: Patterns::new(exclude)? })
    }

    /// Whether a file is wanted.
    pub fn wants(&self, path: &RelativePath) -> bool {
        let fits = |patterns: &Patterns| patterns.fit(path.as_str());
        self.include.as_ref().is_none_or(fits) && !self.exclude.as_ref().is_some_and(fits)
    }
}

impl Patterns {
    fn new(patterns: &[String]) -> Result<Option<Self>, PatternError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let (mut whole, mut last) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let trimmed = pattern.trim_end_matches('/');
            let set = if trimmed.contains('/') { &mut whole } else { &mut last };
            set.add(GlobBuilder::new(trimmed.trim_start_matches('/')).literal_separator(true).build()?);
        }
        Ok(Some(Self { whole: whole.build()?, last: last.build()? }))
    }

    fn fit(&self, name: &str) -> bool {
        let ends = name.match_indices('/').map(|(slash, _)| slash).chain([name.len()]);
        let mut start = 0;
        for end in ends {
            if self.whole.is_match(&name[..end]) || self.last.is_match(&name[start..end]) {
                return true;
            }
            start = end + 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(include: &[&str], exclude: &[&str]) -> Vec<&'static str> {
        let owned = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let selection = Selection::new(&owned(include), &owned(exclude)).unwrap();
        let names = ["a.jpg", "photos/b.jpg", "photos/raw/c.nef", "raw/d.nef", "e.txt"];
        let wants = |name: &&str| selection.wants(&RelativePath::new(name).unwrap());
        names.into_iter().filter(wants).collect()
    }

    #[test]
    fn patterns_fit_names_in_any_folder_or_whole_names() {
        assert_eq!(wanted(&[], &[]).len(), 5);
        assert_eq!(wanted(&["*.jpg"], &[]), ["a.jpg", "photos/b.jpg"]);
        assert_eq!(wanted(&["photos/*.jpg"], &[]), ["photos/b.jpg"]);
        assert_eq!(wanted(&["photos/"], &[]), ["photos/b.jpg", "photos/raw/c.nef"]);
        assert_eq!(wanted(&["**/raw/**"], &[]), ["photos/raw/c.nef", "raw/d.nef"]);
        assert_eq!(wanted(&["photos"], &["raw"]), ["photos/b.jpg"]);
        assert_eq!(wanted(&[], &["raw", "*.{txt,jpg}"]), Vec::<&str>::new());
        assert_eq!(wanted(&["/photos/raw"], &[]), ["photos/raw/c.nef"]);
        assert!(Selection::new(&["[".to_owned()], &[]).is_err());
    }
}
