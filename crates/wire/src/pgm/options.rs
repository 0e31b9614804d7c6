//! Options of PGM packets (RFC 3208, section 9).
//!
//! OPT_LENGTH comes first and holds the total length. Each option: end bit and type (8), length (8), reserved
//! and OPX (8), undefined bit and specific bits (8), then the body.

use core::net::IpAddr;

use super::PgmPacketError;
use super::body::{Reader, address_len, put_address_and_field, put_all};
use crate::bytes::{Writer, be16};

/// Most options of a packet, with OPT_LENGTH (section 9.1).
pub const OPTIONS_MAX: usize = 16;
/// Most sequence numbers of OPT_NAK_LIST (section 9.3).
pub const NAK_LIST_MAX: usize = 62;

const END: u8 = 0x80;
/// OPX: discard the packet when the option is not understood.
const OPX_DISCARD: u8 = 0b10;
const OPX_MASK: u8 = 0b11;
/// Bytes before an option's body, and of OPT_LENGTH.
const OPTION_HEAD_LEN: usize = 4;

const LENGTH: u8 = 0x00;
const FRAGMENT: u8 = 0x01;
const NAK_LIST: u8 = 0x02;
const JOIN: u8 = 0x03;
const PARITY_PARAMETERS: u8 = 0x08;
const PARITY_GROUP: u8 = 0x09;
const GROUP_SIZE: u8 = 0x0A;
const SYN: u8 = 0x0D;
const FIN: u8 = 0x0E;
const RST: u8 = 0x0F;
const CONGESTION_DATA: u8 = 0x12;
const CONGESTION_FEEDBACK: u8 = 0x13;
/// Ours: `docs/reference/wire/pgm.md`. RFC 3208 leaves the number free.
const WORD: u8 = 0x70;
const WORD_DISMISSED: u8 = 1;

/// A part of a message that takes several packets (section 9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Sequence number of the message's first packet.
    pub first: u32,
    /// Offset of this packet's bytes in the message.
    pub offset: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

/// Further sequence numbers of a NAK or NCF, behind the sequence number in the body.
#[derive(Clone, Copy)]
pub struct NakList {
    numbers: [u32; NAK_LIST_MAX],
    len: u8,
}

/// Kinds of parity packets that a source makes (section 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity {
    /// Without a request.
    pub pro_active: bool,
    /// When asked.
    pub on_demand: bool,
    /// Packets of a transmission group.
    pub group_size: u32,
}

/// PGMCC's part of data packets (Internet-Draft, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionData {
    /// The source's clock.
    pub timestamp: u32,
    /// The elected acker.
    pub acker: IpAddr,
}

/// PGMCC's part of NAKs and acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionFeedback {
    /// The source's clock, plus the time that the receiver held the timestamp.
    pub timestamp: u32,
    /// Loss rate in 1/65536.
    pub loss_rate: u16,
    /// Address of the reporting receiver.
    pub receiver: IpAddr,
}

/// Proof that a receiver's address receives. OPT_WORD of our senders and receivers; other ends skip it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PgmWord {
    /// The word; zeros ask for one.
    pub word: [u8; 8],
    /// Of a sender: the NAKs of this receiver set no rate for some minutes.
    pub is_dismissed: bool,
}

/// Options of a packet. At most one of each kind; the last one counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// OPT_FRAGMENT.
    pub fragment: Option<Fragment>,
    /// OPT_NAK_LIST; empty if absent.
    pub nak_list: NakList,
    /// OPT_JOIN: the first sequence number that a late receiver may ask for.
    pub join: Option<u32>,
    /// OPT_PARITY_PRM.
    pub parity: Option<Parity>,
    /// OPT_PARITY_GRP: number of a parity packet's group.
    pub parity_group: Option<u32>,
    /// OPT_CURR_TGSIZE: packets of a group shorter than the usual size.
    pub group_size: Option<u32>,
    /// OPT_SYN: the session begins.
    pub syn: bool,
    /// OPT_FIN: the session ends.
    pub fin: bool,
    /// OPT_RST: the session broke off, with a code of 6 bits.
    pub reset: Option<u8>,
    /// OPT_PGMCC_DATA.
    pub congestion_data: Option<CongestionData>,
    /// OPT_PGMCC_FEEDBACK.
    pub congestion_feedback: Option<CongestionFeedback>,
    /// OPT_WORD.
    pub word: Option<PgmWord>,
}

impl NakList {
    /// The numbers.
    pub fn as_slice(&self) -> &[u32] {
        &self.numbers[..usize::from(self.len)]
    }

