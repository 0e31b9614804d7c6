//! The sending socket: sends runs of datagrams to groups, and reads what receivers send back.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::Ecn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{MsgHdr, SockAddr};
use tracing::debug;

use super::batch::RecvBatch;
use super::channels::Channels;
use super::control::Control;
use super::endpoint::{BufferSize, Endpoint, OpenError, trying};
use super::interface::Interface;
use super::send_error::{SendError, is_segmentation_refusal};

/// Largest UDP payload of an IPv4 packet, in bytes, and so the most that one call can send. IPv6 would take 20 more.
const PAYLOAD_BYTES_MAX: usize = 65_507;
/// A differentiated services code point has 6 bits (RFC 2474).
const DSCP_MAX: u8 = 63;
/// How long a full send buffer may stay as full as it is before sending fails.
const STALL_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How a sending socket is opened.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Where to send. Default: where the kernel's route to the group leads.
    pub interface: Option<Interface>,
    /// Port to send from. Default: 0, any free one.
    pub port: u16,
    /// Routers that a multicast packet may pass, plus 1. Default: 1, so that nothing leaves the link unasked.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63 (RFC 2474). Default: 0, best effort.
    pub dscp: u8,
    /// Whether receivers on this machine hear it. Default: yes.
    pub loopback: bool,
    /// Send buffer in bytes. Default: 256 KiB. A larger one only makes packets wait in this machine.
    pub send_buffer_bytes: usize,
    /// Whether datagrams carry the ECN field asked for. Default: yes. If not, all are sent as not ECN-capable, for
    /// networks that drop the others.
    pub ecn: bool,
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
        }
    }
}

/// Datagrams for one destination, written one after the other: all of `segment_bytes` but the last, which may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Where they go.
    pub destination: SocketAddr,
    /// Their payloads.
    pub contents: &'a [u8],
    /// Length of each in bytes; 0 counts as the length of `contents`.
    pub segment_bytes: usize,
    /// The ECN field to send them with.
    pub ecn: Ecn,
}

/// What a sending socket has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Calls to the kernel that sent them: fewer than datagrams where segmentation offload is used.
    pub calls: u64,
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
    dscp: u8,
    ecn: bool,
    /// Whether the caller wants segmentation offload.
    segmentation_wanted: bool,
    /// Most segments per call that the kernel has not refused; 1 once it has.
    segments_max: usize,
    counters: SenderCounters,
}

