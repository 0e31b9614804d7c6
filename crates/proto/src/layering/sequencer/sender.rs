//! The sequencer: sends a sequence of buffers.

use std::sync::Arc;

use super::arrangement::{Arrangement, Order, Pdu, Reserve, Turn};
use crate::layering::Layering;
use crate::time::{Duration, Instant};

/// A buffer submitted by an application.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Bytes, most important first: shared, never copied.
    pub bytes: Arc<[u8]>,
    /// Time to send the buffer in.
    pub time: Duration,
}

impl Submission {
    /// Checks that the buffer is valid.
    ///
    /// # Errors
    /// Returns an error if the buffer is invalid: never [`SubmitError::Full`].
    pub fn check(&self) -> Result<(), SubmitError> {
        if self.bytes.is_empty() {
            return Err(SubmitError::Empty);
        }
        if u32::try_from(self.bytes.len()).is_err() {
            return Err(SubmitError::TooLong(self.bytes.len()));
        }
        if self.time == Duration::ZERO || self.time > BUFFER_TIME_MAX {
            return Err(SubmitError::Time(self.time));
        }
        Ok(())
    }
}

/// Reason why a buffer was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The buffer is empty.
    #[error("a buffer has at least one byte")]
    Empty,
    /// EXT_SEQ's offset is 32 bits wide.
    #[error("a buffer of {0} bytes: at most 2^32 - 1")]
    TooLong(usize),
    /// The buffer time is zero, or longer than [`BUFFER_TIME_MAX`].
    #[error("a buffer time of {0}: more than zero, at most one minute")]
    Time(Duration),
    /// A next buffer is already queued: retry when [`Sequencer::wants`] returns true.
    #[error("the next buffer is there already; wait until it has begun")]
    Full,
}

/// Maximum time of a buffer. Limits the packets of a buffer: 2^32 packets would need 800 Gbit/s.
pub const BUFFER_TIME_MAX: Duration = Duration::from_secs(60);

/// A part of a buffer to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer<'a> {
    /// Number of the buffer, modulo 2^16.
    pub id: u16,
    /// Length of the whole buffer in bytes.
    pub length: u32,
    /// Number of the part.
    pub part: u32,
    /// Offset of the part in the buffer.
    pub offset: u32,
    /// Bytes of the part.
    pub payload: &'a [u8],
    /// Whether the part was sent before.
    pub is_repeat: bool,
    /// Whether the buffer's time is over and the buffer is repeated for lack of a next buffer.
    pub is_over: bool,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load<'a> {
    /// A part of a buffer.
    Part(Buffer<'a>),
    /// The packet is reserved for other content.
    Reserved,
    /// Nothing: no buffer has been submitted yet.
    Nothing,
}

/// Sends buffers over layers in sequence, each in its own time. A buffer without a successor is repeated
/// until the next buffer arrives: a congestion control's packets cannot stop, and late receivers collect the
/// repetition.
///
/// Memory: two buffers of the application, and the memory of an [`Arrangement`].
#[derive(Debug)]
pub struct Sequencer {
    part_bytes: u16,
    order: Order,
    reserve: Option<Reserve>,
    arrangement: Arrangement,
    current: Option<Submission>,
    following: Option<Submission>,
    /// Number of the current buffer.
    id: u16,
    /// End of the current buffer's time, or of its repetition.
    end: Instant,
    is_over: bool,
    /// Parts sent, without layers.
    sent: u64,
}

impl Sequencer {
    /// Returns a sequencer whose packets carry `part_bytes` of content each.
    ///
    /// # Panics
    /// Panics if `part_bytes` is zero.
    pub fn new(part_bytes: u16, order: Order) -> Self {
        assert!(part_bytes > 0, "a part has bytes");
        Self {
            part_bytes,
            order,
            reserve: None,
            arrangement: Arrangement::default(),
            current: None,
            following: None,
            id: u16::MAX,
            end: Instant::ZERO,
            is_over: false,
            sent: 0,
        }
    }

    /// Reserves packets of the base for other content. Default: none.
    #[must_use]
    pub fn with_reserve(mut self, reserve: Option<Reserve>) -> Self {
        self.reserve = reserve;
        self
    }

