//! Configuration of source and receiver.

use core::net::IpAddr;

use headwater_wire::pgm::Gsi;

use crate::time::Duration;

/// Packet types in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Data, NAKs and NCFs alone, as in LE-SBCC's paper.
    Lean,
    /// SPMs in addition.
    Pgm,
}

/// Reaction of a source to a NAK, in addition to the report to the congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Confirms the NAK and retransmits the missing packets.
    Repairs,
    /// Confirms the NAK: other data repairs the loss.
    Confirmations,
    /// Nothing: NAKs only report losses, as in the simulations of LE-SBCC's paper.
    Nothing,
}

/// Parameters of a session that both ends know.
#[derive(Clone, Copy, Debug)]
pub struct PgmSession {
    /// Global source identifier.
    pub gsi: Gsi,
    /// The source's PGM port, which names the session together with the identifier.
    pub source_port: u16,
    /// PGM port that data goes to.
    pub destination_port: u16,
    /// The group's address, as named in NAKs and NCFs.
    pub group: IpAddr,
}

/// Configuration of a [`super::PgmSource`].
#[derive(Clone, Copy, Debug)]
pub struct SourceConfig {
    pub(super) session: PgmSession,
    pub(super) path: IpAddr,
    pub(super) mode: Mode,
    pub(super) payload_bytes: u16,
    pub(super) window_packets: u32,
    pub(super) first_sequence: u32,
    pub(super) answers: Answers,
    pub(super) roll_call: bool,
}

impl SourceConfig {
    /// Maximum number of packets of a window, on both sides.
    pub const WINDOW_PACKETS_MAX: u32 = 1 << 20;

    /// Creates the configuration of a source at the unicast address `path`, the destination of NAKs, with
    /// packets of up to `payload_bytes` (1 to 8192) of the application's bytes.
    pub fn new(session: PgmSession, path: IpAddr, payload_bytes: u16) -> Self {
        Self {
            session,
            path,
            mode: Mode::Pgm,
            payload_bytes: payload_bytes.clamp(1, 8_192),
            window_packets: 4_096,
            first_sequence: 0,
            answers: Answers::Repairs,
            roll_call: false,
        }
    }

    /// Sets the packet types in use. Default: [`Mode::Pgm`].
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the number of packets kept for repair or waiting to be sent, 16 to 2^20. Each packet takes
    /// `payload_bytes` and 64 bytes more. Default: 4096.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets.clamp(16, Self::WINDOW_PACKETS_MAX);
        self
    }

    /// Maximum number of packets that wait to be sent, which is also the maximum number of packets of a
    /// message: half of the window, after the window is rounded up to a power of two.
    pub const fn waiting_packets_max(&self) -> u32 {
        self.window_packets.next_power_of_two() / 2
    }

    /// Sets the reaction to NAKs. Default: [`Answers::Repairs`].
    #[must_use]
    pub fn with_answers(mut self, answers: Answers) -> Self {
        self.answers = answers;
        self
    }

    /// Whether SPMs announce the first packet as sent 0.2 s before the packet leaves. All receivers then NAK
    /// the packet while queues are empty; after 64 NAKs the packet leaves at once. So the source learns of
    /// the receivers, and the receivers' hosts resolve the path to the source, before packets are lost. NAKs
    /// for the first packet count as no loss. The roll call needs [`Mode::Pgm`], and delays the first message
    /// by up to 0.35 s. Default: no.
    #[must_use]
    pub fn with_roll_call(mut self, calls: bool) -> Self {
        self.roll_call = calls;
        self
    }

    /// Sets the first sequence number. Default: 0.
    #[must_use]
    pub fn with_first_sequence(mut self, sequence: u32) -> Self {
        self.first_sequence = sequence;
        self
    }
}

/// Default maximum wait before a NAK, and default wait for an NCF or data before the next NAK.
const BACK_OFF: Duration = Duration::from_millis(50);
const WAIT: Duration = Duration::from_secs(2);

/// Configuration of a [`super::PgmReceiverMachine`].
#[derive(Clone, Copy, Debug)]
pub struct PgmReceiverConfig {
    pub(super) destination_port: u16,
    pub(super) group: IpAddr,
    pub(super) nak_port: Option<u16>,
    pub(super) requests_path: bool,
    pub(super) payload_bytes: u16,
    pub(super) window_packets: u32,
    pub(super) message_bytes_max: u32,
    pub(super) back_off: Duration,
    pub(super) ncf_wait: Duration,
    pub(super) data_wait: Duration,
    pub(super) ncf_retries: u8,
    pub(super) data_retries: u8,
}

impl PgmReceiverConfig {
    /// Longest time between two NAKs for a packet, by the default waits.
    pub const RETRY_MAX: Duration = Duration::from_nanos(WAIT.as_nanos() + BACK_OFF.as_nanos());

    /// Creates the configuration of a receiver for a PGM port of a group. The receiver takes the first source
    /// heard.
    pub fn new(destination_port: u16, group: IpAddr) -> Self {
        Self {
            destination_port,
            group,
            nak_port: None,
            requests_path: false,
            payload_bytes: 1_500,
            window_packets: 4_096,
            message_bytes_max: 1 << 20,
            back_off: BACK_OFF,
            ncf_wait: WAIT,
            data_wait: WAIT,
            ncf_retries: 50,
            data_retries: 50,
        }
    }

    /// Sets the UDP port for NAKs, at the source address of data. Default: NAKs go to the source port of
    /// data.
    #[must_use]
    pub fn with_nak_port(mut self, port: u16) -> Self {
        self.nak_port = Some(port);
        self
    }

    /// Whether the receiver answers the first packet with an SPMR, sent to the destination of NAKs within a
    /// back-off. So the source learns of the receiver, and the receiver's host resolves the path to the
    /// source before a queue is full. Default: no.
    #[must_use]
    pub fn with_path_request(mut self, requests: bool) -> Self {
        self.requests_path = requests;
        self
    }

    /// Sets the number of packets kept out of order, 16 to 2^20. Default: 4096.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets.clamp(16, SourceConfig::WINDOW_PACKETS_MAX);
        self
    }

    /// Sets the maximum size of a packet's data in bytes, 1 to 8192; longer packets are dropped. The window
    /// takes this size for each packet. Default: 1500.
    #[must_use]
    pub fn with_payload_bytes(mut self, bytes: u16) -> Self {
        self.payload_bytes = bytes.clamp(1, 8_192);
        self
    }

    /// Sets the maximum size of a message in bytes; longer messages are dropped. Default: 1 MiB.
    #[must_use]
    pub fn with_message_bytes_max(mut self, bytes: u32) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Sets the maximum wait before a NAK is sent, drawn uniformly. Default: 50 ms.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }

    /// Sets the wait for an NCF, and the wait for the data after the NCF, before the next NAK; at least 10
    /// ms. Default: 2 s both.
    #[must_use]
    pub fn with_waits(mut self, ncf: Duration, data: Duration) -> Self {
        let least = Duration::from_millis(10);
        (self.ncf_wait, self.data_wait) = (ncf.max(least), data.max(least));
        self
    }

    /// Sets the number of repeated NAKs without an NCF, and without data after an NCF, before a packet is
    /// given up. Default: 50 both.
    #[must_use]
    pub fn with_retries(mut self, ncf: u8, data: u8) -> Self {
        (self.ncf_retries, self.data_retries) = (ncf, data);
        self
    }
}
