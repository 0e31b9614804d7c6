//! Sending socket: options, runs of datagrams to groups (cut into pieces of one message), and packets from
//! receivers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headwater_proto::Ecn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::debug;

use super::batch::RecvBatch;
use super::channels::Channels;
use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{BufferSize, Endpoint, OpenError, trying};
use super::full_link::FullLink;
use super::interface::Interface;
use super::link::{LinkChange, LinkState, LinkWatch, Outage};
use super::send_error::SendError;
use super::sys::{self, Control, Outgoing, is_report, is_segmentation_refusal, is_shortage};

/// A differentiated services code point has 6 bits (RFC 2474).
const DSCP_MAX: u8 = 63;
/// Longest time that a full send buffer may stay at the same fill before sending fails.
const STALL_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Time for which datagrams may wait in the kernel's queue for the link.
const QUEUE_TIME: Duration = Duration::from_millis(5);
/// Least send buffer: a dozen datagrams.
const BUFFER_BYTES_MIN: usize = 16 << 10;
/// Number of [`STALL_MAX`] before sending fails where the system does not tell the fill of the send buffer.
const UNTOLD_STALLS_MAX: u32 = 10;

/// Maximum number of repeats of a failed call, in case the error concerned an earlier datagram.
const REPORTS_MAX: u32 = 3;

/// Consecutive datagrams for one destination. All datagrams have `segment_bytes` but the last, which may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Destination of the datagrams.
    pub destination: SocketAddr,
    /// Payloads of the datagrams.
    pub contents: &'a [u8],
    /// Length of each datagram in bytes; 0 stands for the length of `contents`.
    pub segment_bytes: usize,
    /// ECN field of the datagrams.
    pub ecn: Ecn,
}

impl<'a> Run<'a> {
    /// Returns the payloads of the datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = if self.segment_bytes == 0 { self.contents.len() } else { self.segment_bytes };
        self.contents.chunks(bytes.max(1))
    }
}

/// Counters of a sending socket since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Payload bytes of the datagrams sent.
    pub bytes: u64,
    /// Kernel calls that sent datagrams. With `sendmmsg` (Linux) each call takes up to 32 messages; a message
    /// is a datagram, or a run of datagrams with segmentation offload.
    pub calls: u64,
    /// Datagrams dropped by the kernel before departure, for want of memory or of room in the interface's
    /// queue (`ENOBUFS`, `ENOMEM`), or while the interface could not send: lost to all receivers.
    pub unsent: u64,
    /// Times that sending waited for room in the send buffer.
    pub waits: u64,
}

/// Sends to groups, and to single ends, from one address of one interface.
#[derive(Debug)]
pub struct SenderSocket {
    endpoint: Endpoint,
    channels: Channels,
    interface: Interface,
    local_addr: SocketAddr,
    send_buffer: BufferSize,
    /// Bytes of send buffer in use, at most [`SenderOptions::send_buffer_bytes`].
    buffer_bytes: usize,
    options: SenderOptions,
    link: LinkWatch,
    outage: Outage,
    full_link: FullLink,
    /// Whether the caller wants segmentation offload.
    segmentation_wanted: bool,
    /// Most segments per call that the kernel has not refused; 1 after a refusal.
    segments_max: usize,
    /// Set when sending is to end.
    stop: Arc<AtomicBool>,
    /// Set when `stop` was set and the send buffer had no room for a while: sending no longer waits.
    given_up: bool,
    counters: SenderCounters,
    /// Payload bytes sent by channel.
    channel_bytes: Vec<u64>,
}