    /// Adds a number; false, and nothing happens, when the list is full.
    pub fn push(&mut self, number: u32) -> bool {
        let Some(place) = self.numbers.get_mut(usize::from(self.len)) else { return false };
        *place = number;
        self.len += 1;
        true
    }

    /// Whether there is no number.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for NakList {
    fn default() -> Self {
        Self { numbers: [0; NAK_LIST_MAX], len: 0 }
    }
}

impl PartialEq for NakList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for NakList {}

impl core::fmt::Debug for NakList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Options {
    /// Whether there are no options.
    pub fn is_empty(&self) -> bool {
        self.buffer_len() == 0
    }

    /// Whether routers that know PGM must inspect an option.
    pub(super) const fn is_network_significant(&self) -> bool {
        !self.nak_list.is_empty() || self.parity.is_some() || self.group_size.is_some()
    }

    /// Parses the options, and returns the bytes behind them too.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Options, &[u8]), PgmPacketError> {
        let mut reader = Reader { rest: bytes };
        let first = reader.take(OPTION_HEAD_LEN)?;
        let total = usize::from(be16(first, 2));
        if first[0] & !END != LENGTH || first[1] != 4 || total < OPTION_HEAD_LEN {
            return Err(PgmPacketError::OptionsLength(total));
        }
        let mut is_last = first[0] & END != 0;
        let mut chain = Reader { rest: reader.take(total - OPTION_HEAD_LEN)? };
        let mut options = Options::default();
        let mut count = 1;
        while !is_last {
            count += 1;
            if count > OPTIONS_MAX {
                return Err(PgmPacketError::TooManyOptions);
            }
            let head = chain.take(OPTION_HEAD_LEN).map_err(|_| PgmPacketError::OptionsLength(total))?;
            let (kind, len) = (head[0] & !END, usize::from(head[1]));
            is_last = head[0] & END != 0;
            let wrong = PgmPacketError::OptionLength { kind, len };
            let body = chain.take(len.checked_sub(OPTION_HEAD_LEN).ok_or(wrong)?).map_err(|_| wrong)?;
            if !options.read(kind, [head[2], head[3]], body).map_err(|error| error.unwrap_or(wrong))? {
                // A packet that may be taken without the option is.
                if head[2] & OPX_MASK == OPX_DISCARD {
                    return Err(PgmPacketError::UnknownOption(kind));
                }
            }
        }
        match chain.rest {
            [] => Ok((options, reader.rest)),
            _ => Err(PgmPacketError::OptionsLength(total)),
        }
    }

    /// Reads one option and returns whether the option is known. The error is `None` if the length is wrong.
    fn read(&mut self, kind: u8, bits: [u8; 2], body: &[u8]) -> Result<bool, Option<PgmPacketError>> {
        let mut reader = Reader { rest: body };
        let mut word = || reader.word().map_err(|_| None);
        match kind {
            FRAGMENT => self.fragment = Some(Fragment { first: word()?, offset: word()?, length: word()? }),
            NAK_LIST => return self.read_list(body).ok_or(None),
            JOIN => self.join = Some(word()?),
            PARITY_PARAMETERS => {
                let (pro_active, on_demand) = (bits[1] & 2 != 0, bits[1] & 1 != 0);
                self.parity = Some(Parity { pro_active, on_demand, group_size: word()? });
            }
            PARITY_GROUP => self.parity_group = Some(word()?),
            GROUP_SIZE => self.group_size = Some(word()?),
            SYN => self.syn = true,
            FIN => self.fin = true,
            RST => self.reset = Some(bits[1] & 0x3F),
            CONGESTION_DATA => {
                let (timestamp, (acker, _)) = (word()?, address(&mut reader)?);
                self.congestion_data = Some(CongestionData { timestamp, acker });
            }
            CONGESTION_FEEDBACK => {
                let (timestamp, (receiver, loss_rate)) = (word()?, address(&mut reader)?);
                self.congestion_feedback = Some(CongestionFeedback { timestamp, loss_rate, receiver });
            }
            WORD => {
                let (high, low) = (word()?.to_be_bytes(), word()?.to_be_bytes());
                let mut both = [0; 8];
                both[..4].copy_from_slice(&high);
                both[4..].copy_from_slice(&low);
                self.word = Some(PgmWord { word: both, is_dismissed: bits[1] & WORD_DISMISSED != 0 });
            }
            _ => return Ok(false),
        }
        if reader.rest.is_empty() { Ok(true) } else { Err(None) }
    }

    fn read_list(&mut self, body: &[u8]) -> Option<bool> {
        let (numbers, rest) = body.as_chunks::<4>();
        if !rest.is_empty() || numbers.is_empty() || numbers.len() > NAK_LIST_MAX {
            return None;
        }
        self.nak_list = NakList::default();
        Some(numbers.iter().all(|number| self.nak_list.push(u32::from_be_bytes(*number))))
    }

    /// Bytes of all options, with OPT_LENGTH; 0 without options.
    pub(super) fn buffer_len(&self) -> usize {
        let len: usize = self.iter().map(|option| OPTION_HEAD_LEN + option.body_len()).sum();
        if len == 0 { 0 } else { OPTION_HEAD_LEN + len }
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        // At most 16 options of at most 255 bytes.
        let Some(total) = u16::try_from(self.buffer_len()).ok().filter(|total| *total > 0) else { return };
        writer.put(&[LENGTH, 4]);
        writer.put(&total.to_be_bytes());
        let mut options = self.iter().peekable();
        while let Some(option) = options.next() {
            let end = if options.peek().is_none() { END } else { 0 };
            option.emit(end, writer);
        }
    }

    fn iter(&self) -> impl Iterator<Item = EncodedOption<'_>> {
        let words =
            |kind, words: Option<u32>| words.map(|word| EncodedOption::Words(kind, 0, [word, 0, 0], 1));
        let flag = |kind, on: bool| on.then_some(EncodedOption::Words(kind, 0, [0; 3], 0));
        let fragment = self.fragment.map(|Fragment { first, offset, length }| {
            EncodedOption::Words(FRAGMENT, 0, [first, offset, length], 3)
        });
        let list = (!self.nak_list.is_empty()).then(|| EncodedOption::List(self.nak_list.as_slice()));
        let parity = self.parity.map(|parity| {
            let bits = u8::from(parity.pro_active) << 1 | u8::from(parity.on_demand);
            EncodedOption::Words(PARITY_PARAMETERS, bits, [parity.group_size, 0, 0], 1)
        });
        let reset = self.reset.map(|code| EncodedOption::Words(RST, code & 0x3F, [0; 3], 0));
        let data = self
            .congestion_data
            .map(|data| EncodedOption::Congestion(CONGESTION_DATA, data.timestamp, data.acker, 0));
        let feedback = self.congestion_feedback.map(|said| {
            EncodedOption::Congestion(CONGESTION_FEEDBACK, said.timestamp, said.receiver, said.loss_rate)
        });
        let word = self.word.map(|PgmWord { word: [a, b, c, d, e, f, g, h], is_dismissed }| {
            let words = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]), 0];
            EncodedOption::Words(WORD, if is_dismissed { WORD_DISMISSED } else { 0 }, words, 2)
        });
        let all = [
            fragment,
            list,
            words(JOIN, self.join),
            parity,
            words(PARITY_GROUP, self.parity_group),
            words(GROUP_SIZE, self.group_size),
            flag(SYN, self.syn),
            flag(FIN, self.fin),
            reset,
            data,
            feedback,
            word,
        ];
        all.into_iter().flatten()
    }
}

