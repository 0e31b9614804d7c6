//! Headers of the sender's packets.

use headwater_wire::extensions::{ContentEncoding, Extensions, FdtExtension, Members, Seq};
use headwater_wire::{Fti, PayloadId, alc};

use crate::control::Departure;
use crate::delivery::fdt::FdtSymbol;
use crate::delivery::plan::PlannedObject;
use crate::machine::ChannelId;

/// Header fields common to the packets of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectHeader {
    pub(crate) toi: u128,
    pub(crate) codepoint: u8,
    pub(crate) symbol_bytes: usize,
    /// Whether the last symbol is sent without padding, as without a code (RFC 5445, section 3.1).
    short_last: bool,
    last_symbol: (PayloadId, usize),
}

impl ObjectHeader {
    pub(crate) fn new(object: &PlannedObject) -> Self {
        let partition = object.partition;
        let size = usize::from(partition.symbol_size());
        let last = partition.blocks().checked_sub(1).and_then(|sbn| partition.block(sbn));
        let last_symbol = last.map_or((PayloadId { sbn: 0, esi: 0 }, size), |block| {
            let esi = block.symbols - 1;
            let bytes = block.bytes - u64::from(esi) * size as u64;
            (PayloadId { sbn: block.sbn, esi }, usize::try_from(bytes).expect("no longer than a symbol"))
        });
        Self {
            toi: object.toi,
            codepoint: object.fti.encoding_id().codepoint(),
            symbol_bytes: size,
            short_last: matches!(object.fti, Fti::NoCode { .. }),
            last_symbol,
        }
    }

    pub(crate) fn payload_bytes(&self, id: PayloadId) -> usize {
        let (last, bytes) = self.last_symbol;
        if self.short_last && id == last { bytes } else { self.symbol_bytes }
    }
}

/// Header fields common to the packets of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionHeader {
    pub(crate) tsi: u32,
    /// Announcement of a roster, which packets of the base channel carry.
    pub(crate) members: Option<Members>,
}

impl From<u32> for SessionHeader {
    fn from(tsi: u32) -> Self {
        Self { tsi, members: None }
    }
}

/// A header under construction.
pub(crate) struct Header(alc::Repr);

impl Header {
    pub(crate) fn new(
        session: impl Into<SessionHeader>,
        toi: Option<u128>,
        codepoint: u8,
        departure: &Departure,
    ) -> Self {
        // Receivers of any level subscribe to the base.
        let is_base = departure.channel == ChannelId::BASE;
        let SessionHeader { tsi, members } = session.into();
        let levels = departure.levels.filter(|_| departure.tells_levels);
        let members = members.filter(|_| is_base);
        let lateness = departure.lateness;
        Self(alc::Repr {
            tsi: tsi.into(),
            toi,
            close_session: false,
            close_object: false,
            psi: 0,
            codepoint,
            cci: departure.cci,
            extensions: Extensions { levels, members, lateness, ..Extensions::default() },
            payload_id: None,
        })
    }

    /// Creates the header of a packet that closes the session, without object and content.
    pub(crate) fn closing(session: impl Into<SessionHeader>, departure: &Departure) -> Self {
        let mut header = Self::new(session, None, 0, departure);
        header.0.close_session = true;
        header
    }

    pub(crate) fn with_payload_id(mut self, id: PayloadId) -> Self {
        self.0.payload_id = Some(id);
        self
    }

    /// Sets the fields for a part of a buffer.
    pub(crate) fn with_part(mut self, seq: Seq, fti: Option<Fti>, is_over: bool) -> Self {
        self.0.extensions = Extensions { seq: Some(seq), fti, ..self.0.extensions };
        self.0.close_object = is_over;
        self
    }

    pub(crate) fn emit(&self, buffer: &mut [u8]) -> usize {
        self.0.emit(buffer).expect("the plan numbers blocks and objects so that every field holds them")
    }
}

fn fdt_header(
    session: SessionHeader,
    departure: &Departure,
    fdt: FdtExtension,
    fti: Fti,
    content_encoding: Option<ContentEncoding>,
) -> Header {
    let mut header = Header::new(session, Some(0), fti.encoding_id().codepoint(), departure);
    header.0.extensions =
        Extensions { fdt: Some(fdt), fti: Some(fti), content_encoding, ..header.0.extensions };
    header
}

/// Writes a packet of the FDT, and returns the length of the packet.
pub(crate) fn write_fdt(
    session: impl Into<SessionHeader>,
    departure: &Departure,
    symbol: &FdtSymbol<'_>,
    buffer: &mut [u8],
) -> usize {
    let start = fdt_header(session.into(), departure, symbol.extension, symbol.fti, symbol.encoding)
        .with_payload_id(symbol.payload_id)
        .emit(buffer);
    let end = start + symbol.payload.len();
    buffer[start..end].copy_from_slice(symbol.payload);
    end
}