impl SenderSocket {
    /// Opens a socket to send to `channels`.
    ///
    /// # Errors
    /// When there is no such interface, the interface has no address of the groups' IP version, the port is
    /// taken, or the code point is invalid.
    pub fn open(channels: &Channels, options: &SenderOptions) -> Result<Self, OpenError> {
        if options.dscp > DSCP_MAX {
            return Err(OpenError::CodePoint(options.dscp));
        }
        let ipv4 = channels.is_ipv4();
        let interface = match &options.interface {
            Some(interface) => interface.clone(),
            None => Interface::default_for(channels.base().ip())?,
        };
        // Receivers on this machine hold the groups' port, too.
        let shared = options.port == channels.port();
        let endpoint = Endpoint::open(interface.bind_address(ipv4, options.port)?, shared)?;
        set_options(&endpoint, ipv4, &interface, options)?;
        let send_buffer = endpoint.set_send_buffer(options.send_buffer_bytes)?;
        let local_addr = endpoint.local_addr()?;
        let segments_max = endpoint.segments_max();
        debug!(
            group = %channels.base(), %local_addr, interface = %interface, ttl = options.ttl, dscp = options.dscp,
            ?send_buffer, segments_max, "opened a sending socket"
        );
        Ok(Self {
            endpoint,
            channels: *channels,
            interface,
            local_addr,
            send_buffer,
            buffer_bytes: options.send_buffer_bytes,
            options: options.clone(),
            link: LinkWatch::new(Some(local_addr.ip())),
            outage: Outage::new(options.outage_max),
            full_link: FullLink::default(),
            segmentation_wanted: true,
            segments_max,
            stop: Arc::default(),
            given_up: false,
            counters: SenderCounters::default(),
            channel_bytes: vec![0; usize::from(channels.count())],
        })
    }

