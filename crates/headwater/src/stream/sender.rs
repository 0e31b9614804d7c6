//! Session that sends a stream of buffers, and the handle for submitting buffers, one ahead.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::SenderControl;
use headwater_proto::stream::{Sender, SenderConfig, SenderEvent, Submission};

use super::StreamSendOptions;
use super::update::{StreamError, StreamSendProgress, StreamSendSummary, StreamSendUpdate, StreamStarted};
use crate::clock::{Clock, Progress, elapsed, ntp_now};
use crate::congestion_control::Path;
use crate::driver::Application;
use crate::net::{LinkChange, SenderSocket, Waker};
use crate::send::{Headers, Link, PacketOptions, PacketPlan, RateWatch, SendError};
use crate::session::Session;
use crate::threads::StopHandle;

/// Session that sends the buffers of its feed, until the feed is finished and the time of the last buffer is
/// over, or the session is stopped, even within a buffer.
#[derive(Debug)]
pub struct StreamSendSession {
    options: StreamSendOptions,
    planned: PacketPlan,
    link: Link,
    feed: StreamFeed,
}

impl StreamSendSession {
    /// Opens the socket. Nothing is sent before the first buffer.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can send to the group.
    pub fn open(options: StreamSendOptions) -> Result<Self, SendError> {
        let packets = PacketOptions {
            congestion_control: &options.congestion_control,
            tsi: options.tsi,
            symbol_size: options.part_bytes,
            is_beside_requests: false,
            is_signed: options.signing.is_some(),
            is_encrypted: options.group_key.is_some(),
        };
        let (planned, link) = PacketPlan::open(&options.link, packets, Headers::BUFFERS)?;
        let feed = StreamFeed::new(link.poller.waker());
        Ok(Self { options, planned, link, feed })
    }

    /// Returns the parameters of the stream at its start.
    pub fn started(&self) -> StreamStarted {
        let (options, socket) = (&self.options, &self.link.socket);
        StreamStarted {
            tsi: self.planned.tsi,
            group: options.link.group,
            channels: socket.channels().count(),
            congestion_control: options.congestion_control,
            source: socket.local_addr(),
            interface: socket.interface().name.clone(),
            part_bytes: self.planned.symbol_size,
        }
    }

    /// Returns a handle that submits buffers to the session.
    pub fn feed(&self) -> StreamFeed {
        self.feed.clone()
    }

    fn send(&mut self, observer: &mut dyn FnMut(StreamSendUpdate)) -> Result<StreamSendSummary, SendError> {
        let (PacketPlan { tsi, symbol_size, packet_bytes }, link) = (&self.planned, &mut self.link);
        let options = &mut self.options;
        // The schedule of the channels begins with the first buffer.
        while !self.feed.has_news() && !link.stop.is_stopped() {
            link.wait(&options.link)?;
        }
        let path = Path { sender: link.socket.local_addr().ip(), group: options.link.group.ip(), tsi: *tsi };
        let control = options.congestion_control.sender(*packet_bytes, path)?;
        let config =
            SenderConfig::new(*tsi, *symbol_size).with_order(options.order).with_ntp_at_zero(ntp_now());
        let signing = options.signing.as_ref().map(|key| key.signing(*tsi, false)).transpose();
        let group = options.group_key.as_ref();
        let encryption = group.map(|keys| keys.encryption(options.signing.as_ref())).transpose();
        let machine = Sender::new(config, control)?.with_signing(signing?);
        let mut machine = machine.with_encryption(encryption?);
        let clock = Clock::start();
        let mut watch = Watch {
            stop: link.stop.clone(),
            feed: self.feed.clone(),
            observer,
            progress: Progress::new(clock.now()),
            rate: RateWatch::new(options.congestion_control.rate_max()),
            last: StreamSendProgress::default(),
        };
        link.drive(&mut options.link, &mut machine, clock, &mut watch)?;
        Ok(StreamSendSummary { is_complete: !link.stop.is_stopped(), progress: watch.last })
    }
}

impl Session for StreamSendSession {
    type Update = StreamSendUpdate;
    type Summary = StreamSendSummary;
    type Error = SendError;

    fn stop_handle(&self) -> StopHandle {
        self.link.stop.clone()
    }

