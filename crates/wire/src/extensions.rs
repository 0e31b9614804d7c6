//! The LCT header extensions that Headwater understands (RFC 5651 section 5.2, RFC 6726 section 3.4, and our
//! EXT_SEQ, EXT_LEVELS, EXT_MEMBERS and EXT_LATENESS).
use core::ops::Range;

use crate::bytes::{Writer, be16, be32};
use crate::crypt::Crypt;
use crate::fti::{EncodingId, Fti, FtiError};
use crate::lct::{self, ExtensionIter};
use crate::rtt::LossClass;

/// EXT_AUTH, authentication of the packet; each session defines the content.
pub const HET_AUTH: u8 = 1;
/// EXT_TIME, the sender's clock and the remaining time of the session.
pub const HET_TIME: u8 = 2;
/// EXT_FTI, FEC object transmission information.
pub const HET_FTI: u8 = 64;
/// EXT_SEQ, our own: position of the payload in the sequencer's buffer.
pub const HET_SEQ: u8 = 96;
/// EXT_MANIFEST, our own: tags of packets ([`crate::auth`]).
pub const HET_MANIFEST: u8 = 97;
/// EXT_CRYPT, our own: the payload is encrypted ([`crate::crypt`]).
pub const HET_CRYPT: u8 = 98;
/// EXT_KEY, our own: the sender's public key (`docs/reference/wire/auth.md`).
pub const HET_KEY: u8 = 99;
/// EXT_FDT, which FDT instance an object of TOI 0 is.
pub const HET_FDT: u8 = 192;
/// EXT_CENC, content encoding of the FDT instance.
pub const HET_CENC: u8 = 193;
/// EXT_LEVELS, our own: which levels a sender of several sends now.
pub const HET_LEVELS: u8 = 224;
/// EXT_MEMBERS, our own: how often receivers report to the sender.
pub const HET_MEMBERS: u8 = 225;
/// EXT_LATENESS, our own: how long after the scheduled time the packet left.
pub const HET_LATENESS: u8 = 226;

/// Largest FDT instance ID, 20 bits.
pub const FDT_INSTANCE_ID_MAX: u32 = (1 << 20) - 1;

const USE_SCT_HIGH: u8 = 0x80;
const USE_SCT_LOW: u8 = 0x40;
const USE_ERT: u8 = 0x20;
const USE_SLC: u8 = 0x10;

/// Header extensions of a packet. EXT_NOP and unknown types are skipped; of duplicates the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extensions {
    /// EXT_AUTH is present. [`crate::auth::Authentication::find`] gives the content;
    /// [`crate::alc::Repr::emit`] refuses EXT_AUTH, which is inserted into the complete packet.
    pub auth: bool,
    /// EXT_CRYPT: the payload is encrypted. [`crate::alc::Repr::emit`] refuses EXT_CRYPT, too. Only
    /// extensions of [`crate::auth`] may follow: all others are as the holder of the group key wrote them.
    pub crypt: Option<Crypt>,
    /// EXT_TIME.
    pub time: Option<Time>,
    /// EXT_FTI; absent too if the codepoint names an unknown scheme.
    pub fti: Option<Fti>,
    /// EXT_FDT.
    pub fdt: Option<FdtExtension>,
    /// EXT_CENC.
    pub content_encoding: Option<ContentEncoding>,
    /// EXT_SEQ.
    pub seq: Option<Seq>,
    /// EXT_LEVELS.
    pub levels: Option<Levels>,
    /// EXT_MEMBERS.
    pub members: Option<Members>,
    /// EXT_LATENESS.
    pub lateness: Option<Lateness>,
}

/// EXT_TIME (RFC 5651 section 5.2.2). `sct_low` has a meaning only beside `sct_high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Time {
    /// Sender current time, whole seconds of the NTP era.
    pub sct_high: Option<u32>,
    /// Sender current time, fraction in units of 2^-32 s.
    pub sct_low: Option<u32>,
    /// Expected residual time in seconds: remaining time in which the current object is still sent.
    pub expected_residual_time: Option<u32>,
    /// Session last changed, in seconds of the NTP era.
    pub session_last_changed: Option<u32>,
    /// The 8 bits left to the protocol instantiation; ALC does not define them.
    pub pi_specific: u8,
}