    /// Sends runs in order. When the send buffer is full, waits for room, for a second at most. Datagrams
    /// that find no room in the interface's queue count as unsent, and the rest is sent. Datagrams also count
    /// as unsent while the interface cannot send, for [`SenderOptions::outage_max`].
    ///
    /// # Errors
    /// The first refusal; the counters tell what was sent before. An empty run sends nothing.
    pub fn send(&mut self, runs: &[Run<'_>]) -> Result<(), SendError> {
        let mut pieces = Pieces::new(runs, self.segments_per_message());
        while let Some(first) = pieces.clone().next() {
            match self.transmit(pieces) {
                Ok(sent) => pieces.by_ref().take(sent).for_each(|piece| self.count(&piece)),
                Err(error) if first.datagrams() > 1 && is_segmentation_refusal(&error) => {
                    self.send_singly(&first, &error)?;
                    pieces.next();
                    pieces = pieces.with_segments_max(self.segments_per_message());
                }
                Err(error) => {
                    self.give_up(&first, error)?;
                    pieces.next();
                }
            }
        }
        Ok(())
    }

    /// Checks whether the interface still exists, and sends on an interface that came back. Returns a change
    /// of state. Lists the interfaces from the kernel: call once a second, not for each packet.
    pub fn inspect_link(&mut self) -> Option<LinkChange> {
        let inspection = self.link.inspect_link(&self.interface)?;
        let mut state = inspection.state;
        if let Some(renewed) = inspection.renewed {
            self.interface = renewed;
            if let Err(error) =
                set_options(&self.endpoint, self.channels.is_ipv4(), &self.interface, &self.options)
            {
                debug!(%error, "cannot send on the interface that came back");
                // The interface went away again: the next inspection reports the loss.
                state = LinkState::Gone;
            }
        }
        self.link.on_state(&self.interface, state)
    }

    /// Replaces the contents of `batch` by datagrams that receivers have sent to this socket. Returns the
    /// number of datagrams. Never blocks; 0 when no datagram waits.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let channels = self.channels;
        // A report left over, or arrived since, fails one read.
        for _ in 0..=REPORTS_MAX {
            let read = batch.read(&self.endpoint, |heard| {
                Some(heard.destination.and_then(|group| channels.channel_of(group)))
            });
            match read {
                Ok(()) => break,
                Err(error) if is_report(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if batch.is_empty() {
            // An ICMP report wakes every wait until the report is taken.
            sys::discard_reports(&self.endpoint.socket);
        }
        Ok(batch.len())
    }

    /// Allows or forbids segmentation offload (GSO). With offload the kernel cuts a run of up to 64
    /// datagrams, which saves most of the cost but sends the run as one burst. Initially allowed.
    pub fn set_segmentation(&mut self, wanted: bool) {
        self.segmentation_wanted = wanted;
    }

    /// Sets the stop flag. Once `stop` is set, sending no longer waits for a send buffer that has no room for
    /// a second; datagrams without room count as unsent. Without a stop flag a slow link delays sending until
    /// the buffer empties.
    pub fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Whether runs are sent with segmentation offload: allowed by the caller, and not refused by the kernel.
    pub const fn segmentation(&self) -> bool {
        self.segmentation_wanted && self.segments_max > 1
    }

    /// Returns the local address and port, to which receivers answer.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the interface of the socket.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the groups.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Returns the payload bytes sent, by channel.
    pub fn channel_bytes(&self) -> &[u64] {
        &self.channel_bytes
    }

    /// Returns the size of the send buffer.
    pub const fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }

    /// Takes the datagrams per second that the interface's queue took while it was full, if it was since the
    /// last call.
    pub fn take_full_link(&mut self) -> Option<f64> {
        self.full_link.take()
    }

    /// Returns the counters.
    pub const fn counters(&self) -> SenderCounters {
        self.counters
    }

    fn segments_per_message(&self) -> usize {
        if self.segmentation() { self.segments_max } else { 1 }
    }

    /// Sends the datagrams of a piece singly after the kernel refused to segment the piece. If that works,
    /// segmentation was the cause, and segmentation is not tried again.
    fn send_singly(&mut self, piece: &Piece<'_>, refusal: &io::Error) -> Result<(), SendError> {
        for run in piece.singly() {
            for datagram in Pieces::new(&[run], 1) {
                match self.transmit(Pieces::new(&[run], 1)) {
                    Ok(_) => self.count(&datagram),
                    Err(error) => self.give_up(&datagram, error)?,
                }
            }
        }
        debug!(%refusal, interface = %self.interface.name, "the kernel does not segment here: sending datagrams singly");
        self.segments_max = 1;
        Ok(())
    }

    /// Sends the first pieces in one `sendmmsg`, repeated while the send buffer is full. Returns the number
    /// of pieces sent, at least 1.
    fn transmit(&mut self, mut pieces: Pieces<'_>) -> io::Result<usize> {
        let messages = std::array::from_fn(|_| {
            let piece = pieces.next()?;
            Some(Outgoing::new(piece.destination, piece.contents, self.control(&piece)))
        });
        let mut reports = 0;
        let sent = loop {
            match self.endpoint.send(&messages) {
                Ok(sent) => break sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room()?,
                // The error may concern an earlier datagram (ICMP); such an error is reported once.
                Err(error) if reports == REPORTS_MAX || is_shortage(&error) => return Err(error),
                Err(_) => reports += 1,
            }
        };
        self.counters.calls += sys::calls(sent);
        self.outage.ended(&self.interface.name);
        Ok(sent)
    }

    fn count(&mut self, piece: &Piece<'_>) {
        self.counters.datagrams += piece.datagrams();
        self.counters.bytes += piece.contents.len() as u64;
        if let Some(channel) = self.channels.channel_of(piece.destination.ip()) {
            self.channel_bytes[usize::from(channel.0)] += piece.contents.len() as u64;
        }
    }

    /// Counts a piece as unsent. A full queue is congestion on this machine: packets are lost, sending
    /// continues. Sending also continues while an interface that has sent before may come back. Any other
    /// error ends sending.
    fn give_up(&mut self, piece: &Piece<'_>, error: io::Error) -> Result<(), SendError> {
        if is_shortage(&error) {
            self.full_link.on_refusal(Instant::now(), self.counters.datagrams);
        } else if !self.given_up {
            let bytes = piece.segment_bytes.min(piece.contents.len());
            let refusal = SendError::new(piece.destination, bytes, &self.interface, error);
            if self.counters.datagrams == 0 {
                return Err(refusal);
            }
            self.outage.refused(refusal, &self.interface.name, (self.link.state(), self.local_addr.ip()))?;
        }
        self.counters.unsent += piece.datagrams();
        Ok(())
    }

    fn control(&self, piece: &Piece<'_>) -> Control {
        let mut control = Control::new();
        let ecn = if self.options.ecn { piece.ecn } else { Ecn::NotCapable };
        // Otherwise the socket's own traffic class is right: the code point with an empty ECN field.
        if ecn != Ecn::NotCapable {
            control.traffic_class(piece.destination.is_ipv4(), traffic_class(self.options.dscp, ecn));
        }
        if piece.datagrams() > 1 {
            let segment_bytes =
                u16::try_from(piece.segment_bytes).expect("a piece of several fits one payload");
            control.segment_bytes(segment_bytes);
        }
        control
    }

    fn wait_for_room(&mut self) -> io::Result<()> {
        if self.given_up {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.counters.waits += 1;
        let began = Instant::now();
        self.full_link.on_full(began, self.counters.datagrams);
        let mut waiting = sys::unsent_bytes(&self.endpoint.socket)?;
        let mut turns = 0;
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.endpoint.as_fd(), PollFlags::OUT)];
            match poll(&mut fds, Some(&STALL_MAX)) {
                Ok(0) => {}
                Ok(_) => {
                    let (now, left) = (Instant::now(), sys::unsent_bytes(&self.endpoint.socket)?);
                    // Unknown counts as empty.
                    self.full_link.on_room(now, now - began, left.unwrap_or(0) == 0);
                    self.fit_buffer(now - began);
                    return Ok(());
                }
                Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            // The kernel reports room when half of the buffer is free: on a slow link that takes seconds.
            let left = sys::unsent_bytes(&self.endpoint.socket)?;
            turns += 1;
            self.given_up = self.stop.load(Ordering::Acquire);
            let is_stalled = if left.is_some() { left >= waiting } else { turns == UNTOLD_STALLS_MAX };
            if is_stalled || self.given_up {
                return Err(io::ErrorKind::TimedOut.into());
            }
            waiting = left;
        }
    }
}

impl SenderSocket {
    /// Adapts the send buffer to a link that took `half` to send half of the buffer: whatever waits in the
    /// kernel can no longer give way to more urgent packets, and looks like a queue of the network. By a
    /// factor of two at most: a link may have paused.
    fn fit_buffer(&mut self, half: Duration) {
        let (now, most) = (self.buffer_bytes as u128, self.options.send_buffer_bytes.max(BUFFER_BYTES_MIN));
        let fitting = now * QUEUE_TIME.as_nanos() / (2 * half.as_nanos()).max(1);
        let bytes =
            usize::try_from(fitting.clamp(now / 2, 2 * now)).unwrap_or(most).clamp(BUFFER_BYTES_MIN, most);
        let is_other = bytes.abs_diff(self.buffer_bytes) > self.buffer_bytes / 4;
        if is_other && self.endpoint.set_send_buffer(bytes).is_ok() {
            self.buffer_bytes = bytes;
            self.full_link.on_resized();
        }
    }
}

impl AsFd for SenderSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

/// Options of a sending socket.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Interface to send on. Default: the interface of the kernel's route to the group.
    pub interface: Option<Interface>,
    /// Port to send from. Default: 0, any free port.
    pub port: u16,
    /// Maximum number of routers on the path of a multicast packet, plus 1. Default: 1, so that no packet
    /// leaves the link unasked.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63 (RFC 2474). Default: 0, best effort.
    pub dscp: u8,
    /// Whether receivers on this machine receive the datagrams. Default: yes.
    pub loopback: bool,
    /// Send buffer in bytes. Default: 256 KiB. A larger buffer only makes packets wait in this machine.
    pub send_buffer_bytes: usize,
    /// Whether datagrams carry the requested ECN field. Default: yes. If not, all datagrams are sent as not
    /// ECN-capable, for networks that drop ECN-capable datagrams.
    pub ecn: bool,
    /// Longest time for which the interface may be gone, down or without its address. Default: 60 s, enough
    /// for a switch or a driver to restart. Applies only after the first datagram was sent: a wrong start is
    /// an error at once.
    pub outage_max: Duration,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            interface: None,
            port: 0,
            ttl: 1,
            dscp: 0,
            loopback: true,
            send_buffer_bytes: 256 << 10,
            ecn: true,
            outage_max: Duration::from_secs(60),
        }
    }
}