    fn run(&mut self, observer: &mut dyn FnMut(StreamSendUpdate)) -> Result<StreamSendSummary, SendError> {
        let result = self.send(observer);
        self.feed.end();
        result
    }

    fn is_progress(update: &StreamSendUpdate) -> bool {
        matches!(update, StreamSendUpdate::Progress(_))
    }
}

impl Drop for StreamSendSession {
    /// Releases threads that wait in `submit`, for a session that never ran to its end.
    fn drop(&mut self) {
        self.feed.end();
    }
}

/// Application of the machine: passes buffers on and reports progress.
struct Watch<'a> {
    stop: StopHandle,
    feed: StreamFeed,
    observer: &'a mut dyn FnMut(StreamSendUpdate),
    progress: Progress,
    rate: RateWatch,
    last: StreamSendProgress,
}

impl<C: SenderControl> Application<Sender<C>, SenderSocket> for Watch<'_> {
    fn steer(&mut self, machine: &mut Sender<C>, _port: &mut SenderSocket, _now: Instant) {
        if self.stop.is_stopped() {
            machine.close();
        }
        if machine.wants()
            && let Some(submission) = self.feed.take()
        {
            // `StreamFeed::submit` has checked the buffer.
            let _taken = machine.submit(submission);
        }
        if self.feed.is_finished() {
            machine.end();
        }
    }

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Begun(_) | SenderEvent::Finished => {}
        }
    }

    fn link(&mut self, change: LinkChange) {
        (self.observer)(StreamSendUpdate::LinkChanged(change));
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
            if let Some(limit) = self.rate.on_overload(overload) {
                (self.observer)(StreamSendUpdate::RateLimited(limit));
            }
            let limit = overload.map(|_| self.rate.limit());
            self.last = StreamSendProgress { elapsed: elapsed(now), rate_bits, stats, unsent, limit };
            (self.observer)(StreamSendUpdate::Progress(self.last));
        }
        (!is_over).then_some(self.progress.next())
    }
}

/// Handle that submits buffers to a session, from any thread. One buffer waits.
#[derive(Clone, Debug)]
pub struct StreamFeed {
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
}

impl StreamFeed {
    fn new(waker: Waker) -> Self {
        Self { shared: Arc::default(), waker }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub fn submit(&self, bytes: impl Into<Arc<[u8]>>, time: Duration) -> Result<(), StreamError> {
        let submission = Submission { bytes: bytes.into(), time: time.into() };
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

    /// Submits the next buffer, as [`StreamFeed::submit`], once no other buffer waits, and returns without a
    /// wait for its beginning. Waits at most for `timeout`. Returns whether the buffer was taken.
    ///
    /// # Errors
    /// If the buffer is invalid, or the stream has ended.
    pub fn submit_within(
        &self,
        bytes: &Arc<[u8]>,
        time: Duration,
        timeout: Duration,
    ) -> Result<bool, StreamError> {
        let submission = Submission { bytes: Arc::clone(bytes), time: time.into() };
        submission.check()?;
        let is_full = |state: &mut State| state.next.is_some() && !state.is_ended;
        let waited = self.shared.1.wait_timeout_while(self.state(), timeout, is_full);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_ended {
            return Err(StreamError::Ended);
        }
        if waited.timed_out() {
            return Ok(false);
        }
        state.next = Some(submission);
        self.waker.wake();
        Ok(true)
    }

    /// Ends the buffers: the session ends once the time of the last buffer is over.
    pub fn finish(&self) {
        self.state().is_finished = true;
        self.waker.wake();
    }

    /// Whether the session takes no more buffers.
    pub fn is_ended(&self) -> bool {
        self.state().is_ended
    }

    /// Takes the next buffer, if any.
    fn take(&self) -> Option<Submission> {
        let next = self.state().next.take();
        if next.is_some() {
            self.shared.1.notify_all();
        }
        next
    }

    /// Whether a buffer waits, or no buffer will come.
    fn has_news(&self) -> bool {
        let state = self.state();
        state.next.is_some() || state.is_finished
    }

    /// Whether every buffer was taken and no more buffers will come.
    fn is_finished(&self) -> bool {
        let state = self.state();
        state.is_finished && state.next.is_none()
    }

    /// Refuses further buffers.
    fn end(&self) {
        self.state().is_ended = true;
        self.shared.1.notify_all();
    }
}
