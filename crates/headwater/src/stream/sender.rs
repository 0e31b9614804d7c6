//! Sending end of a stream: the sending thread, and the handle for submitting buffers, one ahead.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::SenderControl;
use headwater_proto::stream::{Sender, SenderConfig, SenderEvent, Submission};
use tracing::warn;

use super::StreamSendOptions;
use super::update::{StreamError, StreamSendProgress, StreamSendSummary, StreamStarted};
use crate::clock::{Clock, Progress, elapsed, ntp_now};
use crate::congestion_control::Path;
use crate::driver::Application;
use crate::net::{SenderSocket, Waker};
use crate::send::{Headers, Link, PacketPlan, RateWatch, SendError};
use crate::threads::{self, StopHandle};

/// Sender of a stream of buffers, on a thread of its own, until finished, stopped or dropped.
#[derive(Debug)]
pub struct StreamSender {
    inbox: Inbox,
    stop: StopHandle,
    started: StreamStarted,
    thread: Option<JoinHandle<Result<StreamSendSummary, SendError>>>,
}

impl StreamSender {
    /// Opens the socket. Nothing is sent before the first buffer.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can send to the group.
    pub fn open(options: StreamSendOptions) -> Result<Self, SendError> {
        let (planned, link) = PacketPlan::open(&options.session, Headers::BUFFERS)?;
        let Link { socket, poller, stop } = &link;
        let (stop, inbox) = (stop.clone(), Inbox::new(poller.waker()));
        let started = StreamStarted {
            tsi: planned.tsi,
            group: options.session.link.group,
            channels: socket.channels().count(),
            congestion_control: options.session.congestion_control,
            source: socket.local_addr(),
            interface: socket.interface().name.clone(),
            part_bytes: planned.symbol_size,
        };
        let mut session = Session { options, planned, link, inbox: inbox.clone() };
        let thread = threads::spawn("headwater-stream", move || session.run())?;
        Ok(Self { inbox, stop, started, thread: Some(thread) })
    }

    /// Returns the parameters of the stream at its start.
    pub fn started(&self) -> &StreamStarted {
        &self.started
    }

    /// Returns a handle that stops the sender from any thread, even within a buffer.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Returns the progress, updated about ten times a second.
    pub fn progress(&self) -> StreamSendProgress {
        self.inbox.progress()
    }

    /// Submits the next buffer, most important byte first, to be sent in `time` after the time of the buffer
    /// before. Returns once the buffer before has begun, so that the application has the time of a buffer for
    /// making the next.
    ///
    /// If a buffer's time is over and no next buffer is there, the buffer is sent again until the next buffer
    /// comes, so that receivers that join meanwhile collect the buffer.
    ///
    /// # Errors
    /// If the buffer is invalid, or the stream has ended.
    pub fn submit(&mut self, bytes: impl Into<Arc<[u8]>>, time: Duration) -> Result<(), StreamError> {
        self.inbox.submit(Submission { bytes: bytes.into(), time: time.into() })
    }

    /// Waits until the time of the last buffer is over, and closes the session.
    ///
    /// # Errors
    /// If the network failed.
    pub fn finish(mut self) -> Result<StreamSendSummary, SendError> {
        self.inbox.finish();
        self.join().unwrap_or(Ok(StreamSendSummary { is_complete: false, progress: self.inbox.progress() }))
    }