/// Sets the options on a socket that sends on the interface, for groups of either IP version.
///
/// # Errors
/// [`OpenError::Option`].
pub(super) fn set_options(
    endpoint: &Endpoint,
    ipv4: bool,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(), OpenError> {
    let socket = &endpoint.socket;
    trying("set IP_MULTICAST_IF", sys::send_on(socket, interface, ipv4))?;
    // Without the option a full queue of the interface goes unnoticed.
    trying("set IP_RECVERR", sys::report_errors(socket, ipv4, true))?;
    let ttl = u32::from(options.ttl);
    let set = if ipv4 { socket.set_multicast_ttl_v4(ttl) } else { socket.set_multicast_hops_v6(ttl) };
    trying("set IP_MULTICAST_TTL", set)?;
    let loopback = options.loopback;
    let set =
        if ipv4 { socket.set_multicast_loop_v4(loopback) } else { socket.set_multicast_loop_v6(loopback) };
    trying("set IP_MULTICAST_LOOP", set)?;
    let octet = traffic_class(options.dscp, Ecn::NotCapable);
    trying("set IP_TOS", sys::set_traffic_class(socket, ipv4, octet))
}

/// The octet that IPv4 calls type of service and IPv6 traffic class (RFC 2474, RFC 3168).
pub(super) const fn traffic_class(dscp: u8, ecn: Ecn) -> u8 {
    (dscp << 2) | ecn as u8
}

/// Maximum bytes of a run in one message. With its headers (Ethernet 14 and two tags of 4, IPv6 40, UDP 8) a
/// run is then shorter than 64 KiB, the longest packet that an interface takes whole (`gso_max_size`). With a
/// byte more, the kernel cuts every run in software, at five times the cost.
pub(crate) const RUN_BYTES_MAX: usize = 65_535 - (14 + 8 + 40 + 8);

/// Contents of one message: datagrams of a run, all of `segment_bytes` but the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) destination: SocketAddr,
    /// Never empty.
    pub(super) contents: &'a [u8],
    pub(super) segment_bytes: usize,
    pub(super) ecn: Ecn,
}

