//! Output side of a relay: packets stored once for all links they leave by, and the queues of links with a
//! rate.

pub(crate) mod overload;

use std::collections::{BTreeSet, VecDeque};

use serde::Serialize;

use crate::machine::{ChannelId, Ecn, InterfaceId};
use crate::pacing::{BURST, Pacer};
use crate::queue::{Discipline, Occupancy, Offered, ParameterError, QueueConfig, Verdict};
use crate::rate::Rate;
use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

/// Maximum packets that wait in a relay, at all links together. The queue of a single link is limited to the
/// room that is left.
pub const WAITING_MAX: usize = 8_192;
/// Headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// Shape of a downstream link: a rate, and a queue for packets above the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EgressShape {
    /// Rate in bit/s with the headers of UDP and IPv4. The 20 extra bytes of IPv6 headers do not count.
    pub rate: Rate,
    /// Queue discipline; at most [`WAITING_MAX`] packets wait at all links together.
    pub queue: QueueConfig,
}

/// Packet counters of all links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EgressCounters {
    /// Packets sent, including all copies.
    pub sent: u64,
    /// UDP payload of the sent packets, in bytes.
    pub sent_bytes: u64,
    /// Packets that the queue of a link dropped.
    pub queue_drops: u64,
    /// Packets that a queue marked.
    pub marked: u64,
    /// Packets dropped because [`WAITING_MAX`] was reached.
    pub no_room: u64,
}

/// A stored packet with the number of references to the packet.
#[derive(Debug, Default)]
struct Packet {
    bytes: Vec<u8>,
    copies: usize,
}

/// A copy of a packet, waiting for one link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    packet: usize,
    pub(crate) egress: InterfaceId,
    pub(crate) ecn: Ecn,
    /// Destination channel, if any.
    pub(crate) channel: Option<ChannelId>,
}

#[derive(Debug)]
struct Link {
    queue: VecDeque<Copy>,
    queued_bytes: u64,
    pacer: Pacer,
    discipline: Discipline,
    stream: Stream,
    /// Packets offered and dropped since [`Egress::take_drops`].
    offered: u64,
    dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Egress {
    packets: Vec<Packet>,
    free: Vec<usize>,
    at_once: VecDeque<Copy>,
    shape: Option<EgressShape>,
    /// By interface: links with a separate shape.
    shapes: Vec<Option<EgressShape>>,
    seed: Seed,
    /// By interface; created at the first use.
    links: Vec<Option<Box<Link>>>,
    /// Links with a nonempty queue, by the next departure time.
    due: BTreeSet<(Instant, u32)>,
    counters: EgressCounters,
}

impl Egress {
    /// # Errors
    /// Returns an error if a queue parameter is invalid.
    pub(crate) fn new(shape: Option<EgressShape>, seed: Seed) -> Result<Self, ParameterError> {
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

    /// Sets the shape of a single link, before any packet is sent on the link.
    ///
    /// # Errors
    /// Returns an error if a queue parameter is invalid.
    pub(crate) fn set_shape(
        &mut self,
        egress: InterfaceId,
        shape: Option<EgressShape>,
    ) -> Result<(), ParameterError> {
        check(shape)?;
        let index = egress.0 as usize;
        if self.shapes.len() <= index {
            self.shapes.resize(index + 1, None);
        }
        self.shapes[index] = shape;
        Ok(())
    }

    /// Starts or stops forwarding of a channel on a link.
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

    /// Returns the numbers of packets that a link's queue was offered and dropped since the last call.
    pub(crate) fn take_drops(&mut self, egress: InterfaceId) -> (u64, u64) {
        let Some(Some(link)) = self.links.get_mut(egress.0 as usize) else { return (0, 0) };
        (core::mem::take(&mut link.offered), core::mem::take(&mut link.dropped))
    }

    /// Stores a packet, to be sent by links with [`Egress::send`] and dropped with [`Egress::release`];
    /// `None` if `packets_max` packets are stored already.
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

    /// Releases a reference to a packet: the holder's, or a sent copy's.
    pub(crate) fn release(&mut self, packet: usize) {
        let copies = &mut self.packets[packet].copies;
        *copies -= 1;
        if *copies == 0 {
            self.free.push(packet);
        }
    }

    /// Drops the packets that wait for a link, and the link's queue. The link may be used again.
    pub(crate) fn remove(&mut self, egress: InterfaceId) {
        let (waiting, others) = self.at_once.drain(..).partition(|copy| copy.egress == egress);
        self.at_once = others;
        let link = self.links.get_mut(egress.0 as usize).and_then(Option::take);
        if let Some(link) = &link {
            self.due.remove(&(link.pacer.next(), egress.0));
        }
        let queued = link.into_iter().flat_map(|link| link.queue);
        for copy in VecDeque::into_iter(waiting).chain(queued) {
            self.release(copy.packet);
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

    /// Sends a packet by a link, through the link's queue if the link has a rate.
    pub(crate) fn send(&mut self, now: Instant, packet: usize, egress: InterfaceId, ecn: Ecn) {
        self.send_to(now, packet, egress, ecn, None);
    }

    /// Sends a packet to a channel. The channel number is the group for the link's queue.
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
        link.offered += 1;
        // Slow links leave part of the room to other links.
        if link.queue.len() > room {
            link.dropped += 1;
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
                link.dropped += 1;
                self.counters.queue_drops += 1;
                return;
            }
        };
        self.enqueue(packet, Copy { packet, egress, ecn, channel }, wire_bytes);
    }

    /// Returns the next copy that may leave. The caller must release the packet.
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

    /// Returns the time of the next departure.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.at_once.is_empty() {
            true => self.due.first().map(|(due, _)| *due),
            false => Some(Instant::ZERO),
        }
    }

    /// Writes a copy's packet and counts the packet. Returns the length.
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

    fn shape_of(&self, egress: InterfaceId) -> Option<EgressShape> {
        self.shapes.get(egress.0 as usize).copied().flatten().or(self.shape)
    }

    fn link(&mut self, now: Instant, egress: InterfaceId) -> Option<&mut Link> {
        let EgressShape { rate, queue } = self.shape_of(egress)?;
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
                offered: 0,
                dropped: 0,
            }));
        }
        place.as_deref_mut()
    }
}

fn check(shape: Option<EgressShape>) -> Result<(), ParameterError> {
    let Some(EgressShape { rate, queue }) = shape else { return Ok(()) };
    queue.discipline(rate, Duration::ZERO).map(|_| ())
}
