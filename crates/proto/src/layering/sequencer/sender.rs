//! One buffer after the other.

use std::sync::Arc;

use super::arrangement::{Arrangement, Order};
use crate::layering::Layering;
use crate::time::{Duration, Instant};

/// What an application hands over.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The bytes, most important first: shared, never copied.
    pub bytes: Arc<[u8]>,
    /// The time to send them in.
    pub time: Duration,
}

/// Why a buffer was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It has no bytes.
    #[error("a buffer has at least one byte")]
    Empty,
    /// EXT_SEQ's offset is 32 bits wide.
    #[error("a buffer of {0} bytes: at most 2^32 - 1")]
    TooLong(usize),
    /// Its time is zero, or longer than an hour.
    #[error("a buffer time of {0}: more than zero, at most one hour")]
    Time(Duration),
    /// The next buffer is there already: come back when [`Sequencer::wants`] says so.
    #[error("the next buffer is there already; wait until it has begun")]
    Full,
}

/// A part of a buffer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer<'a> {
    /// The buffer's number, modulo 2^16.
    pub id: u16,
    /// Where the part stands in the buffer.
    pub offset: u32,
    /// The part.
    pub payload: &'a [u8],
    /// Whether it was sent before.
    pub is_repeat: bool,
}

const TIME_MAX: Duration = Duration::from_secs(3_600);

/// Sends buffers over layers, each in its time, one after the other.
///
/// Memory: two buffers of the application's, and what an [`Arrangement`] takes.
#[derive(Debug)]
pub struct Sequencer {
    part_bytes: u16,
    order: Order,
    arrangement: Arrangement,
    current: Option<Arc<[u8]>>,
    following: Option<Submission>,
    /// Number of the current buffer.
    id: u16,
}

impl Sequencer {
    /// A sequencer whose packets carry `part_bytes` of content each.
    ///
    /// # Panics
    /// When that is zero.
    pub fn new(part_bytes: u16, order: Order) -> Self {
        assert!(part_bytes > 0, "a part has bytes");
        Self {
            part_bytes,
            order,
            arrangement: Arrangement::default(),
            current: None,
            following: None,
            id: u16::MAX,
        }
    }

    /// Whether there is room for the next buffer.
    pub fn wants(&self) -> bool {
        self.following.is_none()
    }

    /// Takes the next buffer; it begins when the current one's time is over.
    ///
    /// # Errors
    /// When it makes no sense, or comes too early.
    pub fn submit(&mut self, submission: Submission) -> Result<(), SubmitError> {
        if submission.bytes.is_empty() {
            return Err(SubmitError::Empty);
        }
        if u32::try_from(submission.bytes.len()).is_err() {
            return Err(SubmitError::TooLong(submission.bytes.len()));
        }
        if submission.time == Duration::ZERO || submission.time > TIME_MAX {
            return Err(SubmitError::Time(submission.time));
        }
        if self.following.is_some() {
            return Err(SubmitError::Full);
        }
        self.following = Some(submission);
        Ok(())
    }

    /// What the next packet of a level carries, which leaves at `at` by the layering's schedule. `None` when there is no
    /// buffer for that time.
    pub fn next(
        &mut self,
        layering: &(impl Layering + ?Sized),
        level: u16,
        at: Instant,
    ) -> Option<Buffer<'_>> {
        while self.current.is_none() || at >= self.arrangement.end() {
            let start = if self.current.is_some() { self.arrangement.end() } else { at };
            self.current = None;
            let Submission { bytes, time } = self.following.take()?;
            let parts = bytes.len().div_ceil(self.part_bytes.into()) as u64;
            // A silence between two buffers is not made up for.
            let start = if start + time <= at { at } else { start };
            self.arrangement.lay(layering, start, time, parts, self.order);
            self.id = self.id.wrapping_add(1);
            self.current = Some(bytes);
        }
        let pdu = self.arrangement.next(level, at)?;
        let bytes = self.current.as_ref()?;
        let size = u64::from(self.part_bytes);
        let offset = u32::try_from(pdu.number * size).ok()?;
        let rest = bytes.get(offset as usize..)?;
        let payload = &rest[..rest.len().min(self.part_bytes.into())];
        Some(Buffer { id: self.id, offset, payload, is_repeat: pdu.is_repeat })
    }
}
