//! What source and receiver are told.

use core::net::IpAddr;

use headwater_wire::pgm::Gsi;

use crate::time::Duration;

/// Which packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Data, NAKs and NCFs alone, as in LE-SBCC's paper.
    Lean,
    /// SPMs, too.
    Pgm,
}

/// What a source does about a NAK, beside telling its control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Confirms it and sends again what it asks for.
    Repairs,
    /// Confirms it: other data repairs.
    Confirmations,
    /// Nothing: NAKs tell of losses and do no more, as in the simulations of LE-SBCC's paper.
    Nothing,
}

/// What both ends know of a session.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Global source identifier.
    pub gsi: Gsi,
    /// The source's PGM port: with the identifier it names the session.
    pub source_port: u16,
    /// PGM port that data goes to.
    pub destination_port: u16,
    /// The group's address, as NAKs and NCFs name it.
    pub group: IpAddr,
}

/// Configuration of a [`super::Source`].
#[derive(Clone, Copy, Debug)]
pub struct SourceConfig {
    pub(super) session: Session,
    pub(super) path: IpAddr,
    pub(super) mode: Mode,
    pub(super) payload_bytes: u16,
    pub(super) window_packets: u32,
    pub(super) first_sequence: u32,
    pub(super) spm_interval: Duration,
    pub(super) answers: Answers,
    pub(super) roll_call: bool,
}

impl SourceConfig {
    /// Most packets of a window, on both sides.
    pub const WINDOW_PACKETS_MAX: u32 = 1 << 20;

    /// A source at the unicast address `path`, where NAKs shall go, with packets of up to `payload_bytes` (1
    /// to 8192) of the application's bytes.
    pub fn new(session: Session, path: IpAddr, payload_bytes: u16) -> Self {
        Self {
            session,
            path,
            mode: Mode::Pgm,
            payload_bytes: payload_bytes.clamp(1, 8_192),
            window_packets: 4_096,
            first_sequence: 0,
            spm_interval: Duration::from_millis(500),
            answers: Answers::Repairs,
            roll_call: false,
        }
    }

    /// Which packets are sent. Default: [`Mode::Pgm`].
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Packets kept for repair or waiting to be sent, 16 to 2^20; they take `payload_bytes` each and 64 bytes
    /// more. Default: 4096.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets.clamp(16, Self::WINDOW_PACKETS_MAX);
        self
    }

    /// Most packets that ever wait to be sent, those of the longest message: half of the window, of which
    /// there are a power of two.
    pub const fn waiting_packets_max(&self) -> u32 {
        self.window_packets.next_power_of_two() / 2
    }

    /// What is done about NAKs. Default: [`Answers::Repairs`].
    #[must_use]
    pub fn with_answers(mut self, answers: Answers) -> Self {
        self.answers = answers;
        self
    }

    /// Whether SPMs say of the first packet that it was sent 0.2 s before it is, so that all receivers ask
    /// for it (at once, where 64 have asked) while queues are empty: the source learns that they are there,
    /// and their hosts the way to it, before packets are lost. What asks for that packet is no loss. It needs
    /// [`Mode::Pgm`], and costs the first message up to 0.35 s. Default: no.
    #[must_use]
    pub fn with_roll_call(mut self, calls: bool) -> Self {
        self.roll_call = calls;
        self
    }

    /// The first sequence number. Default: 0.
    #[must_use]
    pub fn with_first_sequence(mut self, sequence: u32) -> Self {
        self.first_sequence = sequence;
        self
    }

    /// Time between SPMs while data flows, 10 ms at least. Default: 0.5 s.
    #[must_use]
    pub fn with_spm_interval(mut self, interval: Duration) -> Self {
        self.spm_interval = interval.max(Duration::from_millis(10));
        self
    }
}

/// Configuration of a [`super::Receiver`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
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

impl ReceiverConfig {
    /// A receiver of what is sent to a PGM port of a group. The first source heard is the one that counts.
    pub fn new(destination_port: u16, group: IpAddr) -> Self {
        Self {
            destination_port,
            group,
            nak_port: None,
            requests_path: false,
            payload_bytes: 1_500,
            window_packets: 4_096,
            message_bytes_max: 1 << 20,
            back_off: Duration::from_millis(50),
            ncf_wait: Duration::from_secs(2),
            data_wait: Duration::from_secs(2),
            ncf_retries: 50,
            data_retries: 50,
        }
    }

    /// UDP port that NAKs go to, at the address that data comes from. Default: none, they go to the port that
    /// it comes from, too.
    #[must_use]
    pub fn with_nak_port(mut self, port: u16) -> Self {
        self.nak_port = Some(port);
        self
    }

    /// Whether it answers the first packet with an SPMR to where NAKs go, within a back-off: the source
    /// learns that it is there, and its host the way to the source before a queue is full. Default: no.
    #[must_use]
    pub fn with_path_request(mut self, requests: bool) -> Self {
        self.requests_path = requests;
        self
    }

    /// Packets kept out of order, 16 to 2^20. Default: 4096.
    #[must_use]
    pub fn with_window_packets(mut self, packets: u32) -> Self {
        self.window_packets = packets.clamp(16, SourceConfig::WINDOW_PACKETS_MAX);
        self
    }

    /// Most bytes of a packet's data, 1 to 8192; longer ones are dropped. Default: 1500. The window takes so
    /// many for each of its packets.
    #[must_use]
    pub fn with_payload_bytes(mut self, bytes: u16) -> Self {
        self.payload_bytes = bytes.clamp(1, 8_192);
        self
    }

    /// Most bytes of a message; longer ones are dropped. Default: 1 MiB.
    #[must_use]
    pub fn with_message_bytes_max(mut self, bytes: u32) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Longest wait before a NAK is sent, drawn uniformly. Default: 50 ms.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }

    /// How long to wait for an NCF, and after it for the data, before asking again; 10 ms at least. Default:
    /// 2 s both.
    #[must_use]
    pub fn with_waits(mut self, ncf: Duration, data: Duration) -> Self {
        let least = Duration::from_millis(10);
        (self.ncf_wait, self.data_wait) = (ncf.max(least), data.max(least));
        self
    }

    /// How often to ask again without an NCF, and without data after it, before a packet is given up.
    /// Default: 50 both.
    #[must_use]
    pub fn with_retries(mut self, ncf: u8, data: u8) -> Self {
        (self.ncf_retries, self.data_retries) = (ncf, data);
        self
    }
}
