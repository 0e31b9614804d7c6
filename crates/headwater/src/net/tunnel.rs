//! Receiving socket behind a tunnel: joins channels at an AMT relay and reads the datagrams, all by unicast.
//! Needs no privilege, and no multicast on this network.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use headwater_proto::amt::{Gateway, GatewayConfig, GatewayEvent};
use headwater_proto::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output, Seed};
use headwater_wire::amt::inner::InnerDatagram;
use headwater_wire::amt::{DATA_HEADER_BYTES, is_data};
use headwater_wire::roster::{Report, ReportKind, is_roster};
use headwater_wire::rtt;
use tracing::{debug, warn};

use super::batch::{IncomingMessage, RecvBatch, TunneledDatagram};
use super::channels::Channels;
use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{BufferSize, Endpoint, OpenError};
use super::query::QuerySocket;
use super::receiver::{MembershipError, ReceiverCounters, any_address};
use super::sender::Run;
use crate::clock::Clock;
use crate::system;

/// Receive buffer in bytes, as of a receiving socket.
const BUFFER_BYTES: usize = 32 << 20;
/// Largest message of a gateway.
const MESSAGE_BYTES_MAX: usize = 1_500;

/// Receives the joined channels through an AMT relay. Requests to senders go directly to the sender: where
/// no route leads to the sender, its answers are missed. Reports of levels go through the relay, too; reports
/// to a roster go through the relay if the sender does not answer directly.
#[derive(Debug)]
pub struct AmtSocket {
    channels: Channels,
    source: Option<IpAddr>,
    /// Source of the session as heard, where no source was given.
    expected: Option<IpAddr>,
    /// By channel.
    joined: Vec<bool>,
    gateway: Gateway,
    endpoint: Endpoint,
    receive_buffer: BufferSize,
    asking: QuerySocket,
    roster: RosterPath,
    clock: Clock,
    counters: ReceiverCounters,
    /// Whether a silence of the relay was reported.
    is_warned: bool,
}

impl AmtSocket {
    /// Opens a socket for channels behind a relay, from one source or from any. The relay and the channels
    /// may be of different IP versions. Nothing is sent before the first join.
    ///
    /// # Errors
    /// When the source's IP version differs from the groups', or the process has no file descriptor left.
    pub fn open(relay: SocketAddr, channels: &Channels, source: Option<IpAddr>) -> Result<Self, OpenError> {
        let group = channels.base().ip();
        if let Some(from) = source.filter(|from| from.is_ipv4() != group.is_ipv4()) {
            return Err(OpenError::SourceFamily { from, group });
        }
        let any: IpAddr = match relay {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let endpoint = Endpoint::open(SocketAddr::new(any, 0), false)?;
        let receive_buffer = endpoint.set_receive_buffer(BUFFER_BYTES)?;
        let config = GatewayConfig::new(relay, group.is_ipv6(), Seed(system::random_u64()));
        debug!(%relay, %group, ?source, ?receive_buffer, "opened a tunnel");
        Ok(Self {
            channels: *channels,
            source,
            expected: None,
            joined: vec![false; usize::from(channels.count())],
            gateway: Gateway::new(config),
            endpoint,
            receive_buffer,
            asking: QuerySocket::new(any_address(channels)),
            roster: RosterPath::default(),
            clock: Clock::start(),
            counters: ReceiverCounters::default(),
            is_warned: false,
        })
    }

    /// Joins a channel.
    ///
    /// # Errors
    /// When the session has no such channel.
    pub fn join(&mut self, channel: ChannelId) -> Result<(), MembershipError> {
        let group = self.group(channel)?;
        // On the base channel another session may replace this session.
        let expected = self.expected.filter(|_| channel != ChannelId::BASE);
        self.joined[usize::from(channel.0)] = true;
        if !self.gateway.join(self.clock.now(), group, self.source.or(expected)) {
            debug!(%group, "the gateway has the most groups of a relay");
        }
        self.flush();
        Ok(())
    }

    /// Leaves a channel.
    ///
    /// # Errors
    /// When the session has no such channel.
    pub fn leave(&mut self, channel: ChannelId) -> Result<(), MembershipError> {
        let group = self.group(channel)?;
        self.joined[usize::from(channel.0)] = false;
        self.gateway.leave(self.clock.now(), group);
        self.flush();
        Ok(())
    }

    /// Leaves all channels, at the end of a session.
    pub fn leave_all(&mut self) {
        self.joined.fill(false);
        self.gateway.close(self.clock.now());
        self.flush();
    }

    /// Sets the source by which channels other than the base are joined from now on; `None` for any.
    pub fn expect_source(&mut self, source: Option<IpAddr>) {
        self.expected = source;
    }

    /// Replaces the contents of `batch` by waiting datagrams of the channels, and handles messages of the
    /// relay. Returns the number of datagrams. Never blocks.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let now = self.clock.now();
        let Self { channels, source, joined, gateway, roster, counters, .. } = self;
        let mut has_data = false;
        batch.read_tunnel(&self.endpoint, |heard, datagram| {
            if is_roster(datagram) && heard.source == gateway.relay() {
                return roster.reply(datagram);
            }
            if !is_data(datagram) {
                let datagram =
                    Datagram { source: heard.source, channel: None, ecn: Ecn::NotCapable, payload: datagram };
                gateway.handle(now, Input::Datagram(datagram));
                return None;
            }
            if heard.source != gateway.relay() {
                counters.foreign_source += 1;
                return None;
            }
            has_data = true;
            let is_joined = |channel: ChannelId| joined.get(usize::from(channel.0)).is_some_and(|is| *is);
            counters.admit_tunneled((channels, *source), heard, datagram, is_joined)
        })?;
        if has_data {
            self.gateway.on_data(now);
        }
        self.gateway.handle(now, Input::Timeout);
        self.flush();
        self.asking.read(batch, 1, &mut self.counters)?;
        Ok(batch.len())
    }

