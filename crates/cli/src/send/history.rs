//! Contents that this user has sent before.
//!
//! A session begins with the source symbols, so that a receiver that misses little decodes little. A later
//! session of the same content has to begin elsewhere: receivers that were stopped would receive the same
//! symbols again. The state folder has an empty file for each of the last [`CONTENTS_MAX`] contents.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use headwater::FileSet;

use crate::keys::state_folder;

const CONTENTS_MAX: usize = 1_024;

/// Notes the content. Returns whether an earlier session may have sent the content.
pub fn note(files: &FileSet) -> bool {
    state_folder().is_none_or(|folder| note_in(&folder.join("sent"), files))
}

fn note_in(folder: &Path, files: &FileSet) -> bool {
    if fs::create_dir_all(folder).is_err() {
        return true;
    }
    let path = folder.join(identity(files));
    let made = OpenOptions::new().write(true).create_new(true).open(&path);
    match made {
        Ok(_) => {
            forget_oldest(folder);
            false
        }
        Err(error) => {
            if error.kind() == ErrorKind::AlreadyExists {
                // Writes the time, by which the oldest are forgotten.
                let _still_old = fs::write(&path, []);
            }
            true
        }
    }
}

/// Names, lengths and times of modification: files that keep these count as the same.
fn identity(files: &FileSet) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in files.files() {
        let modified = file.modified.map_or_else(String::new, |time| time.to_string());
        hasher.update(file.name.as_str().as_bytes()).update(&[0]).update(&file.bytes.to_le_bytes());
        hasher.update(modified.as_bytes()).update(&[0]);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

fn forget_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let aged = entries.flatten().filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry)));
    let mut aged: Vec<_> = aged.collect();
    aged.sort_by_key(|(modified, _)| *modified);
    for (_, entry) in aged.iter().take(aged.len().saturating_sub(CONTENTS_MAX)) {
        // A content that stays counts as sent.
        let _kept = fs::remove_file(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use headwater::prepare;

    use super::*;

    #[test]
    fn content_is_new_once_and_anew_when_it_changes() {
        let bed = tempfile::tempdir().unwrap();
        let (folder, file) = (bed.path().join("sent"), bed.path().join("file"));
        fs::write(&file, "content").unwrap();
        let is_known = || note_in(&folder, &prepare([&file]).unwrap());
        assert_eq!([is_known(), is_known(), is_known()], [false, true, true]);
        fs::write(&file, "other content").unwrap();
        assert_eq!([is_known(), is_known()], [false, true]);
        fs::write(bed.path().join("no folder"), "").unwrap();
        assert!(note_in(&bed.path().join("no folder/sent"), &prepare([&file]).unwrap()), "unknown");
    }

    #[test]
    fn the_contents_sent_last_are_kept() {
        let bed = tempfile::tempdir().unwrap();
        let (folder, file) = (bed.path().join("sent"), bed.path().join("file"));
        fs::create_dir(&folder).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
        for number in 0..CONTENTS_MAX + 5 {
            let note = fs::File::create(folder.join(format!("{number:032x}"))).unwrap();
            note.set_modified(old + std::time::Duration::from_secs(number as u64)).unwrap();
        }
        fs::write(&file, "content").unwrap();
        assert!(!note_in(&folder, &prepare([&file]).unwrap()));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), CONTENTS_MAX);
        assert!(!folder.join(format!("{:032x}", 5)).exists() && folder.join(format!("{:032x}", 6)).exists());
        assert!(note_in(&folder, &prepare([&file]).unwrap()));
    }
}
