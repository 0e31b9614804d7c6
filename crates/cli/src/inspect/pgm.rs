//! Parsing of a datagram as a PGM packet, which may contain an ALC packet.

use headwater_wire::pgm::{Body, Kind, Options, Packet, PgmPacketError, PgmReport, PgmWord};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::packet::{self, hex};

/// UDP ports of OpenPGM: for receivers' NAKs, and for packets to the group.
const PORTS: [u16; 2] = [3_055, 3_056];
/// First PGM port of a source of files (`docs/reference/wire/pgm.md`).
const CARRIER_PORT_MIN: u16 = 0x8000;
const CHECKSUM: core::ops::Range<usize> = 6..8;

/// PGM packet with the ALC packet inside, if any.
pub struct Envelope<'a> {
    /// PGM packet.
    pub pgm: Packet<'a>,
    /// ALC packet in the data of the PGM packet.
    pub carried: Option<packet::AlcPacket<'a>>,
}

impl<'a> Envelope<'a> {
    /// Parses a datagram. A datagram without a checksum is accepted only with `is_expected` or at PGM's own
    /// ports.
    ///
    /// # Errors
    /// If the datagram is no PGM packet.
    pub fn new(datagram: &'a [u8], ports: [u16; 2], is_expected: bool) -> Result<Self, PgmPacketError> {
        let pgm = Packet::parse(datagram)?;
        let is_sure = datagram.get(CHECKSUM).is_some_and(|checksum| checksum != [0, 0]);
        if !is_sure && !is_expected && !ports.iter().any(|port| PORTS.contains(port)) {
            return Err(PgmPacketError::Checksum);
        }
        let carried = packet::AlcPacket::new(pgm.body.data()).ok().filter(|alc| is_carried(&pgm, alc));
        Ok(Self { pgm, carried })
    }

    /// Returns the fields of the body and then of the options, by the names of both output formats.
    pub fn fields(&self) -> Fields {
        let Packet { source_port, destination_port, gsi, body, options, parity, variable_length } = &self.pgm;
        let mut fields = vec![
            ("type", name(body.kind()).into()),
            ("gsi", hex(&gsi.0).into()),
            ("source_port", (*source_port).into()),
            ("destination_port", (*destination_port).into()),
        ];
        let mut add = |name, value: Value| fields.push((name, value));
        match *body {
            Body::Spm { sequence, trail, lead, path } => {
                add("sequence", sequence.into());
                add("trail", trail.into());
                add("lead", lead.into());
                add("path", path.to_string().into());
            }
            Body::Odata { sequence, trail, data } | Body::Rdata { sequence, trail, data } => {
                add("sequence", sequence.into());
                add("trail", trail.into());
                add("data_bytes", data.len().into());
            }
            Body::Nak(PgmReport { sequence, source, group })
            | Body::Nnak(PgmReport { sequence, source, group })
            | Body::Ncf(PgmReport { sequence, source, group }) => {
                let numbers = std::iter::once(&sequence).chain(options.nak_list.as_slice());
                add("sequences", numbers.copied().collect::<Vec<_>>().into());
                add("source", source.to_string().into());
                add("group", group.to_string().into());
            }
            Body::Spmr => {}
            Body::Ack { highest, bitmap } => {
                add("highest", highest.into());
                add("bitmap", format!("{bitmap:#010x}").into());
            }
        }
        add_options(options, &mut add);
        for (name, is_set) in [("is_parity", *parity), ("is_of_variable_length", *variable_length)] {
            if is_set {
                add(name, true.into());
            }
        }
        Fields(fields)
    }
}

/// A session of files uses PGM ports that distinguish its datagrams from ALC packets without PGM.
fn is_carried(pgm: &Packet<'_>, alc: &packet::AlcPacket<'_>) -> bool {
    let (Body::Odata { sequence, .. } | Body::Rdata { sequence, .. }) = pgm.body else { return false };
    let [high, low] = (sequence & 0xFFFF).to_be_bytes()[2..] else { return false };
    pgm.source_port >= CARRIER_PORT_MIN && alc.lct.cci() == [0, 0, high, low]
}

fn add_options(options: &Options, add: &mut impl FnMut(&'static str, Value)) {
    let Options { fragment, nak_list: _, join, parity, parity_group, group_size, syn, fin, reset, .. } =
        options;
    if let Some(fragment) = fragment {
        add("fragment_first", fragment.first.into());
        add("fragment_offset", fragment.offset.into());
        add("fragment_length", fragment.length.into());
    }
    if let Some(PgmWord { word, is_dismissed }) = options.word {
        add("word", format!("{:016x}", u64::from_be_bytes(word)).into());
        add("is_dismissed", is_dismissed.into());
    }
    if let Some(parity) = parity {
        add("parity_of", parity.group_size.into());
        add("parity_pro_active", parity.pro_active.into());
        add("parity_on_demand", parity.on_demand.into());
    }
    let numbers = [
        ("join", *join),
        ("parity_group", *parity_group),
        ("group_size", *group_size),
        ("reset", reset.map(u32::from)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            add(name, number.into());
        }
    }
    if let Some(data) = options.congestion_data {
        add("pgmcc_timestamp", data.timestamp.into());
        add("pgmcc_acker", data.acker.to_string().into());
    }
    if let Some(feedback) = options.congestion_feedback {
        add("pgmcc_timestamp", feedback.timestamp.into());
        add("pgmcc_loss_rate", feedback.loss_rate.into());
        add("pgmcc_receiver", feedback.receiver.to_string().into());
    }
    for (name, is_set) in [("syn", *syn), ("fin", *fin)] {
        if is_set {
            add(name, true.into());
        }
    }
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Spm => "SPM",
        Kind::Odata => "ODATA",
        Kind::Rdata => "RDATA",
        Kind::Nak => "NAK",
        Kind::Nnak => "NNAK",
        Kind::Ncf => "NCF",
        Kind::Spmr => "SPMR",
        Kind::Ack => "ACK",
    }
}

/// Fields of a packet, in order; in JSON an object.
pub struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Formats `pgm type=ODATA gsi=010203040506 source_port=40961 ... data_bytes=1432`, and a true field as
    /// the name alone.
    pub fn line(&self) -> String {
        let field = |(name, value): &(&str, Value)| match value {
            Value::Bool(true) => format!(" {name}"),
            Value::String(text) => format!(" {name}={text}"),
            value => format!(" {name}={value}"),
        };
        std::iter::once("pgm".to_owned()).chain(self.0.iter().map(field)).collect()
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
