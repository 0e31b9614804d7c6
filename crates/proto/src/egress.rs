//! What waits to leave a relay: packets that are there once, however many links they leave by, and the queues
//! of links that have a rate.

use std::collections::{BTreeSet, VecDeque};

use serde::Serialize;

use crate::machine::{ChannelId, Ecn, InterfaceId};
use crate::pacing::{BURST, Pacer};
use crate::queue::{Discipline, Occupancy, Offered, ParameterError, QueueConfig, Verdict};
use crate::rate::Rate;
use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

/// Packets that wait in a relay at the most, at all links together; at one link, at most as many as there is
/// room for still.
pub const WAITING_MAX: usize = 8_192;
/// Headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// What a link below is given: a rate, and a queue for what comes faster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// In bit/s with the headers of UDP and IPv4; those of IPv6 are 20 bytes more, which do not count.
    pub rate: Rate,
    /// Its discipline; at most [`WAITING_MAX`] packets wait at all links together.
    pub queue: QueueConfig,
}

/// What links did to packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EgressCounters {
    /// Packets sent, all copies.
    pub sent: u64,
    /// Bytes of their UDP payload.
    pub sent_bytes: u64,
    /// Packets that the queue of a link dropped.
    pub queue_drops: u64,
    /// Packets that a queue marked.
    pub marked: u64,
    /// Packets dropped for want of room: see [`WAITING_MAX`].
    pub no_room: u64,
}

/// A packet that leaves by so many links.
#[derive(Debug, Default)]
struct Packet {
    bytes: Vec<u8>,
    copies: usize,
}

/// A copy on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    packet: usize,
    pub(crate) egress: InterfaceId,
    pub(crate) ecn: Ecn,
    /// The channel that it goes to, where it goes to one.
    pub(crate) channel: Option<ChannelId>,
}

#[derive(Debug)]
struct Link {
    queue: VecDeque<Copy>,
    queued_bytes: u64,
    pacer: Pacer,
    discipline: Discipline,
    stream: Stream,
}

#[derive(Debug)]
pub(crate) struct Egress {
    packets: Vec<Packet>,
    free: Vec<usize>,
    at_once: VecDeque<Copy>,
    shape: Option<Shape>,
    /// By interface: links with a shape of their own.
    shapes: Vec<Option<Shape>>,
    seed: Seed,
    /// By interface; made when first used.
    links: Vec<Option<Box<Link>>>,
    /// Links with a queue, by when the next packet leaves.
    due: BTreeSet<(Instant, u32)>,
    counters: EgressCounters,
}

impl Egress {
    /// # Errors
    /// A queue of which a parameter makes no sense.
    pub(crate) fn new(shape: Option<Shape>, seed: Seed) -> Result<Self, ParameterError> {
        check(shape)?;
        Ok(Self {
            packets: Vec::new(),
            free: Vec::new(),
            at_once: VecDeque::new(),
            shape,
            shapes: Vec::new(),
            seed,
            links: Vec::new(),
            due: BTreeSet::new(),
            counters: EgressCounters::default(),
        })
    }

    /// Gives a link a shape of its own, before anything is sent there.
    ///
    /// # Errors
    /// A queue of which a parameter makes no sense.
    pub(crate) fn set_shape(
        &mut self,
        egress: InterfaceId,
        shape: Option<Shape>,
    ) -> Result<(), ParameterError> {
        check(shape)?;
        let index = egress.0 as usize;
        if self.shapes.len() <= index {
            self.shapes.resize(index + 1, None);
        }
        self.shapes[index] = shape;
        Ok(())
    }

    /// A link begins to forward a channel, or forwards it no more.
    pub(crate) fn membership(
        &mut self,
        now: Instant,
        egress: InterfaceId,
        channel: ChannelId,
        is_forwarded: bool,
    ) {
        if let Some(link) = self.link(now, egress) {
            link.discipline.membership(channel.0.into(), is_forwarded);
        }
    }

    pub(crate) const fn counters(&self) -> &EgressCounters {
        &self.counters
    }

    /// Takes a packet in, to be sent by links with [`Egress::send`] and let go with [`Egress::release`];
    /// `None` where so many are held already.
    pub(crate) fn hold(&mut self, payload: &[u8], packets_max: usize) -> Option<usize> {
        if self.held() >= packets_max {
            self.counters.no_room += 1;
            return None;
        }
        let packet = self.free.pop().unwrap_or_else(|| {
            self.packets.push(Packet::default());
            self.packets.len() - 1
        });
        let Packet { bytes, copies } = &mut self.packets[packet];
        bytes.clear();
        bytes.extend_from_slice(payload);
        *copies = 1;
        Some(packet)
    }

    /// Lets go of a packet, or of a copy that was sent.
    pub(crate) fn release(&mut self, packet: usize) {
        let copies = &mut self.packets[packet].copies;
        *copies -= 1;
        if *copies == 0 {
            self.free.push(packet);
        }
    }