impl<'a> Piece<'a> {
    pub(super) fn datagrams(&self) -> u64 {
        self.contents.len().div_ceil(self.segment_bytes) as u64
    }

    /// Returns the datagrams, each as a separate run.
    pub(super) fn singly(&self) -> impl Iterator<Item = Run<'a>> {
        let Self { destination, contents, segment_bytes, ecn } = *self;
        contents.chunks(segment_bytes).map(move |contents| Run { destination, contents, segment_bytes, ecn })
    }
}

/// Pieces of runs, in order. An empty run has no piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    runs: &'a [Run<'a>],
    /// Bytes of the first run that were taken.
    taken: usize,
    segments_max: usize,
}

impl<'a> Pieces<'a> {
    /// Pieces of at most `segments_max` datagrams.
    pub(super) fn new(runs: &'a [Run<'a>], segments_max: usize) -> Self {
        Self { runs, taken: 0, segments_max }
    }

    /// Returns the remaining pieces, with at most `segments_max` datagrams in a piece.
    pub(super) fn with_segments_max(self, segments_max: usize) -> Self {
        Self { segments_max, ..self }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let (run, later) = loop {
            let (run, later) = self.runs.split_first()?;
            if self.taken < run.contents.len() {
                break (run, later);
            }
            (self.runs, self.taken) = (later, 0);
        };
        let segment_bytes = match run.segment_bytes {
            0 => run.contents.len(),
            bytes => bytes.min(run.contents.len()),
        };
        let segments = (RUN_BYTES_MAX / segment_bytes).clamp(1, self.segments_max);
        let rest = &run.contents[self.taken..];
        let contents = &rest[..rest.len().min(segment_bytes * segments)];
        self.taken += contents.len();
        if contents.len() == rest.len() {
            (self.runs, self.taken) = (later, 0);
        }
        Some(Piece { destination: run.destination, contents, segment_bytes, ecn: run.ecn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(runs: &[(usize, usize)], segments_max: usize) -> Vec<(usize, u64)> {
        let contents = vec![0; 200_000];
        let run = |(bytes, segment_bytes): &(usize, usize)| Run {
            destination: "239.0.0.1:1".parse().unwrap(),
            contents: &contents[..*bytes],
            segment_bytes: *segment_bytes,
            ecn: Ecn::NotCapable,
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        let cut = Pieces::new(&runs, segments_max);
        cut.map(|piece| (piece.contents.len(), piece.datagrams())).collect()
    }

    #[test]
    fn runs_are_cut_between_datagrams() {
        assert_eq!(pieces(&[(150_000, 1_000)], 64), [(64_000, 64), (64_000, 64), (22_000, 22)]);
        assert_eq!(pieces(&[(150_000, 1_472)], 64), [(64_768, 44), (64_768, 44), (20_464, 14)]);
        // 46 of these would fit a UDP payload, but with their headers no interface.
        assert_eq!(pieces(&[(66_000, 1_424)], 64), [(64_080, 45), (1_920, 2)]);
        assert_eq!(pieces(&[(2_500, 1_000)], 1), [(1_000, 1), (1_000, 1), (500, 1)]);
    }

    #[test]
    fn empty_runs_have_no_piece_and_a_run_without_segments_is_one_datagram() {
        assert_eq!(pieces(&[(0, 0), (0, 9), (7, 0), (0, 1), (7, 100)], 64), [(7, 1), (7, 1)]);
        assert_eq!(pieces(&[], 64), []);
        assert_eq!(pieces(&[(70_000, 0)], 64), [(70_000, 1)]);
    }
}
