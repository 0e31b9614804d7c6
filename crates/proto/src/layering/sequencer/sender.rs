//! One buffer after the other.

use std::sync::Arc;

use super::arrangement::{Arrangement, Order, Pdu, Reserve, Turn};
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

impl Submission {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// When it does not: never [`SubmitError::Full`].
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

/// Why a buffer was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It has no bytes.
    #[error("a buffer has at least one byte")]
    Empty,
    /// EXT_SEQ's offset is 32 bits wide.
    #[error("a buffer of {0} bytes: at most 2^32 - 1")]
    TooLong(usize),
    /// Its time is zero, or longer than [`BUFFER_TIME_MAX`].
    #[error("a buffer time of {0}: more than zero, at most one minute")]
    Time(Duration),
    /// The next buffer is there already: come back when [`Sequencer::wants`] says so.
    #[error("the next buffer is there already; wait until it has begun")]
    Full,
}

/// Longest time of a buffer. It bounds the packets of one: 2^32 come together at 800 Gbit/s only.
pub const BUFFER_TIME_MAX: Duration = Duration::from_secs(60);

/// A part of a buffer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer<'a> {
    /// The buffer's number, modulo 2^16.
    pub id: u16,
    /// Bytes of the whole buffer.
    pub length: u32,
    /// Number of the part.
    pub part: u32,
    /// Where the part stands in the buffer.
    pub offset: u32,
    /// The part.
    pub payload: &'a [u8],
    /// Whether it was sent before.
    pub is_repeat: bool,
    /// Whether the buffer's time is over: it is sent once more because no other one is there.
    pub is_over: bool,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load<'a> {
    /// A part of a buffer.
    Part(Buffer<'a>),
    /// What packets are reserved for.
    Reserved,
    /// Nothing: there is no buffer yet.
    Nothing,
}

/// Sends buffers over layers, each in its time, one after the other. A buffer after which none has come is
/// sent again until one does: a congestion control's packets cannot stop, and receivers that came late
/// collect it.
///
/// Memory: two buffers of the application's, and what an [`Arrangement`] takes.
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
    /// When the time of the current one ends, or of its repetition.
    end: Instant,
    is_over: bool,
    /// Without layers: parts sent.
    sent: u64,
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

    /// Leaves packets of the base to something else. Default: none.
    #[must_use]
    pub fn with_reserve(mut self, reserve: Option<Reserve>) -> Self {
        self.reserve = reserve;
        self
    }

    /// Whether there is room for the next buffer.
    pub fn wants(&self) -> bool {
        self.following.is_none()
    }

    /// Whether there is a buffer to send.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.following.is_none()
    }

    /// Whether the time of every buffer is over, as of the last packet asked for.
    pub fn is_over(&self) -> bool {
        self.following.is_none() && (self.is_over || self.current.is_none())
    }

    /// Takes the next buffer; it begins when the current one's time is over.
    ///
    /// # Errors
    /// When it makes no sense, or comes too early.
    pub fn submit(&mut self, submission: Submission) -> Result<(), SubmitError> {
        submission.check()?;
        if self.following.is_some() {
            return Err(SubmitError::Full);
        }
        self.following = Some(submission);
        Ok(())
    }

    /// What the next packet of a level carries, which leaves at `at` by the layering's schedule. To be asked
    /// once for each packet of every level, in the order of leaving. Without layers every receiver has every
    /// packet, and parts go out in the order of their importance.
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
                // A control that sends what it did not count: the beginning is worth most.
                None => Pdu { number: 0, is_repeat: true },
            },
        };
        self.part(pdu).map_or(Load::Nothing, Load::Part)
    }

    /// A sender gave up what should have left before `at`.
    pub fn skip_to(&mut self, layering: Option<&dyn Layering>, at: Instant) {
        if let Some(layering) = layering {
            // What was given up may reach into the next buffer.
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

    /// Begins the next buffer if it is time, or the current one once more.
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
        // A silence between two buffers is not made up for.
        let start = ended.filter(|end| at < *end + time).unwrap_or(at);
        self.end = start + time;
        self.sent = 0;
        if let Some(layering) = layering {
            let parts = self.parts();
            self.arrangement.lay_around(layering, start, time, parts, self.order, self.reserve);
        }
    }
}

#[cfg(test)]
mod tests;