    fn join(&mut self) -> Option<Result<StreamSendSummary, SendError>> {
        match self.thread.take()?.join() {
            Ok(result) => Some(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for StreamSender {
    /// Stops the sender, and waits until the session is closed.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            // Only `finish` returns the error.
            let _result = thread.join();
        }
    }
}

/// State of the thread.
struct Session {
    options: StreamSendOptions,
    planned: PacketPlan,
    link: Link,
    inbox: Inbox,
}

impl Session {
    fn run(&mut self) -> Result<StreamSendSummary, SendError> {
        let (PacketPlan { tsi, symbol_size, packet_bytes }, link) = (&self.planned, &mut self.link);
        let session = &mut self.options.session;
        // The schedule of the channels begins with the first buffer.
        while !self.inbox.has_news() && !link.stop.is_stopped() {
            link.wait(&session.link)?;
        }
        let path = Path { sender: link.socket.local_addr().ip(), group: session.link.group.ip(), tsi: *tsi };
        let control = session.congestion_control.sender(*packet_bytes, path)?;
        let config =
            SenderConfig::new(*tsi, *symbol_size).with_order(self.options.order).with_ntp_at_zero(ntp_now());
        let signing = session.signing.as_ref().map(|key| key.signing(*tsi, false)).transpose();
        let mut machine = Sender::new(config, control)?.with_signing(signing?);
        let clock = Clock::start();
        let mut watch = Watch {
            stop: link.stop.clone(),
            inbox: self.inbox.clone(),
            progress: Progress::new(clock.now()),
            rate: RateWatch::new(session.congestion_control.rate_max()),
            is_warned: false,
            last: StreamSendProgress::default(),
        };
        link.drive(&mut session.link, &mut machine, clock, &mut watch)?;
        Ok(StreamSendSummary { is_complete: !link.stop.is_stopped(), progress: watch.last })
    }
}

impl Drop for Session {
    /// Releases threads that wait in `submit`, whatever ended this thread.
    fn drop(&mut self) {
        self.inbox.end();
    }
}

/// Application of the machine: passes buffers on and reports progress.
struct Watch {
    stop: StopHandle,
    inbox: Inbox,
    progress: Progress,
    rate: RateWatch,
    /// Whether the log has a warning that this machine cannot send the requested rate.
    is_warned: bool,
    last: StreamSendProgress,
}

impl<C: SenderControl> Application<Sender<C>, SenderSocket> for Watch {
    fn steer(&mut self, machine: &mut Sender<C>, _port: &mut SenderSocket, _now: Instant) {
        if self.stop.is_stopped() {
            machine.close();
        }
        if machine.wants()
            && let Some(submission) = self.inbox.take()
        {
            // `Inbox::submit` has checked the buffer.
            let _taken = machine.submit(submission);
        }
        if self.inbox.is_finished() {
            machine.end();
        }
    }

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Begun(_) | SenderEvent::Finished => {}
        }
    }

    fn observe(
        &mut self,
        machine: &mut Sender<C>,
        _port: &SenderSocket,
        unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        let is_over = machine.is_finished();
        if self.progress.is_due(now) || is_over {
            let stats = machine.stats();
            let rate_bits = self.progress.rate_bits(now, stats.bytes);
            let overload = machine.control().overload();
            if let Some(limit) = self.rate.on_overload(overload)
                && !self.is_warned
            {
                self.is_warned = true;
                warn!(
                    "this machine cannot send {} bit/s: it sends {} bit/s now; ask for less",
                    limit.asked, limit.sent
                );
            }
            let limit = overload.map(|_| self.rate.limit());
            self.last = StreamSendProgress { elapsed: elapsed(now), rate_bits, stats, unsent, limit };
            self.inbox.report(self.last);
        }
        (!is_over).then_some(self.progress.next())
    }
}

/// Queue of one buffer.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    shared: Arc<(Mutex<State>, Condvar)>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    next: Option<Submission>,
    /// The application has no more buffers.
    is_finished: bool,
    /// The thread accepts no more buffers.
    is_ended: bool,
    progress: StreamSendProgress,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { shared: Arc::default(), waker }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a buffer, and waits until the buffer before has begun.
    pub(super) fn submit(&self, submission: Submission) -> Result<(), StreamError> {
        submission.check()?;
        let wait = |state, is_full: fn(&mut State) -> bool| {
            self.shared.1.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner)
        };
        let is_full = |state: &mut State| state.next.is_some() && !state.is_ended;
        let mut state = wait(self.state(), is_full);
        if state.is_ended {
            return Err(StreamError::Ended);
        }
        state.next = Some(submission);
        self.waker.wake();
        let state = wait(state, is_full);
        if state.next.is_some() { Err(StreamError::Ended) } else { Ok(()) }
    }

    /// Ends the buffers.
    pub(super) fn finish(&self) {
        self.state().is_finished = true;
        self.waker.wake();
    }

    /// Takes the next buffer, if any.
    pub(super) fn take(&self) -> Option<Submission> {
        let next = self.state().next.take();
        if next.is_some() {
            self.shared.1.notify_all();
        }
        next
    }

    /// Whether a buffer waits, or no buffer will come.
    pub(super) fn has_news(&self) -> bool {
        let state = self.state();
        state.next.is_some() || state.is_finished
    }

    /// Whether every buffer was taken and no more buffers will come.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.state();
        state.is_finished && state.next.is_none()
    }

    /// Refuses further buffers.
    pub(super) fn end(&self) {
        self.state().is_ended = true;
        self.shared.1.notify_all();
    }

    pub(super) fn report(&self, progress: StreamSendProgress) {
        self.state().progress = progress;
    }

    pub(super) fn progress(&self) -> StreamSendProgress {
        self.state().progress
    }
}
