//! A service: runs a command, again after changes of the folders and after failures.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use headwater::PrepareOptions;
use headwater_web::ViewSender;

use super::child::{ChildEnd, RunningChild};
use super::config::{Service, ServiceKind};
use super::watch::{self, FolderContent};
use crate::exit::Exit;
use crate::system::FolderWatcher;

/// Interval of looking at the folders without an event: file systems of other machines report no events.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// Longest wait for folders to settle, as a multiple of the time without a change.
const SETTLE_MAX: u32 = 30;
/// Shortest and longest wait before a failed command runs again.
const RESTART_WAIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// A service that runs.
pub struct Supervised {
    service: Service,
    child: Option<RunningChild>,
    watcher: Option<Arc<FolderWatcher>>,
    /// Look that is under way.
    looking: Option<Looking>,
    /// Whether the last look failed.
    has_failed: bool,
    changes: Changes,
    next_scan: Instant,
    /// Content at the last look.
    seen: Option<blake3::Hash>,
    /// Content to send.
    wanted: Option<blake3::Hash>,
    /// Content that the command sends, or has sent to the end.
    content: Option<blake3::Hash>,
    /// Whether the command has ended with success, without a request.
    is_done: bool,
    restart_at: Instant,
    restart_wait: Duration,
    /// Last problem that was reported.
    problem: Option<String>,
    /// Message about names that receivers refuse, at the last look.
    refused: Option<String>,
    is_leaving: bool,
    /// Whether the running command is of an earlier configuration.
    is_outdated: bool,
    view: Option<ViewSender>,
}

/// Look at the folders, on a thread: a slow file system holds up no other service.
struct Looking {
    result: Receiver<Look>,
    /// Whether the folders had settled, or were never looked at.
    is_settled: bool,
}

/// Result of a look: the content, and a problem of watching.
type Look = (Result<FolderContent, String>, Option<std::io::Error>);

/// Changes of folders that have not settled.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    first_and_last: Option<(Instant, Instant)>,
}

impl Changes {
    fn on_change(&mut self, now: Instant) {
        let first = self.first_and_last.map_or(now, |(first, _)| first);
        self.first_and_last = Some((first, now));
    }

    /// Whether there were changes, but no change for the time of settling. Folders that never settle are
    /// settled after a multiple of that time: a sender leaves out files that change.
    fn is_settled(self, now: Instant, settle: Duration) -> bool {
        let is_settled = |(first, last)| now >= last + settle || now >= first + settle * SETTLE_MAX;
        self.first_and_last.is_some_and(is_settled)
    }
}

impl Supervised {
    /// Prepares a service, which the first step starts.
    pub fn new(service: Service, view: Option<ViewSender>, now: Instant) -> Self {
        Self {
            service,
            child: None,
            watcher: None,
            looking: None,
            has_failed: false,
            changes: Changes::default(),
            next_scan: now,
            seen: None,
            wanted: None,
            content: None,
            is_done: false,
            restart_at: now,
            restart_wait: RESTART_WAIT[0],
            problem: None,
            refused: None,
            is_leaving: false,
            is_outdated: false,
            view,
        }
    }

    /// Whether the service runs as configured, and stays.
    pub fn runs(&self, service: &Service) -> bool {
        self.service == *service && !self.is_leaving
    }

    /// Returns the service.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Whether the service was asked to end, and has ended.
    pub fn has_left(&self) -> bool {
        self.is_leaving && self.child.is_none()
    }

    /// Ends the service.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Takes the place of the service with the same name: the old command ends before the new command begins.
    pub fn replace(&mut self, service: Service, now: Instant) {
        let child = self.child.take();
        let is_outdated = child.is_some();
        *self = Self { child, is_outdated, ..Self::new(service, self.view.clone(), now) };
    }

    /// Takes the steps that are due. `minute` is the minute of the day in local time.
    pub fn step(&mut self, now: Instant, minute: u16) {
        if let Some(end) = self.child.as_mut().and_then(|child| child.poll_end(now)) {
            self.child = None;
            if !std::mem::take(&mut self.is_outdated) {
                self.on_end(&end, now);
            }
        }
        if self.service.kind == ServiceKind::Carousel && !self.is_leaving {
            self.look(now);
        }
        let is_open = self.service.hours.is_none_or(|hours| hours.contains(minute));
        let has_content = self.service.kind != ServiceKind::Carousel || self.wanted.is_some();
        let is_same = self.content == self.wanted;
        let should_run = is_open && has_content && !self.is_leaving && !(self.is_done && is_same);
        match &mut self.child {
            Some(child) if !should_run || !is_same || self.is_outdated => child.stop(now),
            None if should_run && now >= self.restart_at => self.start(now),
            _ => {}
        }
    }

