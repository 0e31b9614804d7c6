//! A session that receives messages, on a thread of its own.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::mailbox::Mailbox;
use super::options::PgmReceiveOptions;
use super::receive::PgmReceiveSession;
use super::update::{
    PgmReceiveOutcome, PgmReceiveProgress, PgmReceiveSummary, PgmReceiveUpdate, PgmReceived,
};
use crate::receive::ReceiveError;
use crate::stop::StopHandle;
use crate::workers;

/// Receives messages until the source ends, or it is stopped or dropped.
///
/// As an iterator it gives messages in order, and in between what was lost. 16 MiB wait for the application;
/// one that is slower is a slow receiver: datagrams wait in the socket's buffer, then they are lost, and
/// asked for.
#[derive(Debug)]
pub struct PgmReceiver {
    mailbox: Mailbox,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<PgmReceiveSummary, ReceiveError>>>,
}

impl PgmReceiver {
    /// Opens the socket, and returns once the group is joined.
    ///
    /// # Errors
    /// When an option is out of range, or there is no way to receive from the group.
    pub fn open(options: PgmReceiveOptions) -> Result<Self, ReceiveError> {
        let mut session = PgmReceiveSession::open(options)?;
        let (stop, mailbox) = (session.stop_handle(), Mailbox::default());
        let (held, box_of_thread) = (stop.clone(), mailbox.clone());
        let (joined, has_joined) = mpsc::channel();
        let run = move || {
            let _end = box_of_thread.ending();
            session.run(&mut |update| match update {
                PgmReceiveUpdate::Message(message) => {
                    box_of_thread.put(PgmReceived::Message(message.to_vec()), &held);
                }
                PgmReceiveUpdate::Lost { packets } => box_of_thread.put(PgmReceived::Lost { packets }, &held),
                PgmReceiveUpdate::Progress(progress) => box_of_thread.tell(progress),
                // Nobody waits for a second time.
                PgmReceiveUpdate::Joined => _ = joined.send(()),
                _ => {}
            })
        };
        let thread = workers::spawn("headwater-pgm", run)?;
        // Where it could not join, its end tells why.
        let _failed = has_joined.recv();
        Ok(Self { mailbox, stop, thread: Some(thread) })
    }

    /// Waits for a message, or for word of a loss, for so long at most; `None` when none came, or the session
    /// has ended.
    pub fn next_within(&mut self, timeout: Option<Duration>) -> Option<PgmReceived> {
        self.mailbox.take(timeout)
    }

    /// How far it is; new about ten times a second.
    pub fn progress(&self) -> PgmReceiveProgress {
        self.mailbox.progress()
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Stops it if it still goes on, and sums it up.
    ///
    /// # Errors
    /// When the network failed.
    pub fn finish(mut self) -> Result<PgmReceiveSummary, ReceiveError> {
        self.stop.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(PgmReceiveSummary {
                outcome: PgmReceiveOutcome::Interrupted,
                progress: self.mailbox.progress(),
            }),
        }
    }
}

impl Iterator for PgmReceiver {
    type Item = PgmReceived;

    fn next(&mut self) -> Option<PgmReceived> {
        self.next_within(None)
    }
}

impl Drop for PgmReceiver {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            // What went wrong is for those to know who call `finish`.
            let _result = thread.join();
        }
    }
}
