use std::fmt;

/// An FEC scheme that Headwater names, by its FEC Encoding ID (RFC 5052 section 6.1, IANA registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Scheme {
    /// Compact No-Code: source symbols only (RFC 5445 section 3).
    NoCode = 0,
    /// LDPC-Staircase (RFC 5170).
    LdpcStaircase = 3,
    /// LDPC-Triangle (RFC 5170).
    LdpcTriangle = 4,
    /// Reed-Solomon over GF(2^8) (RFC 5510 section 8).
    ReedSolomon = 5,
    /// RaptorQ (RFC 6330).
    RaptorQ = 6,
}

impl Scheme {
    /// The scheme of an FEC Encoding ID, or `None` for one that we do not name.
    pub fn from_encoding_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::NoCode),
            3 => Some(Self::LdpcStaircase),
            4 => Some(Self::LdpcTriangle),
            5 => Some(Self::ReedSolomon),
            6 => Some(Self::RaptorQ),
            _ => None,
        }
    }

    /// The FEC Encoding ID, as in the LCT codepoint and the FDT's `FEC-OTI-FEC-Encoding-ID`.
    pub fn encoding_id(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCode => "No-Code",
            Self::LdpcStaircase => "LDPC-Staircase",
            Self::LdpcTriangle => "LDPC-Triangle",
            Self::ReedSolomon => "Reed-Solomon",
            Self::RaptorQ => "RaptorQ",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Scheme;

    #[test]
    fn encoding_ids_round_trip_and_unknown_ones_are_none() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|&id| Scheme::from_encoding_id(id).is_some()).collect();
        assert_eq!(known, [0, 3, 4, 5, 6]);
        for id in known {
            assert_eq!(Scheme::from_encoding_id(id).unwrap().encoding_id(), id);
        }
    }
}