fn address(reader: &mut Reader<'_>) -> Result<(IpAddr, u16), Option<PgmPacketError>> {
    reader.address_and_field().map_err(|error| match error {
        PgmPacketError::AddressFamily(_) => Some(error),
        _ => None,
    })
}

/// An encoded option.
enum EncodedOption<'a> {
    /// Type, specific bits, words, and number of words used.
    Words(u8, u8, [u32; 3], usize),
    List(&'a [u32]),
    Congestion(u8, u32, IpAddr, u16),
}

impl EncodedOption<'_> {
    const fn body_len(&self) -> usize {
        match self {
            EncodedOption::Words(.., count) => 4 * *count,
            EncodedOption::List(numbers) => 4 * numbers.len(),
            EncodedOption::Congestion(_, _, address, _) => 4 + address_len(*address),
        }
    }

    fn emit(&self, end: u8, writer: &mut Writer<'_>) {
        // At most 4 + 4 * 62 bytes.
        let len = u8::try_from(OPTION_HEAD_LEN + self.body_len()).unwrap_or(u8::MAX);
        match *self {
            EncodedOption::Words(kind, bits, words, count) => {
                writer.put(&[end | kind, len, 0, bits]);
                put_all(writer, &words[..count]);
            }
            EncodedOption::List(numbers) => {
                writer.put(&[end | NAK_LIST, len, 0, 0]);
                put_all(writer, numbers);
            }
            EncodedOption::Congestion(kind, timestamp, address, field) => {
                writer.put(&[end | kind, len, 0, 0]);
                put_all(writer, &[timestamp]);
                put_address_and_field(writer, address, field);
            }
        }
    }
}