    /// Sends a packet by a link without waiting.
    pub(crate) fn send_at_once(&mut self, packet: usize, egress: InterfaceId, ecn: Ecn) {
        self.leave_at_once(Copy { packet, egress, ecn, channel: None });
    }

    fn leave_at_once(&mut self, copy: Copy) {
        self.packets[copy.packet].copies += 1;
        self.at_once.push_back(copy);
    }

    /// Sends a packet by a link, through its queue if it has a rate.
    pub(crate) fn send(&mut self, now: Instant, packet: usize, egress: InterfaceId, ecn: Ecn) {
        self.send_to(now, packet, egress, ecn, None);
    }

    /// The same to a channel, whose number is its group for the link's queue.
    pub(crate) fn send_to(
        &mut self,
        now: Instant,
        packet: usize,
        egress: InterfaceId,
        ecn: Ecn,
        channel: Option<ChannelId>,
    ) {
        if self.shape_of(egress).is_none() {
            return self.leave_at_once(Copy { packet, egress, ecn, channel });
        }
        let group = channel.map(|channel| channel.0.into());
        let wire_bytes = self.packets[packet].bytes.len() + HEADER_BYTES;
        let offered = Offered { bytes: u32::try_from(wire_bytes).unwrap_or(u32::MAX), ecn, group };
        let room = WAITING_MAX.saturating_sub(self.held());
        let Some(link) = self.link(now, egress) else { return };
        // A few slow links leave some of it to the others.
        if link.queue.len() > room {
            self.counters.no_room += 1;
            return;
        }
        let is_idle = link.queue.is_empty() && link.pacer.is_due(now);
        let occupancy = Occupancy {
            packets: u32::try_from(link.queue.len()).unwrap_or(u32::MAX),
            bytes: link.queued_bytes,
            idle_since: is_idle.then(|| link.pacer.next()),
        };
        let ecn = match link.discipline.admit(now, occupancy, offered, &mut link.stream) {
            Verdict::Enqueue => ecn,
            Verdict::Mark => {
                self.counters.marked += 1;
                Ecn::CongestionExperienced
            }
            Verdict::Drop(_) => {
                self.counters.queue_drops += 1;
                return;
            }
        };
        self.enqueue(packet, Copy { packet, egress, ecn, channel }, wire_bytes);
    }

    /// The next copy that may leave; its packet is to be released.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Copy> {
        if let Some(copy) = self.at_once.pop_front() {
            return Some(copy);
        }
        let (due, interface) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, interface));
        let link = self.links.get_mut(interface as usize)?.as_mut()?;
        let copy = link.queue.pop_front()?;
        let wire_bytes = self.packets[copy.packet].bytes.len() + HEADER_BYTES;
        link.queued_bytes -= wire_bytes as u64;
        link.pacer.sent(now, wire_bytes);
        if !link.queue.is_empty() {
            self.due.insert((link.pacer.next(), interface));
        }
        Some(copy)
    }

    /// When the next packet leaves a queue.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.at_once.is_empty() {
            true => self.due.first().map(|(due, _)| *due),
            false => Some(Instant::ZERO),
        }
    }

    /// Writes a copy's packet, and counts it; its length.
    pub(crate) fn write(&mut self, copy: &Copy, buffer: &mut [u8]) -> usize {
        let packet = &self.packets[copy.packet].bytes;
        let bytes = packet.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&packet[..bytes]);
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes as u64;
        self.release(copy.packet);
        bytes
    }

    const fn held(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    fn enqueue(&mut self, packet: usize, copy: Copy, wire_bytes: usize) {
        let interface = copy.egress.0;
        let Some(Some(link)) = self.links.get_mut(interface as usize) else { return };
        if link.queue.is_empty() {
            self.due.insert((link.pacer.next(), interface));
        }
        link.queue.push_back(copy);
        link.queued_bytes += wire_bytes as u64;
        self.packets[packet].copies += 1;
    }

    fn shape_of(&self, egress: InterfaceId) -> Option<Shape> {
        self.shapes.get(egress.0 as usize).copied().flatten().or(self.shape)
    }

    fn link(&mut self, now: Instant, egress: InterfaceId) -> Option<&mut Link> {
        let Shape { rate, queue } = self.shape_of(egress)?;
        let index = egress.0 as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        let place = &mut self.links[index];
        if place.is_none() {
            let discipline = queue.discipline(rate, Duration::ZERO).ok()?;
            *place = Some(Box::new(Link {
                queue: VecDeque::new(),
                queued_bytes: 0,
                pacer: Pacer::new(rate, BURST, now),
                discipline,
                stream: self.seed.stream("bcfs/relay/link", egress.0.into()),
            }));
        }
        place.as_deref_mut()
    }
}

fn check(shape: Option<Shape>) -> Result<(), ParameterError> {
    let Some(Shape { rate, queue }) = shape else { return Ok(()) };
    queue.discipline(rate, Duration::ZERO).map(|_| ())
}
