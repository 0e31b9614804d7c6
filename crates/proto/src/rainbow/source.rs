//! Rainbow source.

use core::convert::Infallible;
use std::collections::VecDeque;

use headwater_wire::bcfs::mark_any;

use super::SessionLabels;
use super::packets::Fountain;
use crate::bcfs::{self, Label, Level, ReplyTo, ReturnPath};
use crate::machine::{Datagram, Input, Machine, Output, Transmit};
use crate::time::Instant;

/// Configuration of a [`RainbowSource`].
#[derive(Clone, Copy, Debug)]
pub struct SourceConfig {
    labels: SessionLabels,
    reply_to: ReplyTo,
}

impl SourceConfig {
    /// Maximum number of requests queued within one call of a driver; further requests are dropped.
    pub const PENDING_MAX: usize = 4_096;

    /// Creates the configuration of a session's source that answers on any address of the host, to the
    /// requesting peer.
    pub const fn new(labels: SessionLabels) -> Self {
        Self { labels, reply_to: ReplyTo::Peer }
    }

    /// Sets the destination of replies. Default: the requesting peer.
    #[must_use]
    pub const fn with_reply_to(mut self, reply_to: ReplyTo) -> Self {
        self.reply_to = reply_to;
        self
    }
}

/// Counters of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Requests received.
    pub requests: u64,
    /// Requests of a level above 1, repeated after a loss.
    pub raised: u64,
    /// Nulls received.
    pub nulls: u64,
    /// Symbols sent.
    pub symbols: u64,
    /// Requests dropped because the queue was full.
    pub forgotten: u64,
    /// Requests that the fountain had no symbol for.
    pub dry: u64,
}

/// Answers each request with a new symbol, without state about receivers.
#[derive(Debug)]
pub struct RainbowSource<F> {
    bcfs: bcfs::BcfsSource,
    fountain: F,
    pending: VecDeque<(ReturnPath, Label, Level)>,
    counters: SourceCounters,
}

impl<F: Fountain> RainbowSource<F> {
    /// Creates a source without pending requests.
    pub fn new(config: SourceConfig, fountain: F) -> Self {
        let mut source = bcfs::BcfsSource::new(None, config.reply_to);
        source.bind(config.labels.of(0), SessionLabels::MASK).expect("the first binding of a source");
        Self { bcfs: source, fountain, pending: VecDeque::new(), counters: SourceCounters::default() }
    }

    /// Returns the source's counters.
    pub const fn counters(&self) -> &SourceCounters {
        &self.counters
    }

    fn datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(asked) = self.bcfs.receive(now, datagram) else { return };
        self.counters.requests += u64::from(!asked.is_null);
        self.counters.nulls += u64::from(asked.is_null);
        self.counters.raised += u64::from(!asked.is_null && asked.level > Level::ONE);
        if !asked.wants_reply {
            return;
        }
        if self.pending.len() == SourceConfig::PENDING_MAX {
            self.counters.forgotten += 1;
            return;
        }
        self.pending.push_back((asked.path, asked.label, asked.level));
    }

    fn poll_reply(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some((path, label, level)) = self.pending.pop_front() {
            if let Some(bytes) = self.fountain.next(now, bcfs::BcfsSource::body(&path, buffer)) {
                self.counters.symbols += 1;
                let transmit = self.bcfs.reply(now, &path, label, level, bytes, buffer);
                mark_any(buffer);
                return Some(transmit);
            }
            self.counters.dry += 1;
        }
        None
    }
}

impl<F: Fountain> Machine for RainbowSource<F> {
    type Event = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Datagram(datagram) = input {
            self.datagram(now, &datagram);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Infallible>> {
        self.poll_reply(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