    /// Sends requests to senders by unicast, and reports of levels through the relay as well: a route to the
    /// sender may be missing. Returns the number of datagrams that the kernel refused.
    ///
    /// # Errors
    /// When the socket for requests cannot be opened.
    pub fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, OpenError> {
        let mut unsent = 0;
        for run in runs {
            for datagram in run.datagrams() {
                if let Ok(rtt::Message::Report(demand)) = rtt::Message::parse(datagram) {
                    self.gateway.report_demand(run.destination, demand);
                }
                if self.roster.is_relayed(run.destination, datagram) {
                    self.gateway.report_roster(run.destination, datagram);
                } else {
                    let single = Run { contents: datagram, segment_bytes: 0, ..*run };
                    unsent += self.asking.send(&[single])?;
                }
            }
        }
        self.flush();
        Ok(unsent)
    }

    /// Returns the time at which [`AmtSocket::recv`] is to be called if no datagram comes before.
    pub fn wake_at(&self) -> Option<Instant> {
        self.clock.to_std(self.gateway.poll_timeout()?)
    }

    /// Returns the descriptors to wait on for readability. The set changes after a send.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.endpoint.as_fd()).chain(self.asking.fd())
    }

    /// Returns the groups.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Returns the address of the relay.
    pub const fn relay(&self) -> SocketAddr {
        self.gateway.relay()
    }

    /// Returns the local address of the tunnel.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.endpoint.local_addr().ok()
    }

    /// Returns the size of the receive buffer.
    pub const fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// Returns the counters. Reads the drops from the kernel.
    pub fn counters(&self) -> ReceiverCounters {
        let drops = self.endpoint.messages_dropped();
        ReceiverCounters { kernel_drops: drops.into(), ..self.counters }
    }

    fn group(&self, channel: ChannelId) -> Result<IpAddr, MembershipError> {
        let address = self.channels.address(channel);
        address
            .map(|address| address.ip())
            .ok_or(MembershipError::NoSuchChannel { channel: channel.0, count: self.channels.count() })
    }

    /// Sends the gateway's messages. The gateway repeats lost messages.
    fn flush(&mut self) {
        let now = self.clock.now();
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        while let Some(output) = self.gateway.poll_output(now, &mut buffer) {
            match output {
                Output::Transmit(transmit) => {
                    if let Destination::Unicast(to) = transmit.destination
                        && let Err(error) =
                            self.endpoint.socket.send_to(&buffer[..transmit.bytes], &to.into())
                    {
                        debug!(%to, %error, "a message to the AMT relay was not sent");
                    }
                }
                Output::Event(event) => self.report(event),
                Output::Join(_) | Output::Leave(_) | Output::Router(_) => {}
            }
        }
    }

    fn report(&mut self, event: GatewayEvent) {
        match event {
            GatewayEvent::Connected { relay } => {
                debug!(%relay, "the AMT relay answers");
                self.is_warned = false;
            }
            GatewayEvent::Silent { relay } if !self.is_warned => {
                self.is_warned = true;
                warn!(
                    "the AMT relay {relay} does not answer; does UDP pass to and from the relay? trying on"
                );
            }
            GatewayEvent::Limited { relay } if !self.is_warned => {
                self.is_warned = true;
                warn!("the AMT relay {relay} takes no more gateways; trying on");
            }
            GatewayEvent::Silent { .. } | GatewayEvent::Limited { .. } => {}
        }
    }
}