    /// Whether a next buffer can be submitted.
    pub fn wants(&self) -> bool {
        self.following.is_none()
    }

    /// Whether no buffer is submitted.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.following.is_none()
    }

    /// Whether the time of every buffer is over, as of the last packet requested.
    pub fn is_over(&self) -> bool {
        self.following.is_none() && (self.is_over || self.current.is_none())
    }

    /// Queues the next buffer, which begins when the current buffer's time is over.
    ///
    /// # Errors
    /// Returns an error if the buffer is invalid, or the queue is full.
    pub fn submit(&mut self, submission: Submission) -> Result<(), SubmitError> {
        submission.check()?;
        if self.following.is_some() {
            return Err(SubmitError::Full);
        }
        self.following = Some(submission);
        Ok(())
    }

    /// Returns the content of a level's next packet, which leaves at `at` by the layering's schedule. Must be
    /// called exactly once for each packet of every level, in the order of departure. Without layers every
    /// receiver gets every packet, and parts leave in the order of their importance.
    pub fn load(&mut self, layering: Option<&dyn Layering>, level: u16, at: Instant) -> Load<'_> {
        self.begin(layering, at);
        if self.current.is_none() {
            return Load::Nothing;
        }
        let pdu = match layering {
            None => self.next_in_order(),
            Some(_) => match self.arrangement.turn(level, at) {
                Some(Turn::Part(pdu)) => pdu,
                Some(Turn::Reserved) => return Load::Reserved,
                // The control sends more packets than announced: repeat the first part, which is worth most.
                None => Pdu { number: 0, is_repeat: true },
            },
        };
        self.part(pdu).map_or(Load::Nothing, Load::Part)
    }

    /// Skips packets due before `at` that the sender gave up.
    pub fn skip_to(&mut self, layering: Option<&dyn Layering>, at: Instant) {
        if let Some(layering) = layering {
            // The skipped packets may reach into the next buffer.
            self.begin(Some(layering), at);
            self.arrangement.skip_to(layering, at);
        }
    }

    fn next_in_order(&mut self) -> Pdu {
        let parts = self.parts();
        let number = self.sent;
        self.sent += 1;
        Pdu { number: number % parts, is_repeat: number >= parts }
    }

    fn parts(&self) -> u64 {
        let bytes = self.current.as_ref().map_or(1, |current| current.bytes.len());
        bytes.div_ceil(self.part_bytes.into()) as u64
    }

    fn part(&self, pdu: Pdu) -> Option<Buffer<'_>> {
        let bytes = &self.current.as_ref()?.bytes;
        let offset = u32::try_from(pdu.number * u64::from(self.part_bytes)).ok()?;
        let rest = bytes.get(offset as usize..)?;
        Some(Buffer {
            id: self.id,
            length: u32::try_from(bytes.len()).ok()?,
            part: u32::try_from(pdu.number).ok()?,
            offset,
            payload: &rest[..rest.len().min(self.part_bytes.into())],
            is_repeat: pdu.is_repeat || self.is_over,
            is_over: self.is_over,
        })
    }

    /// Begins the next buffer if due, or repeats the current buffer.
    fn begin(&mut self, layering: Option<&dyn Layering>, at: Instant) {
        let is_under_way = self.current.is_some() && at < self.end;
        let is_awaited = self.is_over && self.following.is_some();
        if is_under_way && !is_awaited {
            return;
        }
        let ended = (self.current.is_some() && !is_awaited).then_some(self.end);
        match self.following.take() {
            Some(following) => {
                self.current = Some(following);
                self.id = self.id.wrapping_add(1);
                self.is_over = false;
            }
            None => self.is_over = self.current.is_some(),
        }
        let Some(time) = self.current.as_ref().map(|current| current.time) else { return };
        // A gap between two buffers is not compensated.
        let start = ended.filter(|end| at < *end + time).unwrap_or(at);
        self.end = start + time;
        self.sent = 0;
        if let Some(layering) = layering {
            let parts = self.parts();
            self.arrangement.lay(layering, start, time, parts, self.order, self.reserve);
        }
    }
}

#[cfg(test)]
mod tests;
