//! Report to a roster that passes an AMT relay ([`crate::roster`]), for receivers without a unicast route to
//! their sender. Not part of RFC 7450, as [`super::demand`]. The reply comes from the relay as the sender
//! wrote the reply. The fields are in `docs/reference/wire/amt.md`.

use super::{AmtError, Mac, TRAILER_BYTES, put_trailer, trailer};
use crate::bytes::Writer;
use crate::roster::{REPORT_BYTES_MAX, Report, is_roster};

/// Length of the longest relayed report that is written, in bytes.
pub const RELAYED_BYTES_MAX: usize = REPORT_BYTES_MAX + TRAILER_BYTES;

/// Report of a gateway's receiver, to be sent to the sender of a session by the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayedRosterReport<'a> {
    /// Report, as the sender gets the report.
    pub report: &'a [u8],
    /// Code of the relay's last query.
    pub mac: Mac,
    /// Nonce of the request before the query.
    pub nonce: u32,
    /// Source address and port of the session's packets.
    pub sender: core::net::SocketAddr,
}

impl<'a> RelayedRosterReport<'a> {
    /// Whether a datagram is to be read as a relayed report, or as a reply.
    pub fn is_one(datagram: &[u8]) -> bool {
        is_roster(datagram)
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`AmtError::Length`], also for a datagram that carries no report.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, AmtError> {
        let length = AmtError::Length(datagram.len());
        let (report, end) = datagram.split_last_chunk().ok_or(length)?;
        let (mac, nonce, sender) = trailer(end);
        match Report::parse(report) {
            Ok(_) => Ok(Self { report, mac, nonce, sender }),
            Err(_) => Err(length),
        }
    }

    /// Writes the datagram at the start of `buffer`. Returns the length; `None` if the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.report.len() + TRAILER_BYTES;
        let mut writer = Writer::new(buffer.get_mut(..bytes)?);
        writer.put(self.report);
        put_trailer(&mut writer, self.mac, self.nonce, self.sender);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amt::Message;
    use crate::roster::{ReceiverState, Reply, ReportKind, RosterHeader};

    #[test]
    fn a_relayed_report_is_read_as_written_and_is_no_message_of_amt() {
        let header = RosterHeader { kind: ReportKind::Done, receiver: 7, cookie: 9, sequence: 3 };
        let (mut bytes, mut buffer) = ([0; REPORT_BYTES_MAX], [0; RELAYED_BYTES_MAX]);
        let hello = RosterHeader { kind: ReportKind::Hello, ..header };
        for (header, state) in [(hello, None), (header, Some(ReceiverState::default()))] {
            let length = Report { header, state, name: Some("a-host") }.emit(&mut bytes);
            for sender in ["10.1.2.3:7287", "[2001:db8::1]:9"] {
                let (report, sender) = (&bytes[..length], sender.parse().unwrap());
                let relayed = RelayedRosterReport { report, mac: [1, 2, 3, 4, 5, 6], nonce: 77, sender };
                let length = relayed.emit(&mut buffer).unwrap();
                assert_eq!(RelayedRosterReport::parse(&buffer[..length]), Ok(relayed));
                assert!(RelayedRosterReport::is_one(&buffer[..length]));
                assert_eq!(Message::parse(&buffer[..length]), Err(AmtError::Version(4)));
                assert_eq!(relayed.emit(&mut [0; 40]), None);
            }
        }
        let reply = Reply { header, exponent: 1, is_counted: true }.emit();
        assert!(RelayedRosterReport::parse(&reply).is_err());
    }
}