/// EXT_FDT (RFC 6726 section 3.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FdtExtension {
    /// FLUTE version, 4 bits: 2 for RFC 6726, 1 for RFC 3926.
    pub version: u8,
    /// FDT instance ID, 20 bits.
    pub instance_id: u32,
}

/// EXT_CENC (RFC 6726 section 3.4.3): compression of the FDT instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentEncoding {
    /// Not compressed.
    Null,
    /// RFC 1950.
    Zlib,
    /// RFC 1951.
    Deflate,
    /// RFC 1952.
    Gzip,
    /// A code that RFC 6726 does not define.
    Other(u8),
}

/// EXT_SEQ: the sequencer's buffer and the place of this packet's payload in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seq {
    /// Buffer id.
    pub buffer: u16,
    /// Offset of the payload in the buffer, in bytes.
    pub offset: u32,
}

/// EXT_LEVELS: the levels that a sender sends now, and its answer to receivers' reports of the levels they
/// hold (`docs/reference/wire/rtt.md`). One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Levels {
    /// Highest level that the sender sends now; 0 is the base alone.
    pub ceiling: u8,
    /// Echo of the reports; `None` from a sender that needs no reports.
    pub demand: Option<DemandEcho>,
}

/// Levels that receivers hold, as a sender has heard: the echo of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DemandEcho {
    /// Round of reports, from 1 to [`DemandEcho::ROUND_MAX`], which 1 follows.
    pub round: u8,
    /// Whether the sender leaves room for many receivers that start.
    pub is_open: bool,
    /// Highest level reported in this round; 0 for none.
    pub level: u8,
    /// Least loss reported at the level.
    pub loss: LossClass,
}

impl DemandEcho {
    /// Highest number of a round; 0 stands for a sender without demand.
    pub const ROUND_MAX: u8 = 15;
}

/// EXT_MEMBERS: how often receivers report to a sender that keeps a roster
/// (`docs/reference/wire/roster.md`). One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Members {
    /// Interval of reports: 2 s times 2 to this power, a quarter of it if `is_quick`;
    /// [`Members::NO_PROGRESS`] for no progress reports.
    pub exponent: u8,
    /// Whether the sender waits for the ends of its receivers.
    pub is_awaiting: bool,
    /// Whether the rate of the session follows the reports: the interval is a quarter, and reports count the
    /// packets.
    pub is_quick: bool,
    /// About how many receivers report: 11 bits and a power of two ([`Members::rounded`]).
    pub count: u64,
}

impl Members {
    /// Exponent of a sender that wants no progress reports.
    pub const NO_PROGRESS: u8 = 15;
    const AWAITING: u8 = 8;
    const QUICK: u8 = 4;
    const MANTISSA_BITS: u32 = 11;
    const POWER_MAX: u32 = 31;

    /// Returns the nearest number that the extension can hold.
    pub fn rounded(count: u64) -> u64 {
        let (power, mantissa) = Self::parts(count);
        u64::from(mantissa) << power
    }

    /// Returns the power of two and the mantissa, which is below 2^11.
    fn parts(count: u64) -> (u32, u16) {
        let limit = (1 << Self::MANTISSA_BITS) - 1;
        let mantissa = |power: u32| {
            (count >> power).saturating_add(if power > 0 { count >> (power - 1) & 1 } else { 0 })
        };
        let power = (0..Self::POWER_MAX).find(|power| mantissa(*power) <= limit).unwrap_or(Self::POWER_MAX);
        (power, u16::try_from(mantissa(power).min(limit)).expect("11 bits"))
    }

    /// Reads the three bytes of content.
    pub fn parse(content: &[u8]) -> Option<Members> {
        let &[flags, high, low] = content.first_chunk()?;
        let word = u16::from_be_bytes([high, low]);
        let mantissa = u64::from(word & ((1 << Self::MANTISSA_BITS) - 1));
        let count = mantissa << (word >> Self::MANTISSA_BITS);
        let [is_awaiting, is_quick] = [Self::AWAITING, Self::QUICK].map(|flag| flags & flag != 0);
        Some(Members { exponent: flags >> 4, is_awaiting, is_quick, count })
    }

