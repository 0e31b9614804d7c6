//! Sizes of packets and symbols of a sending session.

#[cfg(test)]
mod tests;

use headwater_fec::SYMBOL_SIZE_DEFAULT;
use headwater_proto::auth::{LISTED_RATE, TREE_BYTES, signed_bytes};
use headwater_proto::controls::Network;
use headwater_proto::crypt::ENCRYPTED_BYTES;
use headwater_proto::{DATAGRAM_BYTES_MAX, Rate};

use super::error::SendError;
use super::link::{Link, LinkOptions, MTU_USUAL};
use crate::congestion_control::{CongestionControl, RainbowOptions};
use crate::system;

/// Maximum headers of a packet with one symbol: LCT with long identifiers, CCI and FEC payload id, and spare
/// room.
const HEADER_BYTES_MAX: usize = 92;
/// Headers of IPv6 and UDP. A source on request accepts both IP versions by default.
const IPV6_HEADER_BYTES: u32 = 48;
/// Bytes of EXT_LATENESS.
pub(crate) const LATENESS_BYTES: u16 = 4;
/// Least ratio of maximum to base rate. Below this ratio there are not two waves above the base, which both
/// shapes of channels need.
const MAX_OVER_BASE_MIN: u64 = 5;

/// Header bytes of content packets while identifiers fit in 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    usual: u16,
    longest: u16,
}

impl Headers {
    /// LCT and FEC payload id. A TSI and a TOI of 32 bits, EXT_LEVELS, and the announcement of a roster take
    /// 4 bytes more each.
    pub(super) const FILES: Self = Self { usual: 16, longest: 28 };
    /// LCT, FEC payload id and EXT_SEQ; EXT_FTI in the first part of a buffer; EXT_LEVELS and a TSI of 32
    /// bits take 4 bytes more each.
    pub(crate) const BUFFERS: Self = Self { usual: 24, longest: 48 };
}

/// Options of packets, common to sessions of files and sessions of buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketOptions<'a> {
    pub(crate) congestion_control: &'a CongestionControl,
    pub(crate) tsi: Option<u32>,
    pub(crate) symbol_size: Option<u16>,
    /// Whether a source on request sends the same content: receivers go on with symbols of the same size.
    pub(crate) is_beside_requests: bool,
    pub(crate) is_signed: bool,
    pub(crate) is_encrypted: bool,
}

impl PacketOptions<'_> {
    /// Returns the bytes that a signature adds to a packet. On request, packets of the FDT carry the key,
    /// too.
    fn signed_bytes(&self) -> u16 {
        let bytes = signed_bytes(self.congestion_control.is_on_request());
        let bytes = bytes + if self.congestion_control.has_trees() { TREE_BYTES } else { 0 };
        if self.is_signed { u16::try_from(bytes).unwrap_or(u16::MAX) } else { 0 }
    }

    /// Returns the symbol size of a source on request with default options and path.
    fn symbol_size_on_request(&self) -> u16 {
        let control = RainbowOptions::default().into();
        let source = PacketOptions { congestion_control: &control, ..*self };
        let added = source.added_bytes() + source.signed_bytes() + Headers::FILES.longest;
        symbol_size_for(Some(MTU_USUAL.0), IPV6_HEADER_BYTES + u32::from(added))
    }

    /// Returns the bytes that control and encryption add to each packet.
    fn added_bytes(&self) -> u16 {
        let encrypted = if self.is_encrypted { ENCRYPTED_BYTES } else { 0 };
        self.congestion_control.added_bytes() + u16::try_from(encrypted).unwrap_or(u16::MAX)
    }

    pub(super) fn check(&self) -> Result<(), SendError> {
        let refuse = |option, value, range| Err(SendError::Option { option, value, range });
        if self.tsi == Some(0) {
            return refuse("the TSI", 0, "from 1 to 4294967295");
        }
        let (control, max) = (self.congestion_control, self.congestion_control.rate_max());
        if let Some(base) = control.rate_base().filter(|_| control.is_multi_rate()) {
            // Rates that follow reports need no room for steps above the first step.
            let follows = control.control().network == Network::GroupsAndReports;
            let over = if follows { 1 } else { MAX_OVER_BASE_MIN };
            let least = Rate::from_bits(base.as_bits().saturating_mul(over)).unwrap_or(base);
            if max < least {
                return Err(SendError::Rates { base, max, least });
            }
        }
        let symbol_max = DATAGRAM_BYTES_MAX - HEADER_BYTES_MAX;
        if let Some(size) = self.symbol_size.filter(|size| *size == 0 || usize::from(*size) > symbol_max) {
            return refuse("the symbol size", size.into(), "from 1 to 8880 bytes");
        }
        Ok(())
    }
}

