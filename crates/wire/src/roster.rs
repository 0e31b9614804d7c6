//! Reports of receivers to their sender, and the sender's replies. The format is ours;
//! `docs/reference/wire/roster.md` describes the fields. [`crate::exchange`] describes the first four bytes.

use crate::bytes::{Writer, be, be16, be32};
use crate::exchange;
pub use crate::exchange::{ExchangeError, VERSION};

/// Length of a hello and of a reply in bytes.
pub const REPLY_BYTES: usize = 24;
/// Length of a report without items, except a hello, in bytes.
pub const REPORT_BYTES: usize = 60;
/// Length of the longest report that is written, in bytes.
pub const REPORT_BYTES_MAX: usize = REPORT_BYTES + 2 + NAME_BYTES_MAX + 4 + 10 + MAC_BYTES;
/// Length of the longest name in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 63;

const MAGIC: [u8; 3] = *b"HWP";
/// Added to the kind of a report, gives the kind of the reply.
const KIND_REPLY: u8 = 8;
/// Flag of a reply to a report that counts.
const COUNTED: u8 = 1;
const ITEM_NAME: u8 = 1;
const ITEM_REPAIR_PORT: u8 = 2;
const ITEM_MAC: u8 = 3;
const ITEM_PACKETS: u8 = 4;

/// Kind of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReportKind {
    /// Asks for a cookie and says nothing else: 24 bytes.
    Hello = 0,
    /// The receiver goes on.
    Progress = 1,
    /// The receiver has all files.
    Done = 2,
    /// The receiver ends without all files.
    Leaving = 3,
}

impl ReportKind {
    fn of(kind: u8) -> Option<Self> {
        [Self::Hello, Self::Progress, Self::Done, Self::Leaving]
            .into_iter()
            .find(|known| *known as u8 == kind)
    }
}

/// Header of a report and of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RosterHeader {
    /// Kind of the report, or of the report that a reply answers.
    pub kind: ReportKind,
    /// Identifier that a receiver has drawn at random.
    pub receiver: u64,
    /// Proof that the receiver's address receives, as the sender gave it; 0 for none.
    pub cookie: u64,
    /// Number of the report. A repeated report has the number of the first.
    pub sequence: u16,
}

/// [`ReceiverState::done_ppm`] of a receiver that needs no more packets.
pub const DONE_PPM: u32 = 1_000_000;

/// State of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ReceiverState {
    /// Exit code that the receiver ends with; 0 before the end.
    pub result: u8,
    /// Path of most bytes: 0 multicast, 1 AMT, 2 relay, 3 HTTP.
    pub path: u8,
    /// First 32 bits of the digest of the content; 0 before the content is known.
    pub content: u32,
    /// Part of the content that is held, in millionths; [`DONE_PPM`] once no more packets are needed.
    pub done_ppm: u32,
    /// Bytes of needed symbols received.
    pub useful_bytes: u64,
    /// Rate of reception in kbit/s.
    pub rate_kbits: u32,
    /// Fair rate by the receiver's control in kbit/s; 0 if unknown.
    pub fair_kbits: u32,
    /// Part of the packets lost, in millionths.
    pub lost_ppm: u32,
    /// Files in place.
    pub files_whole: u32,
    /// Files announced.
    pub files: u32,
    /// Port at which the receiver answers HTTP repair.
    pub repair_port: Option<u16>,
    /// Packets of the session; only to a sender whose rate follows the reports.
    pub packets: Option<PacketCounts>,
}

/// Packets since the start of a receiver, modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PacketCounts {
    /// Packets received.
    pub received: u32,
    /// Packets known to be lost.
    pub lost: u32,
}

/// Report of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Report<'a> {
    /// Header.
    pub header: RosterHeader,
    /// State of the receiver; `None` in a hello.
    pub state: Option<ReceiverState>,
    /// Name of the receiver's host ([`is_name`]). Untrusted.
    pub name: Option<&'a str>,
}

/// Reply of a sender, as long as a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Header of the report, with the right cookie.
    pub header: RosterHeader,
    /// Interval of reports: 2 s times 2 to this power.
    pub exponent: u8,
    /// Whether the report counts: its cookie was right.
    pub is_counted: bool,
}

/// Whether a text can be the name of a receiver: 1 to [`NAME_BYTES_MAX`] bytes that show on a terminal as
/// they are, without control characters, marks of direction, invisible characters and line breaks. Any other
/// name in a report is skipped.
pub fn is_name(text: &str) -> bool {
    // Quotes and backslashes are printable, but escaped, too.
    let is_plain = |character: &char| !matches!(character, '"' | '\'' | '\\');
    let escaped = text.escape_debug().filter(is_plain);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().filter(is_plain).eq(escaped)
}