/// Path of reports to a roster. A cookie is good for the path on which the cookie came: hellos without a
/// reply take the two paths in turn, and all other reports the path of the last hello.
#[derive(Debug, Default)]
struct RosterPath {
    is_relayed: bool,
    /// Whether the last report was a hello.
    was_hello: bool,
    /// Destination of the last report through the relay.
    sender: Option<SocketAddr>,
}

impl RosterPath {
    /// Whether a datagram to a sender is a report that goes through the relay.
    fn is_relayed(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        let Ok(report) = Report::parse(datagram) else { return false };
        let is_hello = report.header.kind == ReportKind::Hello;
        self.is_relayed ^= is_hello && self.was_hello;
        self.was_hello = is_hello;
        if self.is_relayed {
            self.sender = Some(to);
        }
        self.is_relayed
    }

    /// Returns a reply through the relay as a datagram of the sender.
    fn reply(&self, datagram: &[u8]) -> Option<TunneledDatagram> {
        let payload = 0..datagram.len();
        Some(TunneledDatagram { source: self.sender?, channel: None, ecn: Ecn::NotCapable, payload })
    }
}

impl ReceiverCounters {
    /// Counts a datagram of a tunnel. Returns the datagram within; `None`: the datagram is to be dropped.
    fn admit_tunneled(
        &mut self,
        (channels, source): (&Channels, Option<IpAddr>),
        heard: &IncomingMessage,
        datagram: &[u8],
        is_joined: impl Fn(ChannelId) -> bool,
    ) -> Option<TunneledDatagram> {
        let inner = InnerDatagram::parse(&datagram[DATA_HEADER_BYTES..]).ok();
        let to_port = inner.filter(|inner| inner.destination.port() == channels.port());
        let channel = to_port.and_then(|inner| channels.channel_of(inner.destination.ip()));
        let (Some(inner), Some(channel)) = (inner, channel.filter(|channel| is_joined(*channel))) else {
            self.foreign_group += 1;
            return None;
        };
        if source.is_some_and(|source| source != inner.source.ip()) {
            self.foreign_source += 1;
            return None;
        }
        self.datagrams += 1;
        self.bytes += inner.payload.len() as u64;
        let start = inner.payload.as_ptr().addr() - datagram.as_ptr().addr();
        let payload = start..start + inner.payload.len();
        let channel = Some(channel);
        Some(TunneledDatagram { source: inner.source, channel, ecn: ecn(heard.ecn(), inner.ecn), payload })
    }
}

/// Returns the ECN field of a packet that leaves a tunnel (RFC 6040, section 4.2).
fn ecn(outer: Ecn, inner: u8) -> Ecn {
    match Ecn::from_bits(inner) {
        Ecn::Capable0 | Ecn::Capable1 if outer == Ecn::CongestionExperienced => outer,
        inner => inner,
    }
}

#[cfg(test)]
mod tests {
    use headwater_wire::roster::{REPORT_BYTES_MAX, ReceiverState, RosterHeader};

    use super::*;

    #[test]
    fn hellos_take_the_paths_in_turn_and_reports_that_of_the_last_hello() {
        let sender: SocketAddr = ([192, 0, 2, 1], 7_000).into();
        let mut path = RosterPath::default();
        let mut is_relayed = |kind| {
            let header = RosterHeader { kind, receiver: 1, cookie: 0, sequence: 0 };
            let state = (kind != ReportKind::Hello).then(ReceiverState::default);
            let mut bytes = [0; REPORT_BYTES_MAX];
            let length = Report { header, state, name: None }.emit(&mut bytes);
            path.is_relayed(sender, &bytes[..length])
        };
        let (hello, progress) = (ReportKind::Hello, ReportKind::Progress);
        let kinds = [hello, hello, progress, progress, hello, hello, hello, progress];
        let paths = kinds.map(&mut is_relayed);
        assert_eq!(paths, [false, true, true, true, true, false, true, true]);
        assert!(!path.is_relayed(sender, &[0; 40]), "no report");
        let reply = path.reply(&[0; 24]).expect("a report went through the relay");
        assert_eq!((reply.source, reply.channel, reply.payload), (sender, None, 0..24));
    }
}
