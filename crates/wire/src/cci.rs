//! The Congestion Control Information of the LCT header: opaque bytes to LCT, read here in three shapes.

/// Congestion control information: 4, 8, 12 or 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cci {
    bytes: [u8; 16],
    len: u8,
}

/// Why bytes are no CCI, or not of the shape asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CciError {
    /// A length that LCT or the shape does not allow.
    #[error("congestion control information of {0} bytes")]
    Length(usize),
    /// A number that is too wide for its field.
    #[error("{field} {value} is above {max}")]
    Range {
        /// The field.
        field: &'static str,
        /// The value.
        value: u32,
        /// The largest that fits.
        max: u32,
    },
    /// The seven marker bits of RLC are not 1010101.
    #[error("not an RLC congestion control field: marker bits {0:#09b}")]
    RlcMarker(u8),
}

/// WEBRC's and M2C's shape (RFC 3738 section 5): short 8+8+16 bits, long 16+16+32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WebrcCci {
    /// CTSI, the index of the current time slot.
    pub slot: u16,
    /// CN, the channel number.
    pub channel: u16,
    /// PSN, the packet sequence number within channel and slot.
    pub sequence: u32,
}

/// RLC's shape, as in the MCL library: synchronisation point (1), marker 1010101 (7), layer (8), sequence
/// (16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RlcCci {
    /// Whether receivers may join the next layer here.
    pub synchronization_point: bool,
    /// The layer.
    pub layer: u8,
    /// The packet's number within its layer.
    pub sequence: u16,
}

/// FLID-SL's shape, as in the MCL library: increase trigger (1), time slot index (7), group (8), sequence
/// (16). FLID-DL uses the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlidSlCci {
    /// Whether receivers of this group may join the next one.
    pub increase_trigger: bool,
    /// Time slot index, 7 bits.
    pub slot: u8,
    /// The group: with FLID-SL that is the layer, with FLID-DL the layer follows from group and slot.
    pub group: u8,
    /// The packet's number within its group.
    pub sequence: u16,
}

const RLC_MARKER: u8 = 0b101_0101;

impl Cci {
    /// Four zero bytes: no congestion control.
    pub const ZERO: Cci = Cci { bytes: [0; 16], len: 4 };

    /// Raw bytes.
    ///
    /// # Errors
    /// [`CciError::Length`] if the length is not 4, 8, 12 or 16.
    pub fn new(raw: &[u8]) -> Result<Cci, CciError> {
        match raw.len() {
            4 | 8 | 12 | 16 => Ok(Cci::padded(raw)),
            len => Err(CciError::Length(len)),
        }
    }

    /// `raw` has one of the four lengths.
    #[inline]
    pub(crate) fn padded(raw: &[u8]) -> Cci {
        let mut bytes = [0; 16];
        bytes[..raw.len()].copy_from_slice(raw);
        let len = u8::try_from(raw.len()).expect("at most 16");
        Cci { bytes, len }
    }

    /// The bytes as written in the header.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The first word of a CCI that must be 4 bytes long.
    fn short(&self) -> Result<[u8; 4], CciError> {
        self.as_bytes().try_into().map_err(|_| CciError::Length(self.len.into()))
    }

    /// Reads WEBRC's shape: short from 4 bytes, long from 8.
    ///
    /// # Errors
    /// [`CciError::Length`] for 12 and 16 bytes.
    #[inline]
    pub fn webrc(&self) -> Result<WebrcCci, CciError> {
        match *self.as_bytes() {
            [slot, channel, s0, s1] => Ok(WebrcCci {
                slot: slot.into(),
                channel: channel.into(),
                sequence: u16::from_be_bytes([s0, s1]).into(),
            }),
            [t0, t1, c0, c1, s0, s1, s2, s3] => Ok(WebrcCci {
                slot: u16::from_be_bytes([t0, t1]),
                channel: u16::from_be_bytes([c0, c1]),
                sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            }),
            _ => Err(CciError::Length(self.len.into())),
        }
    }

    /// Reads RLC's shape.
    ///
    /// # Errors
    /// A length other than 4 bytes, or another marker.
    pub fn rlc(&self) -> Result<RlcCci, CciError> {
        let [flags, layer, s0, s1] = self.short()?;
        if flags & 0x7F != RLC_MARKER {
            return Err(CciError::RlcMarker(flags & 0x7F));
        }
        Ok(RlcCci { synchronization_point: flags >> 7 == 1, layer, sequence: u16::from_be_bytes([s0, s1]) })
    }

    /// Reads FLID-SL's shape.
    ///
    /// # Errors
    /// A length other than 4 bytes.
    pub fn flid_sl(&self) -> Result<FlidSlCci, CciError> {
        let [flags, group, s0, s1] = self.short()?;
        Ok(FlidSlCci {
            increase_trigger: flags >> 7 == 1,
            slot: flags & 0x7F,
            group,
            sequence: u16::from_be_bytes([s0, s1]),
        })
    }
}

impl WebrcCci {
    /// The 4-byte form.
    ///
    /// # Errors
    /// [`CciError::Range`]: slot and channel have 8 bits, the sequence number 16.
    pub fn short(self) -> Result<Cci, CciError> {
        check("time slot", self.slot.into(), 0xFF)?;
        check("channel", self.channel.into(), 0xFF)?;
        check("sequence number", self.sequence, 0xFFFF)?;
        let [_, slot] = self.slot.to_be_bytes();
        let [_, channel] = self.channel.to_be_bytes();
        let [_, _, s0, s1] = self.sequence.to_be_bytes();
        Ok(Cci::padded(&[slot, channel, s0, s1]))
    }

    /// The 8-byte form.
    pub fn long(self) -> Cci {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.slot.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.channel.to_be_bytes());
        bytes[4..].copy_from_slice(&self.sequence.to_be_bytes());
        Cci::padded(&bytes)
    }
}

impl From<RlcCci> for Cci {
    fn from(rlc: RlcCci) -> Cci {
        let [s0, s1] = rlc.sequence.to_be_bytes();
        Cci::padded(&[u8::from(rlc.synchronization_point) << 7 | RLC_MARKER, rlc.layer, s0, s1])
    }
}

impl TryFrom<FlidSlCci> for Cci {
    type Error = CciError;

    /// # Errors
    /// [`CciError::Range`]: the time slot index has 7 bits.
    fn try_from(flid: FlidSlCci) -> Result<Cci, CciError> {
        check("time slot", flid.slot.into(), 0x7F)?;
        let [s0, s1] = flid.sequence.to_be_bytes();
        Ok(Cci::padded(&[u8::from(flid.increase_trigger) << 7 | flid.slot, flid.group, s0, s1]))
    }
}

fn check(field: &'static str, value: u32, max: u32) -> Result<(), CciError> {
    if value > max { Err(CciError::Range { field, value, max }) } else { Ok(()) }
}
