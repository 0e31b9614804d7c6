//! Content of folders: a digest of names, lengths, times and modes, and what is not sent.

use std::path::PathBuf;

use headwater::{FileSet, PrepareOptions, prepare_tree};

use crate::screen::count;

/// Maximum number of paths that are named.
const NAMED_MAX: usize = 3;

/// Content of folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderContent {
    /// Digest of names, lengths, times and modes of what is sent, and of metadata that travels, except times
    /// of folders, which change with each file that a folder gets.
    pub fingerprint: blake3::Hash,
    /// Message about files and folders whose names receivers refuse, if there are any.
    pub refused: Option<String>,
}

/// Looks at the content to send.
///
/// # Errors
/// If a path cannot be read, or there is nothing to send.
pub fn look(paths: &[PathBuf], options: PrepareOptions) -> Result<FolderContent, String> {
    let files = prepare_tree(paths, options).map_err(|error| chain(&error))?;
    let mut hasher = blake3::Hasher::new();
    for file in files.files() {
        let modified = file.modified.map(|time| (time.seconds(), time.nanoseconds()));
        let entry = (file.name.as_str(), file.bytes, file.mode, modified);
        hasher.update(format!("{entry:?}\n").as_bytes());
    }
    for folder in files.folders() {
        hasher.update(format!("{:?}\n", folder.as_str()).as_bytes());
    }
    for entry in &files.metadata().entries {
        let entry = (&entry.path, &entry.kind, entry.mode, entry.owner, &entry.xattrs);
        hasher.update(format!("{entry:?}\n").as_bytes());
    }
    Ok(FolderContent { fingerprint: hasher.finalize(), refused: refused(&files) })
}

/// Returns `2 paths are not sent: 'a:b' has a name that receivers refuse (...); ...`.
fn refused(files: &FileSet) -> Option<String> {
    let mut named: Vec<String> = files.refused().map(ToString::to_string).collect();
    let paths = count(named.len(), "path");
    let verb = if named.len() == 1 { "is" } else { "are" };
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    named.extend((more > 0).then(|| format!("and {more} more")));
    (!named.is_empty()).then(|| format!("{paths} {verb} not sent: {}", named.join("; ")))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_fingerprint_follows_content_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let paths = [root.clone()];
        let look = || look(&paths, PrepareOptions::default());
        assert!(look().is_err(), "there is nothing to send");
        fs::write(root.join("file"), "content").unwrap();
        let now = || look().unwrap().fingerprint;
        let first = now();
        assert_eq!(now(), first);
        fs::create_dir(root.join("empty")).unwrap();
        let second = now();
        assert_ne!(second, first);
        fs::write(root.join("file"), "contents").unwrap();
        let third = now();
        assert_ne!(third, second);
        assert_eq!(look().unwrap().refused, None);
        ["a:b", "c?", "d|", "e\u{1b}"].iter().for_each(|name| fs::write(root.join(name), "").unwrap());
        let refused = look().unwrap();
        assert_eq!(refused.fingerprint, third, "no new session for what is not sent");
        let said = refused.refused.unwrap();
        assert!(said.starts_with("4 paths are not sent: ") && said.ends_with("; and 1 more"), "{said}");
    }
}
