//! Report of a receiver's levels that passes an AMT relay ([`crate::rtt`]), for receivers without a unicast
//! route to their sender. Not part of RFC 7450: the first byte reads as version 4 of AMT, which other relays
//! drop. The fields are in `docs/reference/wire/amt.md`.

use super::{AmtError, Mac, TRAILER_BYTES, put_trailer, trailer};
use crate::bytes::Writer;
use crate::rtt::{self, Demand};

/// Length in bytes.
pub const RELAYED_BYTES: usize = rtt::BYTES + TRAILER_BYTES;

/// Report of a gateway, to be sent to the sender of a session by the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayedReport {
    /// Levels that the receiver needs.
    pub demand: Demand,
    /// Code of the relay's last query.
    pub mac: Mac,
    /// Nonce of the request before the query.
    pub nonce: u32,
    /// Source address and port of the session's packets.
    pub sender: core::net::SocketAddr,
}

impl RelayedReport {
    /// Whether a datagram is to be read as a relayed report.
    pub fn is_one(datagram: &[u8]) -> bool {
        rtt::is_exchange(datagram)
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`AmtError::Length`], also for a datagram that carries no report.
    pub fn parse(datagram: &[u8]) -> Result<Self, AmtError> {
        let length = AmtError::Length(datagram.len());
        let (report, rest) = datagram.split_first_chunk::<{ rtt::BYTES }>().ok_or(length)?;
        let Ok(rtt::Message::Report(demand)) = rtt::Message::parse(report) else { return Err(length) };
        let (mac, nonce, sender) = trailer(rest.try_into().map_err(|_| length)?);
        Ok(Self { demand, mac, nonce, sender })
    }

    /// Returns the datagram.
    pub fn emit(&self) -> [u8; RELAYED_BYTES] {
        let mut bytes = [0; RELAYED_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&rtt::Message::Report(self.demand).emit());
        put_trailer(&mut writer, self.mac, self.nonce, self.sender);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amt::Message;
    use crate::rtt::LossClass;

    #[test]
    fn a_relayed_report_is_read_as_written_and_is_no_message_of_amt() {
        let demand = Demand { level: 41, is_starting: true, loss: LossClass::of(0.12) };
        for sender in ["10.1.2.3:7287", "[2001:db8::1]:9"] {
            let sender = sender.parse().unwrap();
            let report = RelayedReport { demand, mac: [1, 2, 3, 4, 5, 6], nonce: 0x0708_090A, sender };
            let bytes = report.emit();
            assert_eq!(RelayedReport::parse(&bytes), Ok(report));
            assert!(RelayedReport::is_one(&bytes));
            assert_eq!(Message::parse(&bytes), Err(AmtError::Version(4)));
            for length in 0..RELAYED_BYTES {
                assert_eq!(RelayedReport::parse(&bytes[..length]), Err(AmtError::Length(length)));
            }
        }
    }

    #[test]
    fn literal_bytes_are_read() {
        let mut bytes = *b"HWR\x12\0\0\0\0\0\0\0\0\0\0\xB0\x07abcdef\0\0\0\x05\x1c\x77\0\0\0\0\0\0\0\0\0\0\0\0\x0a\x01\x02\x03";
        let report = RelayedReport::parse(&bytes).unwrap();
        assert_eq!(report.demand, Demand { level: 7, is_starting: true, loss: LossClass::from_code(3) });
        assert_eq!(
            (report.mac, report.nonce, report.sender),
            (*b"abcdef", 5, "10.1.2.3:7287".parse().unwrap())
        );
        // A question.
        bytes[3] = 0x10;
        assert!(RelayedReport::parse(&bytes).is_err());
    }
}