    /// The word, type included.
    pub fn emit(&self) -> [u8; 4] {
        let (power, mantissa) = Self::parts(self.count);
        let [high, low] =
            (u16::try_from(power).expect("5 bits") << Self::MANTISSA_BITS | mantissa).to_be_bytes();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_awaiting, Self::AWAITING) | flag(self.is_quick, Self::QUICK);
        [HET_MEMBERS, self.exponent.min(Self::NO_PROGRESS) << 4 | flags, high, low]
    }
}

/// EXT_LATENESS: how long after the scheduled time a packet left (`docs/reference/wire/lateness.md`). One
/// word. The content is written when the packet leaves, after the packet was listed in manifests: tags,
/// signatures and encryption count the content as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lateness {
    /// Microseconds modulo [`Lateness::CYCLE`].
    pub micros: u32,
}

impl Lateness {
    /// Microseconds after which the number begins again: 24 bits, 16.8 s.
    pub const CYCLE: u32 = 1 << 24;

    /// Returns the lateness of a packet that is late by `micros` microseconds.
    pub fn of_micros(micros: u64) -> Self {
        Self { micros: u32::try_from(micros % u64::from(Self::CYCLE)).expect("below 2^24") }
    }

    /// Reads the three bytes of content.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let &[high, middle, low] = content.first_chunk()?;
        Some(Self { micros: u32::from_be_bytes([0, high, middle, low]) })
    }

    /// Returns the three bytes of content.
    pub fn content(self) -> [u8; 3] {
        let [_, content @ ..] = (self.micros % Self::CYCLE).to_be_bytes();
        content
    }

    /// Returns the place of the content in the datagram, if the packet has the extension.
    pub fn place<T: AsRef<[u8]>>(packet: &lct::Packet<T>) -> Option<Range<usize>> {
        let mut start = packet.extensions_start();
        for (het, content) in packet.extensions() {
            let end = start + content.len() + if het < lct::HET_FIXED { 2 } else { 1 };
            if het == HET_LATENESS {
                return Some(start + 1..end);
            }
            start = end;
        }
        None
    }
}

/// Why a known extension cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExtensionError {
    /// The content is shorter or longer than its type defines.
    #[error("header extension {het} has {have} bytes of content, needs {need}")]
    Length {
        /// The type.
        het: u8,
        /// Content bytes needed.
        need: usize,
        /// Content bytes present.
        have: usize,
    },
    /// EXT_TIME has SCT-Low without SCT-High.
    #[error("EXT_TIME has a fraction of a second without its second")]
    TimeFraction,
    /// EXT_FDT with a version above 15 or an instance ID above [`FDT_INSTANCE_ID_MAX`].
    #[error("FDT version {version} or instance ID {instance_id} does not fit in EXT_FDT")]
    Fdt {
        /// FLUTE version.
        version: u8,
        /// FDT instance ID.
        instance_id: u32,
    },
    /// EXT_FTI of a scheme that differs from the packet's codepoint.
    #[error("EXT_FTI is for {fti:?}, but the packet's codepoint is {codepoint}")]
    FtiScheme {
        /// Scheme of the EXT_FTI.
        fti: EncodingId,
        /// LCT codepoint.
        codepoint: u8,
    },
    /// EXT_AUTH and EXT_CRYPT are inserted into complete packets only.
    #[error("EXT_AUTH and EXT_CRYPT are inserted into complete packets only")]
    Inserted,
    /// An extension that EXT_CRYPT does not protect stands behind EXT_CRYPT.
    #[error("header extension {0} stands behind EXT_CRYPT")]
    BehindCrypt(u8),
    /// EXT_FTI is unusable.
    #[error(transparent)]
    Fti(#[from] FtiError),
}