    /// Looks for changes, and accepts the content of folders that have settled.
    fn look(&mut self, now: Instant) {
        if self.watcher.as_ref().is_some_and(|watcher| watcher.has_changed()) {
            self.changes.on_change(now);
        }
        if let Some(looking) = &self.looking {
            let is_settled = looking.is_settled;
            match looking.result.try_recv() {
                Ok(look) => {
                    self.looking = None;
                    self.on_look(look, is_settled, now);
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.looking = None,
            }
            return;
        }
        let is_settled = self.changes.is_settled(now, self.service.settle);
        if is_settled || now >= self.next_scan {
            self.next_scan = now + SCAN_INTERVAL;
            self.start_look(is_settled);
        }
    }

    fn start_look(&mut self, is_settled: bool) {
        let is_settled = is_settled || self.seen.is_none();
        // A change during the look is another change.
        self.changes = Changes::default();
        if self.watcher.is_none() {
            self.watcher = FolderWatcher::open().ok().map(Arc::new);
        }
        let (watcher, paths) = (self.watcher.clone(), self.service.watched.clone());
        let options = self.service.prepare;
        let (sender, result) = channel();
        let look = move || {
            // Nobody waits for the look of a service that has left.
            sender.send(look_at(watcher.as_deref(), &paths, options)).ok();
        };
        match std::thread::Builder::new().name("look".into()).spawn(look) {
            Ok(_thread) => self.looking = Some(Looking { result, is_settled }),
            Err(error) => self.report(&format!("the folders cannot be looked at: {error}")),
        }
    }

    fn on_look(&mut self, (content, unwatched): Look, is_settled: bool, now: Instant) {
        if let Some(error) = unwatched {
            let seconds = SCAN_INTERVAL.as_secs();
            self.report(&format!(
                "not all folders can be watched ({error}; the limit is fs.inotify.max_user_watches): changes are found within {seconds} s"
            ));
        }
        let has_failed = std::mem::replace(&mut self.has_failed, content.is_err());
        match content.map(|content| self.note_refused(content)) {
            Ok(content) if is_settled => {
                (self.seen, self.wanted, self.problem) = (Some(content), Some(content), None);
            }
            // Without an event: settled if the content is the same once more.
            Ok(content) if self.seen != Some(content) => {
                self.seen = Some(content);
                self.changes.on_change(now);
            }
            Ok(_) => {}
            // A file that goes during the look is no reason to end a session.
            Err(_) if self.wanted.is_some() && !has_failed => self.changes.on_change(now),
            Err(why) => {
                (self.seen, self.wanted) = (None, None);
                self.report(&format!("nothing is sent: {why}"));
            }
        }
    }

    /// Reports names that receivers refuse, unless the command begins again and reports them itself. Returns
    /// the fingerprint of the content.
    fn note_refused(&mut self, content: FolderContent) -> blake3::Hash {
        let FolderContent { fingerprint, refused } = content;
        if let Some(refused) = &refused
            && self.wanted == Some(fingerprint)
            && self.refused.as_ref() != Some(refused)
        {
            tracing::warn!("{}: {refused}", self.service.name);
        }
        self.refused = refused;
        fingerprint
    }

    fn start(&mut self, now: Instant) {
        let Service { name, words, .. } = &self.service;
        match RunningChild::start(name, words, self.view.as_ref(), now) {
            Ok(child) => (self.child, self.content, self.is_done) = (Some(child), self.wanted, false),
            Err(error) => {
                self.wait_longer(now);
                self.report(&format!("cannot start: {error}"));
            }
        }
    }

    fn on_end(&mut self, end: &ChildEnd, now: Instant) {
        self.restart_at = now;
        if end.was_asked {
            return;
        }
        if end.lasted >= RESTART_WAIT[1] {
            self.restart_wait = RESTART_WAIT[0];
        }
        // What has a refused name is sent with the next change. A file that changed is sent again.
        let is_left_out = end.status.code() == Some(Exit::LeftOut as i32) && self.refused.is_some();
        let is_sent = end.status.success() || is_left_out;
        if is_sent && self.service.kind == ServiceKind::Carousel {
            self.is_done = true;
            return;
        }
        let wait = self.restart_wait.as_secs();
        self.wait_longer(now);
        self.problem = None;
        self.report(&format!("ended ({}), and runs again in {wait} s", end.status));
    }

    fn wait_longer(&mut self, now: Instant) {
        self.restart_at = now + self.restart_wait;
        self.restart_wait = (self.restart_wait * 2).min(RESTART_WAIT[1]);
    }

    /// Reports a problem once.
    fn report(&mut self, problem: &str) {
        if self.problem.as_deref() != Some(problem) {
            tracing::warn!("{}: {problem}", self.service.name);
            self.problem = Some(problem.to_owned());
        }
    }
}

/// Watches the folders, then looks at the content: a change during the look is an event.
fn look_at(watcher: Option<&FolderWatcher>, paths: &[PathBuf], options: PrepareOptions) -> Look {
    let watched = match watcher {
        Some(watcher) => watcher.watch(paths),
        None => Err(std::io::Error::other("the system cannot watch folders")),
    };
    (watch::look(paths, options), watched.err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_settle_after_the_last_change_or_after_a_bound() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut changes = Changes::default();
        assert!(!changes.is_settled(start + 60 * second, 2 * second));
        changes.on_change(start);
        changes.on_change(start + second);
        assert!(!changes.is_settled(start + 2 * second, 2 * second));
        assert!(changes.is_settled(start + 3 * second, 2 * second));
        for elapsed in 2..60 {
            changes.on_change(start + elapsed * second);
            assert!(!changes.is_settled(start + elapsed * second, 2 * second));
        }
        changes.on_change(start + 60 * second);
        assert!(changes.is_settled(start + 60 * second, 2 * second), "a log that grows for ever");
    }
}
