//! Receivers that follow a sender from session to session: `--follow`, `--delete`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater::{ReceiveSummary, ReceiveUpdate, remove_received};
use headwater_proto::delivery::RelativePath;

use crate::args::ReceiveArgs;
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
    announced: BTreeSet<RelativePath>,
    is_complete: bool,
    /// Whether the present session has nothing more for this receiver.
    is_over: bool,
}

/// Names below a folder that earlier sessions brought, kept in a file.
struct Brought {
    file: PathBuf,
    folder: PathBuf,
    names: BTreeSet<RelativePath>,
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
    /// Prepares the follower of the arguments.
    pub fn new(args: &ReceiveArgs) -> Result<Self, Failure> {
        let is_following = args.follow.follow;
        let brought = args.follow.delete.then(|| Brought::read(&args.folder())).transpose()?;
        Ok(Self { is_following, brought, ..Self::default() })
    }

    /// Folders that the follower writes.
    pub fn folder(&self) -> Option<PathBuf> {
        self.brought.as_ref().and_then(|brought| brought.file.parent()).map(Path::to_owned)
    }

    /// Records the identifier of the described session.
    pub fn on_description(&mut self, tsi: Option<u64>) {
        self.tsi = tsi;
    }

    /// Records an update of the present session.
    pub fn on_update(&mut self, update: &ReceiveUpdate) {
        match update {
            ReceiveUpdate::SessionFound { tsi, .. } => self.tsi = Some(*tsi),
            ReceiveUpdate::SessionReplaced { .. } => self.announced.clear(),
            ReceiveUpdate::SessionClosed | ReceiveUpdate::ControlRefused { .. } => self.is_over = true,
            // Members of a bundle are known once the bundle is whole.
            ReceiveUpdate::FileAnnounced { path, .. } | ReceiveUpdate::FileCompleted { path, .. }
                if self.brought.is_some() =>
            {
                self.announced.insert(path.clone());
            }
            ReceiveUpdate::SessionCompleted { refused } => {
                (self.is_complete, self.is_over) = (*refused == 0, true);
            }
            _ => {}
        }
    }

    /// Deletes the files that are gone with a complete session.
    pub fn on_summary(&mut self, summary: &ReceiveSummary, screen: &Screen) -> Result<(), Failure> {
        let announced = std::mem::take(&mut self.announced);
        if let Some(brought) = self.brought.as_mut().filter(|_| self.is_complete) {
            let folders = summary.folders.iter().cloned().collect();
            let deleted = brought.replace(announced, &folders)?;
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
        let except = tsi.filter(|_| std::mem::take(&mut self.is_over));
        match ended {
            // A follower that has everything and waits is done.
            Err(failure) if failure.exit == Exit::Interrupted && tsi.is_none() => {
                return NextStep::End(Ok(Exit::Ok));
            }
            Err(failure) if !is_passing(failure.exit) => return NextStep::End(Err(failure)),
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
    /// Reads the names that earlier sessions brought into a folder.
    fn read(folder: &Path) -> Result<Self, Failure> {
        let attempt = || format!("cannot keep a record of the files in '{}'", folder.display());
        let Some(state) = state_folder() else {
            let why = format!("{}: there is no home folder; set HOME or XDG_STATE_HOME", attempt());
            return Err(Failure::new(Exit::Usage, why));
        };
        let folder = std::path::absolute(folder).or_exit(Exit::Disk, attempt())?;
        let name = blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex();
        let kept = state.join("brought");
        fs::create_dir_all(&kept).or_exit(Exit::Disk, attempt())?;
        let file = kept.join(&name[..16]);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let names = text.lines().filter_map(|line| RelativePath::new(line).ok()).collect();
        Ok(Self { file, folder, names })
    }

    /// Deletes the names that a session lacks, and records the names of the session. Returns the deleted
    /// names.
    fn replace(
        &mut self,
        files: BTreeSet<RelativePath>,
        folders: &BTreeSet<RelativePath>,
    ) -> Result<Vec<RelativePath>, Failure> {
        let mut names = files;
        names.extend(folders.iter().cloned());
        let gone: Vec<_> = self.names.difference(&names).collect();
        let mut deleted = Vec::new();
        if !gone.is_empty() {
            let tried = format!("cannot delete files in '{}'", self.folder.display());
            // Below a folder that is gone, files go before the folder.
            let removed =
                remove_received(&self.folder, gone.into_iter().rev(), folders).or_exit(Exit::Disk, tried)?;
            deleted.extend(removed.into_iter().cloned());
        }
        if names != self.names {
            let text: String = names.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
            let new = self.file.with_extension("new");
            let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.file));
            written.or_exit(Exit::Disk, format!("cannot write '{}'", self.file.display()))?;
            self.names = names;
        }
        Ok(deleted)
    }
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

    #[test]
    fn only_names_that_sessions_brought_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir_all(out.join("deep/empty")).unwrap();
        for name in ["own", "a", "deep/b"] {
            fs::write(out.join(name), name).unwrap();
        }
        let set = |names: &[&str]| names.iter().map(|name| RelativePath::new(name).unwrap()).collect();
        let file = folder.path().join("record");
        let mut brought = Brought { file: file.clone(), folder: out.clone(), names: BTreeSet::new() };
        brought.replace(set(&["a", "deep/b"]), &set(&["deep/empty"])).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a\ndeep/b\ndeep/empty\n");
        brought.replace(set(&["a"]), &set(&[])).unwrap();
        assert!(out.join("own").exists() && out.join("a").exists() && !out.join("deep").exists());
    }
}