impl Extensions {
    /// Reads the extensions of a checked header.
    ///
    /// # Errors
    /// The first known extension whose content is malformed.
    pub fn parse(extensions: ExtensionIter<'_>, codepoint: u8) -> Result<Extensions, ExtensionError> {
        let mut found = Extensions::default();
        for (het, content) in extensions {
            match het {
                HET_AUTH => found.auth = true,
                HET_KEY | HET_MANIFEST => {}
                het if found.crypt.is_some() => return Err(ExtensionError::BehindCrypt(het)),
                HET_CRYPT => found.crypt = Some(Crypt::parse(content)?),
                HET_TIME if found.time.is_none() => found.time = Some(Time::parse(content)?),
                HET_FTI if found.fti.is_none() => found.fti = parse_fti(codepoint, content)?,
                HET_SEQ if found.seq.is_none() => found.seq = Some(Seq::parse(content)?),
                HET_LEVELS if found.levels.is_none() => found.levels = Levels::parse(content),
                HET_MEMBERS if found.members.is_none() => found.members = Members::parse(content),
                HET_LATENESS if found.lateness.is_none() => found.lateness = Lateness::parse(content),
                HET_FDT if found.fdt.is_none() => found.fdt = Some(FdtExtension::parse(content)),
                HET_CENC if found.content_encoding.is_none() => {
                    found.content_encoding = content.first().map(|&code| ContentEncoding::from(code));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Length on the wire in bytes.
    pub fn buffer_len(&self) -> usize {
        let words = usize::from(self.fdt.is_some())
            + usize::from(self.content_encoding.is_some())
            + usize::from(self.levels.is_some())
            + usize::from(self.members.is_some())
            + usize::from(self.lateness.is_some());
        words * 4
            + self.time.map_or(0, |time| 4 + 4 * time.words().into_iter().flatten().count())
            + self.fti.map_or(0, |fti| 2 + fti.content_len())
            + self.seq.map_or(0, |_| 8)
    }

    /// Writes [`Extensions::buffer_len`] bytes, which the caller has made room for.
    pub(crate) fn emit(&self, codepoint: u8, out: &mut Writer<'_>) -> Result<(), ExtensionError> {
        if self.auth || self.crypt.is_some() {
            return Err(ExtensionError::Inserted);
        }
        // The first extension is found fastest, for each packet that leaves.
        if let Some(lateness) = self.lateness {
            out.put(&[HET_LATENESS]);
            out.put(&lateness.content());
        }
        if let Some(fdt) = self.fdt {
            fdt.emit(out)?;
        }
        if let Some(encoding) = self.content_encoding {
            out.put(&[HET_CENC, encoding.code(), 0, 0]);
        }
        if let Some(Levels { ceiling, demand }) = self.levels {
            let (flags, echo) = demand.map_or((0, 0), |echo| {
                (echo.round << 4 | u8::from(echo.is_open) << 3 | echo.loss.code(), echo.level)
            });
            out.put(&[HET_LEVELS, flags, ceiling, echo]);
        }
        if let Some(members) = self.members {
            out.put(&members.emit());
        }
        if let Some(time) = self.time {
            time.emit(out)?;
        }
        if let Some(fti) = self.fti {
            emit_fti(&fti, codepoint, out)?;
        }
        if let Some(Seq { buffer, offset }) = self.seq {
            out.put(&[HET_SEQ, 2]);
            out.put(&buffer.to_be_bytes());
            out.put(&offset.to_be_bytes());
        }
        Ok(())
    }
}

fn parse_fti(codepoint: u8, content: &[u8]) -> Result<Option<Fti>, FtiError> {
    EncodingId::from_codepoint(codepoint).map(|id| Fti::parse(id, content)).transpose()
}

fn emit_fti(fti: &Fti, codepoint: u8, out: &mut Writer<'_>) -> Result<(), ExtensionError> {
    let encoding_id = fti.encoding_id();
    if encoding_id.codepoint() != codepoint {
        return Err(ExtensionError::FtiScheme { fti: encoding_id, codepoint });
    }
    let words = u8::try_from((2 + fti.content_len()) / 4).expect("at most 5");
    out.put(&[HET_FTI, words]);
    Ok(fti.emit_to(out)?)
}

impl Levels {
    fn parse(content: &[u8]) -> Option<Levels> {
        let &[flags, ceiling, level] = content.first_chunk()?;
        let loss = LossClass::from_code(flags);
        let echo = DemandEcho { round: flags >> 4, is_open: flags & 8 != 0, level, loss };
        Some(Levels { ceiling, demand: (echo.round > 0).then_some(echo) })
    }
}

impl Time {
    fn parse(content: &[u8]) -> Result<Time, ExtensionError> {
        let &[flags, pi_specific, ref rest @ ..] = content else {
            return Err(ExtensionError::Length { het: HET_TIME, need: 2, have: content.len() });
        };
        let need = (flags & (USE_SCT_HIGH | USE_SCT_LOW | USE_ERT | USE_SLC)).count_ones() as usize * 4 + 2;
        // PI-specific uses may add words behind ours.
        if content.len() < need {
            return Err(ExtensionError::Length { het: HET_TIME, need, have: content.len() });
        }
        if flags & USE_SCT_LOW != 0 && flags & USE_SCT_HIGH == 0 {
            return Err(ExtensionError::TimeFraction);
        }
        let mut words = rest.chunks_exact(4).map(|word| be32(word, 0));
        let mut word = |flag| if flags & flag != 0 { words.next() } else { None };
        Ok(Time {
            sct_high: word(USE_SCT_HIGH),
            sct_low: word(USE_SCT_LOW),
            expected_residual_time: word(USE_ERT),
            session_last_changed: word(USE_SLC),
            pi_specific,
        })
    }

    /// In the order of the wire and of the flags, high bit first.
    fn words(&self) -> [Option<u32>; 4] {
        [self.sct_high, self.sct_low, self.expected_residual_time, self.session_last_changed]
    }

    fn emit(&self, out: &mut Writer<'_>) -> Result<(), ExtensionError> {
        if self.sct_low.is_some() && self.sct_high.is_none() {
            return Err(ExtensionError::TimeFraction);
        }
        let words = self.words();
        let flags = words.iter().fold(0, |flags, word| flags << 1 | u8::from(word.is_some())) << 4;
        let count = u8::try_from(words.iter().flatten().count()).expect("at most 4");
        out.put(&[HET_TIME, 1 + count, flags, self.pi_specific]);
        words.iter().flatten().for_each(|word| out.put(&word.to_be_bytes()));
        Ok(())
    }
}

impl FdtExtension {
    /// `content` is the three bytes of a one-word extension.
    fn parse(content: &[u8]) -> FdtExtension {
        FdtExtension {
            version: content[0] >> 4,
            instance_id: be32(&[0, content[0] & 0xF, content[1], content[2]], 0),
        }
    }

    fn emit(self, out: &mut Writer<'_>) -> Result<(), ExtensionError> {
        let FdtExtension { version, instance_id } = self;
        if version > 0xF || instance_id > FDT_INSTANCE_ID_MAX {
            return Err(ExtensionError::Fdt { version, instance_id });
        }
        out.put(&[HET_FDT]);
        out.put_uint(u128::from(version) << 20 | u128::from(instance_id), 3);
        Ok(())
    }
}

impl Seq {
    fn parse(content: &[u8]) -> Result<Seq, ExtensionError> {
        if content.len() != 6 {
            return Err(ExtensionError::Length { het: HET_SEQ, need: 6, have: content.len() });
        }
        Ok(Seq { buffer: be16(content, 0), offset: be32(content, 2) })
    }
}

impl ContentEncoding {
    /// The code in EXT_CENC.
    pub fn code(self) -> u8 {
        match self {
            ContentEncoding::Null => 0,
            ContentEncoding::Zlib => 1,
            ContentEncoding::Deflate => 2,
            ContentEncoding::Gzip => 3,
            ContentEncoding::Other(code) => code,
        }
    }
}

impl From<u8> for ContentEncoding {
    fn from(code: u8) -> ContentEncoding {
        match code {
            0 => ContentEncoding::Null,
            1 => ContentEncoding::Zlib,
            2 => ContentEncoding::Deflate,
            3 => ContentEncoding::Gzip,
            code => ContentEncoding::Other(code),
        }
    }
}
