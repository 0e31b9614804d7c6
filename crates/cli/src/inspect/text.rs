//! Packets as lines for people.

use std::fmt::Write;

use headwater_wire::auth::{Authentication, SenderKey, manifest};
use headwater_wire::extensions::{
    HET_AUTH, HET_CENC, HET_CRYPT, HET_FDT, HET_FTI, HET_KEY, HET_LATENESS, HET_LEVELS, HET_MANIFEST,
    HET_MEMBERS, HET_SEQ, HET_TIME,
};

use super::packet::{AlcPacket, CciFields, Extension, hex};

/// `version=1 flags=0x0010 hlen=12 codepoint=6 (RaptorQ) tsi=18519 toi=1 cci=... sbn=3 esi=70 payload=1408`.
pub fn line(packet: &AlcPacket<'_>, is_flid: bool) -> String {
    let lct = &packet.lct;
    let mut line = format!(
        "version={} flags={:#06x} hlen={} codepoint={}",
        headwater_wire::lct::VERSION,
        packet.flags(),
        lct.header_len(),
        lct.codepoint()
    );
    let mut add = |text: String| line.write_str(&text).expect("strings take everything");
    if let Some(scheme) = packet.scheme() {
        add(format!(" ({scheme:?})"));
    }
    if let Some(tsi) = lct.tsi() {
        add(format!(" tsi={tsi}"));
    }
    if let Some(toi) = lct.toi() {
        add(format!(" toi={toi}"));
    }
    add(format!(" cci={}", cci(packet, is_flid)));
    if let Ok(alc) = &packet.alc
        && let Some(id) = alc.payload_id
    {
        add(format!(" sbn={} esi={}", id.sbn, id.esi));
    }
    add(format!(" payload={}", packet.symbols.len()));
    for extension in packet.extensions() {
        add(format!(" {}", self::extension(packet, &extension)));
    }
    if lct.close_object() {
        add(" close-object".into());
    }
    if lct.close_session() {
        add(" close-session".into());
    }
    if let Err(error) = &packet.alc {
        add(format!(" [{error}]"));
    }
    line
}

/// Formats the bytes and the meaning.
fn cci(packet: &AlcPacket<'_>, is_flid: bool) -> String {
    let raw = hex(packet.lct.cci());
    match packet.cci(is_flid) {
        Ok(CciFields::Webrc(cci)) => {
            format!("{raw} (slot {} channel {} sequence {})", cci.slot, cci.channel, cci.sequence)
        }
        Ok(CciFields::Flid(cci)) => {
            let trigger = if cci.increase_trigger { " increase" } else { "" };
            format!("{raw} (slot {} channel {} sequence {}{trigger})", cci.slot, cci.group, cci.sequence)
        }
        Err(_) => raw,
    }
}

/// Formats `EXT_SEQ(buffer 7 offset 1000000)`, and an unknown extension as type and bytes.
fn extension(packet: &AlcPacket<'_>, extension: &Extension<'_>) -> String {
    let name = match extension.name() {
        "unknown" => format!("extension-{}", extension.het),
        name => name.to_owned(),
    };
    match described(packet, extension.het) {
        Some(description) => format!("{name}({description})"),
        None => format!("{name}({})", hex(extension.content)),
    }
}

fn described(packet: &AlcPacket<'_>, het: u8) -> Option<String> {
    let found = &packet.alc.as_ref().ok()?.extensions;
    match het {
        HET_SEQ => found.seq.map(|seq| format!("buffer {} offset {}", seq.buffer, seq.offset)),
        HET_MEMBERS => found.members.map(|members| {
            let awaiting = if members.is_awaiting { ", awaiting" } else { "" };
            format!("exponent {}, {} receivers{awaiting}", members.exponent, members.count)
        }),
        HET_LEVELS => found.levels.map(|levels| {
            let echo = levels.demand.map(|echo| {
                let room = if echo.is_open { ", room for starts" } else { "" };
                let loss = Some(echo.loss.code()).filter(|code| *code > 0);
                let loss = loss.map_or(String::new(), |code| format!(" with loss class {code}"));
                format!(", round {}, level {} reported{loss}{room}", echo.round, echo.level)
            });
            format!("ceiling {}{}", levels.ceiling, echo.unwrap_or_default())
        }),
        HET_LATENESS => found.lateness.map(|lateness| format!("{} us", lateness.micros)),
        HET_FDT => found.fdt.map(|fdt| format!("version {} instance {}", fdt.version, fdt.instance_id)),
        HET_CENC => found.content_encoding.map(|encoding| format!("{encoding:?}").to_lowercase()),
        HET_FTI => found.fti.map(|fti| {
            let (scheme, symbol) = (fti.encoding_id(), fti.symbol_size());
            format!("{scheme:?} length {} symbol {symbol}", fti.transfer_length())
        }),
        HET_TIME => found.time.map(time),
        HET_CRYPT => found
            .crypt
            .map(|crypt| format!("epoch {} salt {:016x} number {}", crypt.epoch, crypt.salt, crypt.number)),
        HET_AUTH => Authentication::find(&packet.lct).ok()?.map(|(auth, _)| {
            let Authentication { depth, leaf, started, number, key, .. } = auth;
            format!("number {number} depth {depth} leaf {leaf} started {started} key {}", hex(&key))
        }),
        HET_MANIFEST => manifest(&packet.lct).ok()?.map(|tags| format!("{} tags", tags.len())),
        HET_KEY => SenderKey::find(&packet.lct).ok()?.map(|key| {
            let once = if key.is_ephemeral { " ephemeral" } else { "" };
            format!("{}{once}", hex(&key.public))
        }),
        _ => None,
    }
}

fn time(time: headwater_wire::extensions::Time) -> String {
    let fields = [
        ("sct", time.sct_high),
        ("fraction", time.sct_low),
        ("remaining", time.expected_residual_time),
        ("changed", time.session_last_changed),
    ];
    let given = fields.iter().filter_map(|(name, value)| value.map(|value| format!("{name} {value}")));
    given.collect::<Vec<_>>().join(" ")
}
