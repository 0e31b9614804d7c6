//! A session that sends messages, on a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::feed::{PgmFeed, PgmFeedError};
use super::options::PgmSendOptions;
use super::send::PgmSendSession;
use super::update::{PgmSendProgress, PgmSendStarted, PgmSendSummary, PgmSendUpdate};
use crate::net::OpenError;
use crate::send::SendError;
use crate::stop::StopHandle;
use crate::workers;

/// Sends messages until it is finished, stopped or dropped.
#[derive(Debug)]
pub struct PgmSender {
    feed: PgmFeed,
    stop: StopHandle,
    started: PgmSendStarted,
    progress: Arc<Mutex<Option<PgmSendProgress>>>,
    thread: Option<JoinHandle<Result<PgmSendSummary, SendError>>>,
}

impl PgmSender {
    /// Opens the socket and starts the thread.
    ///
    /// # Errors
    /// When an option is out of range, or there is no way to send to the group.
    pub fn open(options: PgmSendOptions) -> Result<Self, SendError> {
        let mut session = PgmSendSession::open(options)?;
        let (feed, stop, started) = (session.feed(), session.stop_handle(), session.started());
        let progress = Arc::new(Mutex::new(None));
        let told = Arc::clone(&progress);
        let run = move || {
            session.run(&mut |update| {
                if let PgmSendUpdate::Progress(progress) = update {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
                }
            })
        };
        let thread = workers::spawn("headwater-pgm", run)?;
        Ok(Self { feed, stop, started, progress, thread: Some(thread) })
    }

    /// Where and how it sends.
    pub const fn started(&self) -> &PgmSendStarted {
        &self.started
    }

    /// Hands a message over; waits while 64 KiB wait already.
    ///
    /// # Errors
    /// When it is too long, or the session has ended.
    pub fn send(&self, message: &[u8]) -> Result<(), PgmFeedError> {
        self.feed.send(message)
    }

    /// How far it is, new about ten times a second; `None` at first.
    pub fn progress(&self) -> Option<PgmSendProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops it from any thread: what waits is dropped, receivers are told that it ended.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Waits until all is sent, and nobody asks any more.
    ///
    /// # Errors
    /// When the network failed.
    pub fn finish(mut self) -> Result<PgmSendSummary, SendError> {
        self.feed.finish();
        // It is there until here: only `drop` takes it, too.
        let thread = self.thread.take().ok_or(SendError::Open(OpenError::Option {
            attempt: "wait for the thread",
            source: std::io::ErrorKind::NotFound.into(),
        }))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for PgmSender {
    /// Stops it, and waits until receivers were told.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            // What went wrong is for those to know who call `finish`.
            let _result = thread.join();
        }
    }
}
