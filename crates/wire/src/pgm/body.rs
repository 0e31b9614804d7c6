//! Body of each packet type, behind the common header (RFC 3208, section 8).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::PgmPacketError;
use crate::bytes::{Writer, be16, be32};

const AFI_IPV4: u16 = 1;
const AFI_IPV6: u16 = 2;

/// Types of packets that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Source path message.
    Spm = 0x00,
    /// Original data.
    Odata = 0x04,
    /// Data sent again.
    Rdata = 0x05,
    /// Negative acknowledgement.
    Nak = 0x08,
    /// Null negative acknowledgement, of a designated local repairer.
    Nnak = 0x09,
    /// NAK confirmation.
    Ncf = 0x0A,
    /// Request for a source path message.
    Spmr = 0x0C,
    /// Acknowledgement of PGMCC's acker.
    Ack = 0x0D,
}

impl Kind {
    pub(super) fn from_code(code: u8) -> Result<Kind, PgmPacketError> {
        let all =
            [Self::Spm, Self::Odata, Self::Rdata, Self::Nak, Self::Nnak, Self::Ncf, Self::Spmr, Self::Ack];
        all.into_iter().find(|kind| *kind as u8 == code).ok_or(PgmPacketError::Type(code))
    }

    /// Whether packets of this type carry data.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Odata | Self::Rdata)
    }
}

/// Body of NAK, NNAK and NCF: the packet and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PgmReport {
    /// First requested sequence number; [`Options::nak_list`](super::Options::nak_list) may hold more.
    pub sequence: u32,
    /// Network address of the source: of the last SPM's path.
    pub source: IpAddr,
    /// The session's group.
    pub group: IpAddr,
}

/// Body of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// The source's window, and the address for NAKs.
    Spm {
        /// Number of the SPM: older ones are void.
        sequence: u32,
        /// First sequence number of the transmit window.
        trail: u32,
        /// Last sequence number. With `trail` = 0 and `lead` = 0x80000000 there is no window.
        lead: u32,
        /// Network address of the last hop towards the source.
        path: IpAddr,
    },
    /// Data sent for the first time.
    Odata {
        /// Number of the packet.
        sequence: u32,
        /// First sequence number of the transmit window.
        trail: u32,
        /// Bytes of the application.
        data: &'a [u8],
    },
    /// Data sent again.
    Rdata {
        /// Number of the packet.
        sequence: u32,
        /// First sequence number of the transmit window.
        trail: u32,
        /// Bytes of the application.
        data: &'a [u8],
    },
    /// A receiver misses packets.
    Nak(PgmReport),
    /// A local repairer received NAKs and repairs the loss.
    Nnak(PgmReport),
    /// The source heard a NAK.
    Ncf(PgmReport),
    /// A receiver asks for an SPM.
    Spmr,
    /// PGMCC's acknowledgement.
    Ack {
        /// Highest sequence number received.
        highest: u32,
        /// Bit i: `highest - i` was received.
        bitmap: u32,
    },
}

impl<'a> Body<'a> {
    /// Type of the packet.
    pub const fn kind(&self) -> Kind {
        match self {
            Body::Spm { .. } => Kind::Spm,
            Body::Odata { .. } => Kind::Odata,
            Body::Rdata { .. } => Kind::Rdata,
            Body::Nak(_) => Kind::Nak,
            Body::Nnak(_) => Kind::Nnak,
            Body::Ncf(_) => Kind::Ncf,
            Body::Spmr => Kind::Spmr,
            Body::Ack { .. } => Kind::Ack,
        }
    }

    /// Bytes of the application; empty in packets other than data.
    pub const fn data(&self) -> &'a [u8] {
        match *self {
            Body::Odata { data, .. } | Body::Rdata { data, .. } => data,
            _ => &[],
        }
    }

    /// Bytes between the common header and the options.
    pub(super) fn head_len(&self) -> usize {
        match self {
            Body::Spm { path, .. } => 12 + address_len(*path),
            Body::Odata { .. } | Body::Rdata { .. } | Body::Ack { .. } => 8,
            Body::Nak(report) | Body::Nnak(report) | Body::Ncf(report) => {
                4 + address_len(report.source) + address_len(report.group)
            }
            Body::Spmr => 0,
        }
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        match *self {
            Body::Spm { sequence, trail, lead, path } => {
                put_all(writer, &[sequence, trail, lead]);
                put_address(writer, path);
            }
            Body::Odata { sequence, trail, .. } | Body::Rdata { sequence, trail, .. } => {
                put_all(writer, &[sequence, trail]);
            }
            Body::Nak(report) | Body::Nnak(report) | Body::Ncf(report) => {
                put_all(writer, &[report.sequence]);
                put_address(writer, report.source);
                put_address(writer, report.group);
            }
            Body::Spmr => {}
            Body::Ack { highest, bitmap } => put_all(writer, &[highest, bitmap]),
        }
    }
}