impl SenderSocket {
    /// Opens a socket to send to these groups.
    ///
    /// # Errors
    /// When there is no such interface, it has no address of the groups' IP version, the port is taken, or the code point
    /// is none.
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
        if ipv4 {
            set_options_v4(&endpoint, &interface, options)?;
        } else {
            set_options_v6(&endpoint, &interface, options)?;
        }
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
            dscp: options.dscp,
            ecn: options.ecn,
            segmentation_wanted: true,
            segments_max,
            counters: SenderCounters::default(),
        })
    }

    /// Sends runs in order. When the send buffer is full, waits for room, for a second at most.
    ///
    /// # Errors
    /// The first refusal; the counters tell what was sent before. An empty run sends nothing.
    pub fn send(&mut self, runs: &[Run<'_>]) -> Result<(), SendError> {
        runs.iter().try_for_each(|run| self.send_run(run))
    }

    /// Replaces what is in `batch` by what receivers have sent to this socket, and says how many datagrams. Never
    /// blocks; 0 when nothing is waiting.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let channels = self.channels;
        batch.read(&self.endpoint, |meta| Some(meta.dst_ip.and_then(|group| channels.channel_of(group))))?;
        Ok(batch.len())
    }

    /// Allows or forbids segmentation offload (GSO): the kernel then cuts a run of up to 64 datagrams, which saves most
    /// of the cost but lets the run out as one burst. Allowed at first.
    pub fn set_segmentation(&mut self, wanted: bool) {
        self.segmentation_wanted = wanted;
    }

    /// Whether runs are sent with segmentation offload: it is allowed, and the kernel has not refused it.
    pub const fn segmentation(&self) -> bool {
        self.segmentation_wanted && self.segments_max > 1
    }

    /// The address and port it sends from, to which receivers answer.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The interface it sends on.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The groups.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// The send buffer.
    pub const fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }

    /// What it has counted.
    pub const fn counters(&self) -> SenderCounters {
        self.counters
    }

    fn send_run(&mut self, run: &Run<'_>) -> Result<(), SendError> {
        let segment_bytes = match run.segment_bytes {
            0 => run.contents.len(),
            bytes => bytes.min(run.contents.len()),
        };
        if segment_bytes == 0 {
            return Ok(());
        }
        let mut rest = run.contents;
        while !rest.is_empty() {
            let at_once = segment_bytes * self.segments_per_call(segment_bytes);
            let (piece, after) = rest.split_at(at_once.min(rest.len()));
            self.send_piece(run, piece, segment_bytes)?;
            rest = after;
        }
        Ok(())
    }

    fn segments_per_call(&self, segment_bytes: usize) -> usize {
        if self.segmentation() { (PAYLOAD_BYTES_MAX / segment_bytes).clamp(1, self.segments_max) } else { 1 }
    }

    /// Sends what fits one call. When the kernel will not segment it, sends the datagrams one by one; if that works,
    /// it was the segmentation that it refused, and it is not asked again.
    fn send_piece(&mut self, run: &Run<'_>, piece: &[u8], segment_bytes: usize) -> Result<(), SendError> {
        let refusal = match self.transmit(run, piece, segment_bytes) {
            Err(error) if piece.len() > segment_bytes && is_segmentation_refusal(&error) => error,
            result => {
                return result.map_err(|error| self.explain(run, segment_bytes.min(piece.len()), error));
            }
        };
        for datagram in piece.chunks(segment_bytes) {
            self.transmit(run, datagram, segment_bytes)
                .map_err(|error| self.explain(run, datagram.len(), error))?;
        }
        debug!(%refusal, interface = %self.interface.name, "the kernel does not segment here: sending datagrams singly");
        self.segments_max = 1;
        Ok(())
    }

    /// One `sendmsg`, repeated while the send buffer is full.
    fn transmit(&mut self, run: &Run<'_>, contents: &[u8], segment_bytes: usize) -> io::Result<()> {
        let control = self.control(run, contents.len(), segment_bytes);
        let destination = SockAddr::from(run.destination);
        let buffers = [IoSlice::new(contents)];
        let message =
            MsgHdr::new().with_addr(&destination).with_buffers(&buffers).with_control(control.as_bytes());
        loop {
            match self.endpoint.socket.sendmsg(&message, 0) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room()?,
                Err(error) => return Err(error),
            }
        }
        self.counters.calls += 1;
        self.counters.datagrams += contents.len().div_ceil(segment_bytes) as u64;
        self.counters.bytes += contents.len() as u64;
        Ok(())
    }

    fn control(&self, run: &Run<'_>, bytes: usize, segment_bytes: usize) -> Control {
        let mut control = Control::new();
        let ecn = if self.ecn { run.ecn } else { Ecn::NotCapable };
        // Otherwise the socket's own traffic class is right: the code point with an empty ECN field.
        if ecn != Ecn::NotCapable {
            control.traffic_class(run.destination.is_ipv4(), traffic_class(self.dscp, ecn));
        }
        if bytes > segment_bytes {
            let segment_bytes = u16::try_from(segment_bytes).expect("a piece of several fits one payload");
            control.segment_bytes(segment_bytes);
        }
        control
    }

    fn wait_for_room(&mut self) -> io::Result<()> {
        self.counters.waits += 1;
        let mut waiting = super::sys::unsent_bytes(self.endpoint.as_fd())?;
        loop {
            let mut fds = [PollFd::new(&self.endpoint, PollFlags::OUT)];
            match poll(&mut fds, Some(&STALL_MAX)) {
                Ok(0) => {}
                Ok(_) | Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            // The kernel tells of room when half of the buffer is free: on a slow link that takes seconds.
            let left = super::sys::unsent_bytes(self.endpoint.as_fd())?;
            if left >= waiting {
                return Err(io::ErrorKind::TimedOut.into());
            }
            waiting = left;
        }
    }

    fn explain(&self, run: &Run<'_>, bytes: usize, source: io::Error) -> SendError {
        SendError::new(run.destination, bytes, &self.interface, source)
    }
}

impl AsFd for SenderSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

fn set_options_v4(
    endpoint: &Endpoint,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(), OpenError> {
    let socket = &endpoint.socket;
    let address = interface.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED);
    trying(
        "set IP_MULTICAST_IF",
        rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
            socket,
            &Ipv4Addr::UNSPECIFIED,
            &address,
            interface.index,
        )
        .map_err(io::Error::from),
    )?;
    trying("set IP_MULTICAST_TTL", socket.set_multicast_ttl_v4(u32::from(options.ttl)))?;
    trying("set IP_MULTICAST_LOOP", socket.set_multicast_loop_v4(options.loopback))?;
    let octet = traffic_class(options.dscp, Ecn::NotCapable);
    trying("set IP_TOS", socket.set_tos_v4(u32::from(octet)))
}

fn set_options_v6(
    endpoint: &Endpoint,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(), OpenError> {
    let socket = &endpoint.socket;
    trying("set IPV6_MULTICAST_IF", socket.set_multicast_if_v6(interface.index))?;
    trying("set IPV6_MULTICAST_HOPS", socket.set_multicast_hops_v6(u32::from(options.ttl)))?;
    trying("set IPV6_MULTICAST_LOOP", socket.set_multicast_loop_v6(options.loopback))?;
    let octet = traffic_class(options.dscp, Ecn::NotCapable);
    trying("set IPV6_TCLASS", socket.set_tclass_v6(u32::from(octet)))
}

/// The octet that IPv4 calls type of service and IPv6 traffic class (RFC 2474, RFC 3168).
const fn traffic_class(dscp: u8, ecn: Ecn) -> u8 {
    (dscp << 2) | ecn as u8
}
