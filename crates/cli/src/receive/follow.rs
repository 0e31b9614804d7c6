//! Receivers that follow a sender from session to session: `--follow`, `--delete`.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater::{NameSet, ReceiveSummary, ReceiveUpdate, ReceivedKind, Selection, remove_received};
use headwater_proto::delivery::RelativePath;

use crate::args::{GROUP_DEFAULT, KeptLinks, ReceiveArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::keys::state_folder;
use crate::screen::Screen;

/// Shortest time between two sessions of which the first brought nothing.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval at which a pause checks for a signal.
const CHECK: Duration = Duration::from_millis(50);

/// Successive sessions of a receiver.
#[derive(Default)]
pub struct Follower {
    is_following: bool,
    /// Names that earlier sessions brought, if names that are gone are deleted.
    brought: Option<Brought>,
    /// Identifier of the present session.
    tsi: Option<u64>,
    /// Names in the present session.
    announced: NameSet,
    /// Symbolic links of the present session.
    links: NameSet,
    is_complete: bool,
    /// Names that the present session has and this receiver refuses.
    refused: Vec<RelativePath>,
    /// Whether entries were deleted that stood in the way of refused names.
    has_made_room: bool,
    /// Whether the present session has nothing more for this receiver.
    is_over: bool,
}

/// Names below a folder that earlier sessions of a sender brought, kept in a file.
struct Brought {
    /// Open, so that a process that becomes another user writes the file, too. Locked.
    file: File,
    folder: PathBuf,
    names: BTreeSet<RelativePath>,
    /// Symbolic links, whose lines begin with a slash.
    links: BTreeSet<RelativePath>,
    selection: Selection,
    keeps_links: bool,
}

/// Step after a session.
#[derive(Debug)]
pub enum NextStep {
    /// The command ends.
    End(Result<Exit, Failure>),
    /// Another session, but not the session with this identifier.
    Session(Option<u64>),
}

impl Follower {
    /// Prepares the follower of the arguments, for the sessions of a URL or of a group. `is_told` says that
    /// the user, or the description, has named the sender.
    pub fn new(args: &ReceiveArgs, url: Option<&str>, is_told: bool) -> Result<Self, Failure> {
        let is_following = args.follow.follow;
        let group = args.ask.unwrap_or(args.network.group).to_string();
        if args.follow.delete && !is_told && group == GROUP_DEFAULT {
            let why = format!(
                "--delete on {group}, which everybody may use, needs the sender's key: add --trust KEY, or choose another --group"
            );
            return Err(Failure::new(Exit::Usage, why));
        }
        let select = Selection::new(&args.select.include, &args.select.exclude);
        let select = select.map_err(|error| Failure::of(Exit::Usage, error))?;
        let keeps_links = args.metadata.links == KeptLinks::Keep;
        let open = || Brought::open(&args.folder(), url.unwrap_or(&group), (select, keeps_links));
        let brought = args.follow.delete.then(open).transpose()?;
        Ok(Self { is_following, brought, ..Self::default() })
    }

    /// Begins the session that a description names.
    pub fn on_description(&mut self, tsi: Option<u64>) {
        self.tsi = tsi;
        (self.announced, self.links) = Default::default();
        (self.is_complete, self.is_over) = (false, false);
        self.refused.clear();
    }

    /// Records an update of the present session.
    pub fn on_update(&mut self, update: &ReceiveUpdate) {
        match update {
            ReceiveUpdate::SessionFound { tsi, .. } => self.tsi = Some(*tsi),
            ReceiveUpdate::SessionReplaced { .. } => {
                self.announced = NameSet::default();
                self.refused.clear();
            }
            ReceiveUpdate::SessionClosed | ReceiveUpdate::ControlRefused { .. } => self.is_over = true,
            ReceiveUpdate::FileAnnounced { path, .. } => self.announce(path),
            ReceiveUpdate::FileRefused { location, .. } if self.brought.is_some() => {
                self.refused.extend(RelativePath::new(location));
            }
            // Members of a bundle are known once the bundle is whole.
            ReceiveUpdate::FileCompleted { path, is_present, .. } => {
                self.announce(path);
                if let Some(brought) = self.brought.as_mut().filter(|_| !is_present) {
                    brought.add(path);
                }
            }
            ReceiveUpdate::LinkMade { path, is_present } => {
                if let Some(brought) = &mut self.brought {
                    self.links.insert(path);
                    if !is_present {
                        brought.add_link(path);
                    }
                }
            }
            ReceiveUpdate::SessionCompleted { refused } => {
                (self.is_complete, self.is_over) = (*refused == 0, true);
            }
            _ => {}
        }
    }

    fn announce(&mut self, path: &RelativePath) {
        if self.brought.is_some() {
            self.announced.insert(path);
        }
    }

    /// Deletes the files that are gone with a complete session. Of a session with refused names, deletes the
    /// files that stand in their way: at the sender, a folder has become a file, or a file has become a
    /// folder.
    pub fn on_summary(&mut self, summary: &ReceiveSummary, screen: &Screen) -> Result<(), Failure> {
        let (announced, links) = (std::mem::take(&mut self.announced), std::mem::take(&mut self.links));
        let refused = std::mem::take(&mut self.refused);
        // A part of the FDT says nothing of files that it lacks.
        let is_told_all = self.is_over && summary.is_described;
        if let Some(brought) = self.brought.as_mut().filter(|_| is_told_all) {
            let deleted = if self.is_complete {
                brought.replace((&announced, &links), &summary.folders)?
            } else {
                brought.make_room(&refused, &announced)?
            };
            self.has_made_room = !self.is_complete && !deleted.is_empty();
            deleted.iter().for_each(|path| screen.say(&format!("{path}: deleted, the session lacks it")));
        }
        Ok(())
    }

    /// Returns the step after a session that ended this way.
    pub fn next(&mut self, ended: Result<Exit, Failure>, is_asked: &dyn Fn() -> bool) -> NextStep {
        if !self.is_following {
            return NextStep::End(ended);
        }
        let (tsi, is_complete) = (self.tsi.take(), std::mem::take(&mut self.is_complete));
        let is_over = std::mem::take(&mut self.is_over);
        let is_again = std::mem::take(&mut self.has_made_room);
        let except = tsi.filter(|_| is_over && !is_again);
        match ended {
            // A follower that has everything and waits is done.
            Err(failure) if failure.exit == Exit::Interrupted && tsi.is_none() => {
                return NextStep::End(Ok(Exit::Ok));
            }
            Err(failure) if !is_passing(failure.exit) => return NextStep::End(Err(failure)),
            Err(_) if is_again => {
                tracing::warn!("files in the way were deleted; the session is received again");
            }
            Err(failure) => tracing::warn!("{}; the next session is awaited", failure.chain()),
            Ok(exit) if is_asked() => return NextStep::End(Ok(exit)),
            Ok(_) => {}
        }
        if !is_complete {
            pause(is_asked);
        }
        NextStep::Session(except)
    }
}

/// Whether another session may succeed after a session that ended this way.
fn is_passing(exit: Exit) -> bool {
    matches!(
        exit,
        Exit::NothingReceived
            | Exit::Incomplete
            | Exit::VerificationFailed
            | Exit::Untrusted
            | Exit::Unopened
            | Exit::Other
    )
}

/// Waits, but not after a signal.
pub fn pause(is_asked: &dyn Fn() -> bool) {
    let began = std::time::Instant::now();
    while began.elapsed() < PAUSE && !is_asked() {
        std::thread::sleep(CHECK);
    }
}

impl Brought {
    /// Opens the record of the names that sessions from here brought into a folder.
    fn open(folder: &Path, from: &str, wanted: (Selection, bool)) -> Result<Self, Failure> {
        let attempt = || format!("cannot keep a record of the files in '{}'", folder.display());
        let Some(state) = state_folder() else {
            let why = format!("{}: there is no home folder; set HOME or XDG_STATE_HOME", attempt());
            return Err(Failure::new(Exit::Usage, why));
        };
        let folder = std::path::absolute(folder).or_exit(Exit::Disk, attempt())?;
        let key = [folder.as_os_str().as_encoded_bytes(), from.as_bytes()].join(&0);
        let name = blake3::hash(&key).to_hex();
        let kept = state.join("brought");
        fs::create_dir_all(&kept).or_exit(Exit::Disk, attempt())?;
        let file = open_record(&kept.join(&name[..16])).or_exit(Exit::Disk, attempt())?;
        if file.try_lock().is_err() {
            let why =
                format!("another receiver with --delete follows the same sender into '{}'", folder.display());
            return Err(Failure::new(Exit::Usage, why));
        }
        Self::read(file, folder, wanted).or_exit(Exit::Disk, attempt())
    }

    fn read(
        mut file: File,
        folder: PathBuf,
        (selection, keeps_links): (Selection, bool),
    ) -> io::Result<Self> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The last line of a process that was killed may be cut off.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if whole < text.len() {
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
        }
        let text = String::from_utf8_lossy(&text[..whole]);
        let names = text.lines().filter_map(|line| RelativePath::new(line).ok()).collect();
        let links = text.lines().filter_map(|line| RelativePath::new(line.strip_prefix('/')?).ok()).collect();
        Ok(Self { file, folder, names, links, selection, keeps_links })
    }

    /// Records a file that was received.
    fn add(&mut self, path: &RelativePath) {
        if self.names.insert(path.clone()) {
            self.write(path, &format!("{path}\n"));
        }
    }

    /// Records a symbolic link that was made.
    fn add_link(&mut self, path: &RelativePath) {
        if self.links.insert(path.clone()) {
            self.write(path, &format!("/{path}\n"));
        }
    }

    fn write(&mut self, path: &RelativePath, line: &str) {
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            tracing::warn!("'{path}' is not recorded as received, and will never be deleted: {error}");
        }
    }

    /// Deletes the recorded names that a session lacks. Names that the receiver does not want any more stay:
    /// the session may have these. Returns the deleted names.
    fn replace(
        &mut self,
        (announced, links): (&NameSet, &NameSet),
        folders: &[RelativePath],
    ) -> Result<Vec<RelativePath>, Failure> {
        let kept: NameSet = folders.iter().collect();
        let is_gone = |name: &&RelativePath| {
            !announced.contains(name) && !kept.contains(name) && self.selection.wants(name)
        };
        let gone: Vec<_> = self.names.iter().filter(is_gone).cloned().collect();
        let is_gone =
            |name: &&RelativePath| self.keeps_links && !links.contains(name) && self.selection.wants(name);
        let gone_links: Vec<_> = self.links.iter().filter(is_gone).cloned().collect();
        self.delete((&gone, &gone_links), &kept, folders)
    }

    /// Deletes the recorded names that cannot be beside refused names of a session: below a refused name, or
    /// a file above it. Returns the deleted names.
    fn make_room(
        &mut self,
        refused: &[RelativePath],
        announced: &NameSet,
    ) -> Result<Vec<RelativePath>, Failure> {
        let is_below = |name: &RelativePath, folder: &RelativePath| {
            let rest = name.as_str().strip_prefix(folder.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let is_folder =
            |name: &str| fs::symlink_metadata(self.folder.join(name)).is_ok_and(|found| found.is_dir());
        let is_in_the_way = |name: &&RelativePath| {
            let is_beside = |refused: &RelativePath| {
                let name_is_folder = || is_folder(name.as_str());
                is_below(name, refused)
                    || is_below(refused, name) && !name_is_folder()
                    || *name == refused && name_is_folder()
            };
            !announced.contains(name) && self.selection.wants(name) && refused.iter().any(is_beside)
        };
        let gone: Vec<_> = self.names.iter().filter(is_in_the_way).cloned().collect();
        let links = self.links.iter().filter(|_| self.keeps_links);
        let gone_links: Vec<_> = links.filter(is_in_the_way).cloned().collect();
        self.delete((&gone, &gone_links), &NameSet::default(), &[])
    }

    /// Deletes recorded names and links, and records these folders. Returns the deleted names.
    fn delete(
        &mut self,
        (gone, gone_links): (&[RelativePath], &[RelativePath]),
        kept: &NameSet,
        folders: &[RelativePath],
    ) -> Result<Vec<RelativePath>, Failure> {
        let mut deleted = Vec::new();
        // Below a folder that is gone, links and files go before the folder.
        for (kind, gone) in [(ReceivedKind::Links, gone_links), (ReceivedKind::Content, gone)] {
            if !gone.is_empty() {
                let removed = remove_received((&self.folder, kind), gone.iter().rev(), kept);
                let tried = || format!("cannot delete files in '{}'", self.folder.display());
                deleted.extend(removed.or_exit(Exit::Disk, tried())?.into_iter().cloned());
            }
        }
        let before = (self.names.clone(), self.links.clone());
        self.names.retain(|name| !gone.contains(name));
        self.links.retain(|name| !gone_links.contains(name));
        self.names.extend(folders.iter().cloned());
        if (&self.names, &self.links) != (&before.0, &before.1) {
            let names = self.names.iter().map(|name| format!("{name}\n"));
            let text: String = names.chain(self.links.iter().map(|name| format!("/{name}\n"))).collect();
            let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
            let written = emptied.and_then(|()| self.file.write_all(text.as_bytes()));
            written.or_exit(Exit::Disk, "cannot write the record of received files")?;
        }
        Ok(deleted)
    }
}

/// Opens a record to read and write. Windows does not let a file be cut that is open for appending.
fn open_record(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(follows: bool) -> Follower {
        Follower { is_following: follows, ..Follower::default() }
    }

    fn found(tsi: u64) -> ReceiveUpdate {
        ReceiveUpdate::SessionFound { tsi, source: "192.0.2.1:1".parse().unwrap() }
    }

    #[test]
    fn the_session_that_is_complete_is_not_received_again() {
        let mut follower = followed(true);
        follower.on_update(&found(7));
        follower.on_update(&ReceiveUpdate::SessionCompleted { refused: 0 });
        let next = follower.next(Ok(Exit::Ok), &|| false);
        assert!(matches!(next, NextStep::Session(Some(7))), "{next:?}");
        let interrupted = || Err(Failure::new(Exit::Interrupted, "interrupted"));
        let next = follower.next(interrupted(), &|| true);
        assert!(matches!(next, NextStep::End(Ok(Exit::Ok))), "it waited: {next:?}");
        follower.on_update(&found(8));
        let next = follower.next(interrupted(), &|| true);
        assert!(matches!(next, NextStep::End(Err(_))), "files are missing: {next:?}");
    }

    #[test]
    fn failures_of_this_machine_end_the_command_and_others_do_not() {
        for (exit, ends) in
            [(Exit::Disk, true), (Exit::Network, true), (Exit::Usage, true), (Exit::Incomplete, false)]
        {
            let next = followed(true).next(Err(Failure::new(exit, "why")), &|| true);
            assert_eq!(matches!(next, NextStep::End(Err(_))), ends, "{exit:?}");
        }
        let next = followed(false).next(Err(Failure::new(Exit::Incomplete, "why")), &|| false);
        assert!(matches!(next, NextStep::End(Err(_))), "{next:?}");
    }

    fn path(name: &str) -> RelativePath {
        RelativePath::new(name).unwrap()
    }

    fn set(names: &[&str]) -> BTreeSet<RelativePath> {
        names.iter().map(|name| path(name)).collect()
    }

    fn record(folder: &Path, exclude: &[&str]) -> Brought {
        let file = open_record(&folder.join("record")).unwrap();
        let exclude: Vec<_> = exclude.iter().map(ToString::to_string).collect();
        let wanted = (Selection::new(&[], &exclude).unwrap(), true);
        Brought::read(file, folder.join("out"), wanted).unwrap()
    }

    fn set_of(names: &[&str]) -> NameSet {
        set(names).iter().collect()
    }

    fn completed(name: &str, is_present: bool) -> ReceiveUpdate {
        ReceiveUpdate::FileCompleted {
            file: 0,
            path: path(name),
            bytes: 1,
            digest: None,
            is_verified: true,
            is_present,
        }
    }

    #[test]
    fn only_names_that_sessions_brought_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir_all(out.join("deep/empty")).unwrap();
        for name in ["own", "was-there", "a", "deep/b", "log"] {
            fs::write(out.join(name), name).unwrap();
        }
        let mut follower = Follower { brought: Some(record(folder.path(), &[])), ..followed(true) };
        for name in ["a", "deep/b", "log"] {
            follower.on_update(&completed(name, false));
        }
        follower.on_update(&completed("was-there", true));
        let brought = follower.brought.as_mut().unwrap();
        brought
            .replace((&set_of(&["a", "deep/b", "log", "was-there"]), &set_of(&[])), &[path("deep/empty")])
            .unwrap();
        drop(follower);
        // The next process does not want logs any more, and hears nothing of logs in bundles.
        let mut brought = record(folder.path(), &["log"]);
        assert_eq!(brought.names, set(&["a", "deep/b", "deep/empty", "log"]));
        let deleted = brought.replace((&set_of(&["a"]), &set_of(&[])), &[]).unwrap();
        assert_eq!(deleted.into_iter().collect::<BTreeSet<_>>(), set(&["deep/b", "deep/empty"]));
        for (name, is_there) in
            [("own", true), ("was-there", true), ("a", true), ("log", true), ("deep", false)]
        {
            assert_eq!(out.join(name).exists(), is_there, "{name}");
        }
        assert_eq!(record(folder.path(), &[]).names, set(&["a", "log"]));
    }

    #[test]
    fn only_what_stands_in_the_way_of_a_refused_name_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir_all(out.join("folder/empty")).unwrap();
        fs::create_dir_all(out.join("mixed")).unwrap();
        let brought_names = ["file", "folder/a", "folderx", "mixed/a", "other"];
        let mut brought = record(folder.path(), &[]);
        for name in brought_names {
            fs::write(out.join(name), name).unwrap();
            brought.add(&path(name));
        }
        brought.add(&path("folder/empty"));
        fs::write(out.join("mixed/own"), "of the user").unwrap();
        let refused = ["file/a", "folder", "mixed", "full"].map(path);
        let mut make_room = |announced: &[&str]| {
            let deleted = brought.make_room(&refused, &set_of(announced)).unwrap();
            deleted.into_iter().collect::<BTreeSet<_>>()
        };
        assert_eq!(make_room(&["other"]), set(&["file", "folder/a", "folder/empty", "mixed/a"]));
        assert_eq!(make_room(&["other"]), set(&[]), "the second time, nothing is in the way");
        for (name, is_there) in
            [("file", false), ("folder", false), ("folderx", true), ("other", true), ("mixed/own", true)]
        {
            assert_eq!(out.join(name).exists(), is_there, "{name}");
        }
        drop(brought);
        assert_eq!(record(folder.path(), &[]).names, set(&["folderx", "other"]));
    }

    #[test]
    fn a_file_that_was_brought_is_recorded_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut brought = record(folder.path(), &[]);
        brought.add(&path("a"));
        // Killed within a line.
        brought.file.write_all(b"deep/").unwrap();
        drop(brought);
        let mut brought = record(folder.path(), &[]);
        assert_eq!(brought.names, set(&["a"]));
        brought.add(&path("b"));
        drop(brought);
        let mut brought = record(folder.path(), &[]);
        assert_eq!(brought.names, set(&["a", "b"]));
        fs::create_dir(folder.path().join("out")).unwrap();
        brought.replace((&set_of(&["b"]), &set_of(&[])), &[]).unwrap();
        brought.add(&path("c"));
        drop(brought);
        assert_eq!(fs::read_to_string(folder.path().join("record")).unwrap(), "b\nc\n");
    }

    #[test]
    fn a_file_that_comes_in_another_case_stays_where_case_is_ignored() {
        for ignores_case in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("out");
            fs::create_dir(&out).unwrap();
            fs::write(out.join("Readme"), "content").unwrap();
            let mut brought = record(folder.path(), &[]);
            brought.add(&path("Readme"));
            let mut announced = NameSet::new(ignores_case);
            announced.insert(&path("README"));
            let deleted = brought.replace((&announced, &set_of(&[])), &[]).unwrap();
            assert_eq!(deleted.is_empty(), ignores_case, "{deleted:?}");
            assert_eq!(out.join("Readme").exists(), ignores_case);
        }
    }
}
