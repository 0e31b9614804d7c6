//! Small sessions as our own sender writes them.

use std::sync::OnceLock;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, Digest, End, FileToSend, MemorySource, PlanConfig, RelativePath,
    SessionPlan, file_digest,
};
use headwater_proto::{DATAGRAM_BYTES_MAX, Instant, Machine, Output, Rate, fixed};

/// Transport session identifier of every session here.
pub const TSI: u32 = 7;
const SYMBOL_BYTES: u16 = 64;

/// A session: every datagram of two passes, and what its files are.
pub struct Honest {
    pub datagrams: Vec<Vec<u8>>,
    pub files: Vec<(Digest, Vec<u8>)>,
}

/// One session for each code.
pub fn session(choice: u8) -> &'static Honest {
    static SESSIONS: OnceLock<Vec<Honest>> = OnceLock::new();
    let schemes =
        [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ, Scheme::LdpcStaircase, Scheme::LdpcTriangle];
    let sessions = SESSIONS.get_or_init(|| schemes.map(record).into());
    &sessions[usize::from(choice) % sessions.len()]
}

fn record(scheme: Scheme) -> Honest {
    let byte = |at: usize| u8::try_from((at * 31 + at / 251) & 0xFF).expect("eight bits are left");
    let contents: Vec<Vec<u8>> = [0, 1, 300, 1_500].map(|bytes| (0..bytes).map(byte).collect()).into();
    let file = |(index, content): (usize, &Vec<u8>)| FileToSend {
        path: RelativePath::new(&format!("f{index}")).expect("a good name"),
        bytes: content.len() as u64,
        mode: None,
        modified: None,
    };
    // LDPC is not sent in windows.
    let order = match scheme {
        Scheme::LdpcStaircase | Scheme::LdpcTriangle => Order::Spread { rate: 1_000_000 },
        _ => Order::Window,
    };
    let config = PlanConfig { scheme, symbol_size: SYMBOL_BYTES, order };
    let files = contents.iter().enumerate().map(file).collect();
    let plan = SessionPlan::new(files, config).expect("a small session");
    let source = MemorySource::new(&plan, &contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let digests = source.digests();
    let control = fixed::FixedSender::new(Rate::from_kilobits(1_000), Instant::ZERO);
    let config = DeliverySenderConfig::new(TSI).with_end(End::Passes(2));
    let sender = DeliverySender::new(config, &plan, &digests, control, source).expect("a small session");
    // Each of these files is one object.
    let files = digests.iter().map(|blocks| file_digest(blocks)).zip(contents).collect();
    Honest { datagrams: datagrams(sender), files }
}

fn datagrams(mut sender: DeliverySender<fixed::FixedSender, MemorySource>) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut datagrams = Vec::new();
    while let Some(now) = sender.poll_timeout() {
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            if let Output::Transmit(transmit) = output {
                datagrams.push(buffer[..transmit.bytes].to_vec());
            }
        }
    }
    datagrams
}
