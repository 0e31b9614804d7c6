//! Removal of files that earlier sessions brought and the present session lacks.

use std::path::Path;

use headwater_proto::delivery::{FileTime, RelativePath};

use super::folder::{find_parent, writing};
use super::metadata::timestamps_beside;
use super::name_set::NameSet;
use crate::system::files::{self, AsFd, AtFlags, BorrowedFd, FileType, OwnedFd};

/// Kind of entries to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedKind {
    /// Regular files and folders.
    Content,
    /// Symbolic links.
    Links,
}

/// Removes entries of a kind below a folder, then the folders that became empty. A folder that
/// is not empty stays, and so does an entry of another kind. No link is followed. Folders that stay keep the
/// time of their last modification, which is the sender's. Returns the names that were removed.
///
/// # Errors
/// If the folder cannot be opened.
pub fn remove_received<'p>(
    (out, kind): (&Path, ReceivedKind),
    gone: impl IntoIterator<Item = &'p RelativePath>,
    kept: &NameSet,
) -> std::io::Result<Vec<&'p RelativePath>> {
    let out = files::open_folder(out)?;
    let mut removed = Vec::new();
    for path in gone {
        if remove_entry(&out, path, kind) {
            removed.push(path);
        }
        let mut name = path.as_str();
        while let Some((parent, _)) = name.rsplit_once('/') {
            let folder = RelativePath::new(parent).ok().filter(|folder| !kept.contains(folder));
            if !folder.is_some_and(|folder| remove_folder(&out, &folder)) {
                break;
            }
            name = parent;
        }
    }
    Ok(removed)
}

fn remove_entry(out: &OwnedFd, path: &RelativePath, kind: ReceivedKind) -> bool {
    let Some((parent, name)) = find_parent(out.as_fd(), path) else { return false };
    let parent = parent.as_ref().map_or(out.as_fd(), OwnedFd::as_fd);
    let Ok(stat) = files::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let flags = match (stat.kind(), kind) {
        (FileType::RegularFile, ReceivedKind::Content) | (FileType::Symlink, ReceivedKind::Links) => {
            AtFlags::empty()
        }
        (FileType::Directory, ReceivedKind::Content) => AtFlags::REMOVEDIR,
        _ => return false,
    };
    unlink(parent, name, flags)
}

/// Removes an entry, and restores the time of the folder.
fn unlink(parent: BorrowedFd<'_>, name: &str, flags: AtFlags) -> bool {
    let before = files::fstat(parent);
    let is_gone = writing(parent, || files::unlinkat(parent, name, flags)).is_ok();
    let time = before.ok().and_then(|stat| {
        Some((stat, FileTime::new(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or_default())?))
    });
    if let Some((stat, time)) = time.filter(|_| is_gone) {
        let _only_a_time = files::futimens(parent, &timestamps_beside(&stat, time));
    }
    is_gone
}

fn remove_folder(out: &OwnedFd, path: &RelativePath) -> bool {
    let Some((parent, name)) = find_parent(out.as_fd(), path) else { return false };
    let parent = parent.as_ref().map_or(out.as_fd(), OwnedFd::as_fd);
    unlink(parent, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn path(name: &str) -> RelativePath {
        RelativePath::new(name).unwrap()
    }

    #[test]
    fn files_go_with_the_folders_that_become_empty() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir_all(out.join("a/b/c")).unwrap();
        fs::create_dir_all(out.join("d/e")).unwrap();
        fs::create_dir_all(out.join("f")).unwrap();
        for name in ["a/b/c/gone", "a/stays", "d/e/gone", "f/gone"] {
            fs::write(out.join(name), "content").unwrap();
        }
        let time = |name: &str| fs::metadata(out.join(name)).unwrap().modified().unwrap();
        let before = time("a");
        let gone = [path("a/b/c/gone"), path("d/e/gone"), path("f/gone"), path("g/never")];
        let removed =
            remove_received((&out, ReceivedKind::Content), &gone, &[path("f")].iter().collect()).unwrap();
        assert_eq!(removed.len(), 3);
        assert!(out.join("a/stays").exists() && !out.join("a/b").exists());
        assert!(!out.join("d").exists());
        assert_eq!(time("a"), before, "the time of a folder is the sender's");
        assert!(out.join("f").is_dir(), "the session has this folder, without files");
    }

    #[test]
    fn nothing_outside_of_the_folder_and_no_link_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir_all(out.join("full")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/file"), "content").unwrap();
        fs::write(out.join("full/file"), "content").unwrap();
        std::os::unix::fs::symlink("../outside", out.join("link")).unwrap();
        std::os::unix::fs::symlink("../outside/file", out.join("other")).unwrap();
        let gone = [path("link/file"), path("link"), path("other"), path("full")];
        assert!(
            remove_received((&out, ReceivedKind::Content), &gone, &NameSet::default()).unwrap().is_empty()
        );
        assert!(folder.path().join("outside/file").exists() && out.join("full/file").exists());
        assert!(out.join("link").is_symlink() && out.join("other").is_symlink());
        let links = remove_received((&out, ReceivedKind::Links), &gone, &NameSet::default()).unwrap();
        assert_eq!(links, [&path("link"), &path("other")]);
        assert!(folder.path().join("outside/file").exists() && out.join("full/file").exists());
    }
}