/// Whether a datagram begins like a report or a reply.
pub fn is_roster(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

impl RosterHeader {
    /// Reads the first 22 bytes.
    fn parse(datagram: &[u8], is_reply: bool) -> Result<Self, ExchangeError> {
        let kind = exchange::kind(datagram, MAGIC)?;
        let of_report = if is_reply { kind.checked_sub(KIND_REPLY) } else { Some(kind) };
        let known = of_report.and_then(ReportKind::of).ok_or(ExchangeError::Kind(kind))?;
        if datagram.len() < REPLY_BYTES {
            return Err(ExchangeError::Length(datagram.len()));
        }
        let (receiver, cookie) = (be(&datagram[4..12]), be(&datagram[12..20]));
        Ok(Self { kind: known, receiver, cookie, sequence: be16(datagram, 20) })
    }

    fn emit(&self, writer: &mut Writer<'_>, is_reply: bool) {
        let kind = self.kind as u8 + if is_reply { KIND_REPLY } else { 0 };
        exchange::emit_kind(writer, MAGIC, kind);
        writer.put(&self.receiver.to_be_bytes());
        writer.put(&self.cookie.to_be_bytes());
        writer.put(&self.sequence.to_be_bytes());
    }
}

impl<'a> Report<'a> {
    /// Reads a datagram. Unknown items are skipped; of duplicates the first counts.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is no report of this version.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ExchangeError> {
        let header = RosterHeader::parse(datagram, false)?;
        let length = ExchangeError::Length(datagram.len());
        if header.kind == ReportKind::Hello {
            let report = Self { header, state: None, name: None };
            return if datagram.len() == REPLY_BYTES { Ok(report) } else { Err(length) };
        }
        let mut items = datagram.get(REPORT_BYTES..).ok_or(length)?;
        let mut state = ReceiverState {
            result: datagram[22],
            path: datagram[23],
            content: be32(datagram, 24),
            done_ppm: be32(datagram, 28),
            useful_bytes: be(&datagram[32..40]),
            rate_kbits: be32(datagram, 40),
            fair_kbits: be32(datagram, 44),
            lost_ppm: be32(datagram, 48),
            files_whole: be32(datagram, 52),
            files: be32(datagram, 56),
            repair_port: None,
            packets: None,
        };
        let mut found = None;
        while let [kind, length_byte, rest @ ..] = items {
            let (value, behind) = rest.split_at_checked((*length_byte).into()).ok_or(length)?;
            match (*kind, value) {
                (ITEM_NAME, name) if found.is_none() => {
                    found = core::str::from_utf8(name).ok().filter(|name| is_name(name));
                }
                (ITEM_REPAIR_PORT, port) if state.repair_port.is_none() && port.len() == 2 => {
                    state.repair_port = Some(be16(port, 0)).filter(|port| *port > 0);
                }
                (ITEM_PACKETS, counts) if state.packets.is_none() && counts.len() == 8 => {
                    state.packets = Some(PacketCounts { received: be32(counts, 0), lost: be32(counts, 4) });
                }
                _ => {}
            }
            items = behind;
        }
        if !items.is_empty() {
            return Err(length);
        }
        Ok(Self { header, state: Some(state), name: found })
    }

    /// Writes the report at the start of `buffer`, which has room for [`REPORT_BYTES_MAX`]. Returns the
    /// length. Only a hello is written without a state; a name that is too long is left out.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer);
        let state = self.state.unwrap_or_default();
        self.header.emit(&mut writer, false);
        writer.put(&[state.result, state.path]);
        if self.header.kind == ReportKind::Hello {
            return writer.written();
        }
        writer.put(&state.content.to_be_bytes());
        writer.put(&state.done_ppm.to_be_bytes());
        writer.put(&state.useful_bytes.to_be_bytes());
        for word in [state.rate_kbits, state.fair_kbits, state.lost_ppm, state.files_whole, state.files] {
            writer.put(&word.to_be_bytes());
        }
        let name = self.name.filter(|name| name.len() <= NAME_BYTES_MAX);
        if let Some((name, length)) = name.and_then(|name| Some((name, u8::try_from(name.len()).ok()?))) {
            writer.put(&[ITEM_NAME, length]);
            writer.put(name.as_bytes());
        }
        if let Some(port) = state.repair_port {
            writer.put(&[ITEM_REPAIR_PORT, 2]);
            writer.put(&port.to_be_bytes());
        }
        if let Some(PacketCounts { received, lost }) = state.packets {
            writer.put(&[ITEM_PACKETS, 8]);
            for count in [received, lost] {
                writer.put(&count.to_be_bytes());
            }
        }
        writer.written()
    }
}

/// Authentication code of a report, for ends that share a key.
pub type ReportMac = [u8; 16];

/// Length of the item with the authentication code.
const MAC_BYTES: usize = 2 + size_of::<ReportMac>();

/// Returns the authenticated bytes of a report and the code, which is the last item of the report.
pub fn split_mac(report: &[u8]) -> Option<(&[u8], ReportMac)> {
    let (bytes, item) = report.split_last_chunk::<MAC_BYTES>()?;
    let [ITEM_MAC, 16, mac @ ..] = item else { return None };
    (bytes.len() >= REPORT_BYTES).then_some((bytes, *mac))
}

/// Appends the authentication code to a report of `length` bytes in `buffer`. Returns the new length.
pub fn put_mac(buffer: &mut [u8], length: usize, mac: ReportMac) -> usize {
    let mut writer = Writer::new(&mut buffer[length..]);
    writer.put(&[ITEM_MAC, 16]);
    writer.put(&mac);
    length + MAC_BYTES
}

impl Reply {
    /// Reads a datagram. Unknown flags are ignored.
    ///
    /// # Errors
    /// [`ExchangeError`], if the datagram is no reply of this version.
    pub fn parse(datagram: &[u8]) -> Result<Self, ExchangeError> {
        let header = RosterHeader::parse(datagram, true)?;
        if datagram.len() != REPLY_BYTES {
            return Err(ExchangeError::Length(datagram.len()));
        }
        Ok(Self { header, exponent: datagram[22], is_counted: datagram[23] & COUNTED != 0 })
    }

    /// The datagram.
    pub fn emit(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        let mut writer = Writer::new(&mut bytes);
        self.header.emit(&mut writer, true);
        writer.put(&[self.exponent, u8::from(self.is_counted)]);
        bytes
    }
}