/// Checked options and packet sizes, common to sessions of files and sessions of buffers.
#[derive(Debug)]
pub(crate) struct PacketPlan {
    pub(crate) tsi: u32,
    pub(crate) symbol_size: u16,
    /// UDP payload of a content packet, as the congestion control counts it.
    pub(crate) packet_bytes: u16,
}

impl PacketPlan {
    /// Plans a session to groups and opens the socket that sends to the groups.
    pub(crate) fn open(
        link: &LinkOptions,
        packets: PacketOptions<'_>,
        headers: Headers,
    ) -> Result<(Self, Link), SendError> {
        packets.check()?;
        let control = packets.congestion_control;
        if control.is_on_request() {
            return Err(SendError::NotOnRequest(control.name()));
        }
        let link = Link::open(link, control.channels()?, 0)?;
        let interface = link.socket.interface();
        let planned = Self::new(packets, headers, link.header_bytes(), interface.mtu(), &interface.name)?;
        Ok((planned, link))
    }

    /// Plans packets for a path with `path_bytes` of headers and, if known, an MTU.
    pub(super) fn new(
        options: PacketOptions<'_>,
        headers: Headers,
        path_bytes: u32,
        mtu: Option<u32>,
        interface: &str,
    ) -> Result<Self, SendError> {
        let added = options.added_bytes();
        let signed = options.signed_bytes();
        let header_bytes = path_bytes + u32::from(headers.longest) + u32::from(added + signed);
        let symbol_size = options.symbol_size.unwrap_or_else(|| {
            let own = symbol_size_for(mtu, header_bytes);
            if options.is_beside_requests { own.min(options.symbol_size_on_request()) } else { own }
        });
        // Without signature or encryption, the longest symbol fits the longest datagram.
        let longest = path_bytes + u32::try_from(DATAGRAM_BYTES_MAX).unwrap_or(u32::MAX);
        let mtu = mtu.unwrap_or(longest).min(longest);
        if header_bytes + u32::from(symbol_size) > mtu {
            return Err(SendError::Mtu { symbol_size, mtu, interface: interface.to_owned() });
        }
        // Most packets of a fast session of layers are listed, and no longer than without authentication.
        let control = options.congestion_control;
        let is_mostly_listed = control.is_layered() && control.rate_max() >= LISTED_RATE;
        let signed = if is_mostly_listed { 0 } else { signed };
        let packet_bytes = symbol_size + headers.usual + added + signed;
        options.congestion_control.channels_of(packet_bytes)?;
        let tsi = match options.tsi {
            Some(tsi) => tsi,
            None => random_tsi()?,
        };
        Ok(Self { tsi, symbol_size, packet_bytes })
    }
}

/// Returns the symbol size with which the longest packets of a signed session of files fit a path of this
/// MTU.
pub(crate) fn symbol_size_within(mtu: Option<u32>, is_ipv4: bool) -> u16 {
    let ip_and_udp = if is_ipv4 { 28 } else { 48 };
    let signed = u32::try_from(signed_bytes(false)).unwrap_or(u32::MAX);
    symbol_size_for(mtu, ip_and_udp + u32::from(Headers::FILES.longest + LATENESS_BYTES) + signed)
}

/// Returns the symbol size for a path of this MTU (an unknown MTU counts as 1500): a multiple of 64 (the
/// width of vector instructions), at least 64 and at most the default.
fn symbol_size_for(mtu: Option<u32>, header_bytes: u32) -> u16 {
    let room = mtu.unwrap_or(1_500).saturating_sub(header_bytes) / 64 * 64;
    u16::try_from(room).unwrap_or(u16::MAX).clamp(64, SYMBOL_SIZE_DEFAULT)
}

/// Returns 16 random bits, not 0. With 16 bits the headers are shortest.
fn random_tsi() -> Result<u32, SendError> {
    Ok(u32::from(u16::from_ne_bytes(system::random_bytes()?)).max(1))
}
