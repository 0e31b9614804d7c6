//! Packets as JSON objects.

use serde::Serialize;

use super::packet::{AlcPacket, CciFields, hex};
use super::pgm::Fields;

/// Line of `headwater inspect --json`.
#[derive(Serialize)]
pub struct Line<'a> {
    frame: u64,
    /// Seconds since the first frame.
    time: f64,
    source: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pgm: Option<&'a Fields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lct: Option<Lct>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<Extension>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fec: Option<Fec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fdt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Lct {
    version: u8,
    flags: u8,
    close_session: bool,
    close_object: bool,
    hlen: usize,
    codepoint: u8,
    cci: Cci,
    tsi: Option<u64>,
    /// Identifier of up to 112 bits, more than a JSON number carries safely.
    toi: Option<String>,
}

#[derive(Serialize)]
struct Cci {
    bytes: String,
    #[serde(flatten)]
    fields: Option<CciValues>,
}

#[derive(Serialize)]
struct CciValues {
    slot: u16,
    channel: u16,
    sequence: u32,
    /// Only for FLID-DL.
    #[serde(skip_serializing_if = "Option::is_none")]
    increase: Option<bool>,
}

impl From<CciFields> for CciValues {
    fn from(cci: CciFields) -> Self {
        match cci {
            CciFields::Webrc(cci) => {
                Self { slot: cci.slot, channel: cci.channel, sequence: cci.sequence, increase: None }
            }
            CciFields::Flid(cci) => Self {
                slot: cci.slot.into(),
                channel: cci.group.into(),
                sequence: cci.sequence.into(),
                increase: Some(cci.increase_trigger),
            },
        }
    }
}

#[derive(Serialize)]
struct Extension {
    r#type: u8,
    name: &'static str,
    data: String,
    #[serde(flatten)]
    seq: Option<Seq>,
}

#[derive(Serialize)]
struct Seq {
    buffer: u16,
    offset: u32,
}

#[derive(Serialize)]
struct Fec {
    encoding_id: u8,
    sbn: u32,
    esi: u32,
}

impl<'a> Line<'a> {
    /// Creates the line of a frame with a datagram.
    pub fn new(frame: u64, time: f64, source: String, destination: String) -> Self {
        Self {
            frame,
            time,
            source,
            destination,
            pgm: None,
            lct: None,
            extensions: Vec::new(),
            fec: None,
            payload_bytes: None,
            fdt: None,
            error: None,
        }
    }

    /// Adds the fields of the PGM packet around the ALC packet, or of a PGM packet alone.
    pub fn with_envelope(mut self, pgm: Option<&'a Fields>) -> Self {
        self.pgm = pgm;
        self
    }

    /// Adds the reason why the datagram is neither ALC nor PGM.
    pub fn with_error(mut self, error: String) -> Self {
        self.error = Some(error);
        self
    }

    /// Adds the packet, and the FDT that the packet completes.
    pub fn with_packet(mut self, packet: &AlcPacket<'_>, is_flid: bool, fdt: Option<&'a str>) -> Self {
        self.lct = Some(lct(packet, is_flid));
        self.extensions = extensions(packet);
        self.fec = packet.alc.as_ref().ok().and_then(|alc| alc.payload_id).map(|id| Fec {
            encoding_id: packet.lct.codepoint(),
            sbn: id.sbn,
            esi: id.esi,
        });
        self.payload_bytes = Some(packet.symbols.len());
        self.fdt = fdt;
        self.error = packet.alc.as_ref().err().map(ToString::to_string);
        self
    }
}

fn lct(packet: &AlcPacket<'_>, is_flid: bool) -> Lct {
    let lct = &packet.lct;
    Lct {
        version: headwater_wire::lct::VERSION,
        flags: packet.flags(),
        close_session: lct.close_session(),
        close_object: lct.close_object(),
        hlen: lct.header_len(),
        codepoint: lct.codepoint(),
        cci: Cci { bytes: hex(lct.cci()), fields: packet.cci(is_flid).ok().map(CciValues::from) },
        tsi: lct.tsi(),
        toi: lct.toi().map(|toi| toi.to_string()),
    }
}

fn extensions(packet: &AlcPacket<'_>) -> Vec<Extension> {
    let seq = packet.alc.as_ref().ok().and_then(|alc| alc.extensions.seq);
    let is_seq = |het| het == headwater_wire::extensions::HET_SEQ;
    let json = |extension: super::packet::Extension<'_>| Extension {
        r#type: extension.het,
        name: extension.name(),
        data: hex(extension.content),
        seq: seq.filter(|_| is_seq(extension.het)).map(|seq| Seq { buffer: seq.buffer, offset: seq.offset }),
    };
    packet.extensions().map(json).collect()
}