/// A body without its data: options stand between the body and the data.
pub(super) struct Head(Body<'static>);

impl Head {
    /// Parses the head of a body, and returns the bytes behind the head too.
    pub(super) fn parse(kind: Kind, bytes: &[u8]) -> Result<(Head, &[u8]), PgmPacketError> {
        let mut reader = Reader { rest: bytes };
        let body = match kind {
            Kind::Spm => Body::Spm {
                sequence: reader.word()?,
                trail: reader.word()?,
                lead: reader.word()?,
                path: reader.address()?,
            },
            Kind::Odata => Body::Odata { sequence: reader.word()?, trail: reader.word()?, data: &[] },
            Kind::Rdata => Body::Rdata { sequence: reader.word()?, trail: reader.word()?, data: &[] },
            Kind::Nak => Body::Nak(reader.report()?),
            Kind::Nnak => Body::Nnak(reader.report()?),
            Kind::Ncf => Body::Ncf(reader.report()?),
            Kind::Spmr => Body::Spmr,
            Kind::Ack => Body::Ack { highest: reader.word()?, bitmap: reader.word()? },
        };
        Ok((Head(body), reader.rest))
    }

    pub(super) fn with_data(self, data: &[u8]) -> Body<'_> {
        match self.0 {
            Body::Odata { sequence, trail, .. } => Body::Odata { sequence, trail, data },
            Body::Rdata { sequence, trail, .. } => Body::Rdata { sequence, trail, data },
            body => body,
        }
    }
}

/// Takes fields from the front.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, need: usize) -> Result<&'a [u8], PgmPacketError> {
        let have = self.rest.len();
        let (taken, rest) =
            self.rest.split_at_checked(need).ok_or(PgmPacketError::Truncated { need, have })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn word(&mut self) -> Result<u32, PgmPacketError> {
        Ok(be32(self.take(4)?, 0))
    }

    /// Family, 16 bits (reserved, but for PGMCC's loss rate), address.
    pub(super) fn address_and_field(&mut self) -> Result<(IpAddr, u16), PgmPacketError> {
        let head = self.take(4)?;
        let address = match be16(head, 0) {
            AFI_IPV4 => IpAddr::V4(Ipv4Addr::from_bits(self.word()?)),
            AFI_IPV6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(self.take(16)?);
                IpAddr::V6(Ipv6Addr::from(octets))
            }
            family => return Err(PgmPacketError::AddressFamily(family)),
        };
        Ok((address, be16(head, 2)))
    }

    fn address(&mut self) -> Result<IpAddr, PgmPacketError> {
        Ok(self.address_and_field()?.0)
    }

    fn report(&mut self) -> Result<PgmReport, PgmPacketError> {
        Ok(PgmReport { sequence: self.word()?, source: self.address()?, group: self.address()? })
    }
}

/// Bytes of family, 16 bits and address.
pub(super) const fn address_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 8,
        IpAddr::V6(_) => 20,
    }
}

pub(super) fn put_address_and_field(writer: &mut Writer<'_>, address: IpAddr, field: u16) {
    let family = if address.is_ipv4() { AFI_IPV4 } else { AFI_IPV6 };
    writer.put(&family.to_be_bytes());
    writer.put(&field.to_be_bytes());
    match address {
        IpAddr::V4(address) => writer.put(&address.octets()),
        IpAddr::V6(address) => writer.put(&address.octets()),
    }
}

fn put_address(writer: &mut Writer<'_>, address: IpAddr) {
    put_address_and_field(writer, address, 0);
}

pub(super) fn put_all(writer: &mut Writer<'_>, words: &[u32]) {
    words.iter().for_each(|word| writer.put(&word.to_be_bytes()));
}
