//! A link that loses and reorders packets, by a seed.

use blake3::OutputReader;

/// Share of packets lost.
const LOSS: f64 = 0.07;
/// Share of packets that arrive late, behind up to [`LATE_MAX`] others.
const REORDERED: f64 = 0.05;
const LATE_MAX: u64 = 8;

pub struct Link {
    chance: OutputReader,
    sent: u64,
    /// Packets under way that are late, with the number of the packet that they arrive behind.
    late: Vec<(u64, Vec<u8>)>,
    pub lost: u64,
}

impl Link {
    pub fn new(seed: &str) -> Self {
        Self { chance: random(seed), sent: 0, late: Vec::new(), lost: 0 }
    }

    /// Sends a packet; returns those that arrive now.
    pub fn carry(&mut self, packet: Vec<u8>) -> Vec<Vec<u8>> {
        self.sent += 1;
        let (lost, reordered) = (self.draw() < LOSS, self.draw() < REORDERED);
        let mut arrived = Vec::new();
        if lost {
            self.lost += 1;
        } else if reordered {
            self.late.push((self.sent + 1 + self.sent % LATE_MAX, packet));
        } else {
            arrived.push(packet);
        }
        let sent = self.sent;
        arrived.extend(self.late.extract_if(.., |(behind, _)| *behind <= sent).map(|(_, packet)| packet));
        arrived
    }

    /// Evenly in [0, 1).
    fn draw(&mut self) -> f64 {
        let mut bytes = [0; 4];
        self.chance.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / 2_f64.powi(32)
    }
}

/// Pseudo-random content of a file.
pub fn content(seed: &str, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    random(seed).fill(&mut content);
    content
}

fn random(seed: &str) -> OutputReader {
    blake3::Hasher::new().update(seed.as_bytes()).finalize_xof()
}
