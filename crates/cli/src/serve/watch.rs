//! Content of folders: a digest of names, lengths, times and modes.

use std::path::PathBuf;

use headwater::{PrepareOptions, prepare_tree};

/// Returns a digest of the content to send, by names, lengths, times and modes, and of metadata that travels
/// except the times of folders, which change with each file that a folder gets.
///
/// # Errors
/// If a path cannot be read, or receivers would refuse a name.
pub fn fingerprint(paths: &[PathBuf], options: PrepareOptions) -> Result<blake3::Hash, String> {
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
    Ok(hasher.finalize())
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
        let now = || fingerprint(&paths, PrepareOptions::default());
        assert!(now().is_err(), "there is nothing to send");
        fs::write(root.join("file"), "content").unwrap();
        let first = now().unwrap();
        assert_eq!(now().unwrap(), first);
        fs::create_dir(root.join("empty")).unwrap();
        let second = now().unwrap();
        assert_ne!(second, first);
        fs::write(root.join("file"), "contents").unwrap();
        assert_ne!(now().unwrap(), second);
    }
}
