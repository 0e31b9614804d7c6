//! What is sent to the group now.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headwater_proto::Rate;
use headwater_proto::pgm::carrier::{self, Opened};
use headwater_wire::{lct, probe};

use super::check::Check;
use crate::net::{Poller, ReceiverSocket, RecvBatch};

const NAME: &str = "sessions";
/// Most sessions told apart.
const SESSIONS_MAX: usize = 32;
/// Most sessions named in a sentence.
const NAMED_MAX: usize = 3;

/// A session that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Address and port that it comes from.
    pub source: SocketAddr,
    /// Its identifier, where its packets carry one.
    pub tsi: Option<u64>,
    /// Packets heard.
    pub packets: u64,
    /// Bytes of UDP payload heard.
    pub bytes: u64,
    /// Its rate over the time listened, in bit/s of UDP payload.
    pub rate_bits: u64,
}

/// What listening came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The sessions, at most [`SESSIONS_MAX`].
    pub sessions: Vec<Session>,
    /// Datagrams that are no ALC packets, and packets of further sessions.
    pub others: u64,
    /// Messages that the kernel dropped for want of receive buffer.
    pub kernel_drops: u64,
    /// Packets that the reverse path filter dropped meanwhile, of whatever kind.
    pub filter_drops: u64,
    /// How long it listened.
    pub listened: Duration,
}

impl Heard {
    /// Takes a datagram.
    pub(super) fn take(&mut self, source: SocketAddr, datagram: &[u8]) {
        if probe::Message::parse(datagram).is_ok() {
            return;
        }
        let packet = match carrier::open(datagram) {
            Some(Opened::Bare(packet) | Opened::Carried(_, packet)) => lct::Packet::new_checked(packet).ok(),
            // PGM's own, of a session that is heard anyway.
            Some(Opened::Word(_)) => return,
            None => None,
        };
        let Some(packet) = packet else {
            self.others += 1;
            return;
        };
        let tsi = packet.tsi();
        let known = self.sessions.iter_mut().find(|session| session.source == source && session.tsi == tsi);
        let bytes = datagram.len() as u64;
        if let Some(session) = known {
            session.packets += 1;
            session.bytes += bytes;
        } else if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push(Session { source, tsi, packets: 1, bytes, rate_bits: 0 });
        } else {
            self.others += 1;
        }
    }

    /// Ends listening.
    pub(super) fn finish(&mut self, listened: Duration) {
        self.listened = listened;
        let milliseconds = u64::try_from(listened.as_millis()).unwrap_or(u64::MAX).max(1);
        for session in &mut self.sessions {
            session.rate_bits = session.bytes.saturating_mul(8_000) / milliseconds;
        }
    }
}

/// Listens on the joined channels until `deadline`.
///
/// # Errors
/// What the kernel says.
pub(super) fn listen(socket: &mut ReceiverSocket, deadline: Instant) -> io::Result<Heard> {
    let start = Instant::now();
    let mut poller = Poller::new()?;
    let mut batch = RecvBatch::new();
    let mut heard = Heard::default();
    // The deadline is asked for after each batch: a flood must not hold us.
    while Instant::now() < deadline {
        if socket.recv(&mut batch)? == 0 {
            poller.wait(socket.fds(), Some(deadline))?;
        }
        for datagram in batch.iter() {
            heard.take(datagram.source, datagram.payload);
        }
    }
    heard.kernel_drops = socket.counters().kernel_drops;
    heard.finish(start.elapsed());
    Ok(heard)
}

/// Whether a session is there, and comes through whole.
pub(super) fn judge(group: SocketAddr, heard: Heard) -> Check {
    let seconds = format!("{:.1} s", heard.listened.as_secs_f64());
    let mut check = if heard.sessions.is_empty() {
        silence(group, &heard, &seconds)
    } else {
        let mut named = heard.sessions.iter().take(NAMED_MAX).map(described).collect::<Vec<_>>().join("; ");
        let more = heard.sessions.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            named.push_str(&format!("; and {more} more"));
        }
        match heard.kernel_drops {
            0 => Check::ok(NAME, named),
            drops => Check::warning(
                NAME,
                format!("{named}; this machine dropped {drops} for want of receive buffer in {seconds}"),
                "raise net.core.rmem_max, give the machine less else to do, or send more slowly",
            ),
        }
    };
    check.sessions = heard.sessions;
    check
}

fn silence(group: SocketAddr, heard: &Heard, seconds: &str) -> Check {
    if heard.filter_drops > 0 {
        return Check::problem(
            NAME,
            format!(
                "nothing from {group} in {seconds}, but the reverse path filter dropped {} packets",
                heard.filter_drops
            ),
            "loosen it: sysctl -w net.ipv4.conf.all.rp_filter=2, and the same for the interface",
        );
    }
    if heard.others > 0 {
        return Check::warning(
            NAME,
            format!("{} datagrams in {seconds} to {group}, none of them an ALC packet", heard.others),
            "something else uses this group and port: choose another --group",
        );
    }
    Check::unknown(
        NAME,
        format!("nothing was sent to {group} in {seconds}"),
        "is a sender running, on this group and port? If it is: its --interface and --ttl, and a firewall \
         or a snooping switch on the way",
    )
}

fn described(session: &Session) -> String {
    let rate =
        Rate::from_bits(session.rate_bits).map_or_else(|| "0 bit/s".to_owned(), |rate| rate.to_string());
    let tsi = session.tsi.map_or_else(|| "no TSI".to_owned(), |tsi| format!("TSI {tsi}"));
    format!("{tsi} from {} at {rate}", session.source)
}

#[cfg(test)]
mod tests {
    use headwater_wire::pgm::{Body, Gsi, Packet};

    use super::*;
    use crate::doctor::check::Verdict;

    /// LCT version 1; S and O set: CCI, TSI and TOI of 4 bytes each; a payload of 4.
    fn packet(tsi: u8) -> Vec<u8> {
        vec![0x10, 0b1010_0000, 4, 0, 0, 0, 0, 0, 0, 0, 0, tsi, 0, 0, 0, 1, 9, 9, 9, 9]
    }

    #[test]
    fn a_session_that_pgm_carries_is_one() {
        let content = packet(7);
        let body = Body::Odata { sequence: 1, trail: 0, data: &content };
        let carrier = Packet::new(0x8001, 7_500, Gsi::default(), body);
        let mut datagram = vec![0; carrier.buffer_len()];
        carrier.emit(&mut datagram).unwrap();
        let mut heard = Heard::default();
        heard.take("192.0.2.1:5".parse().unwrap(), &datagram);
        assert_eq!((heard.sessions.len(), heard.sessions[0].tsi, heard.others), (1, Some(7), 0));
    }

    fn group() -> SocketAddr {
        "239.1.1.1:7287".parse().unwrap()
    }

    #[test]
    fn sessions_are_told_apart_by_source_and_tsi() {
        let mut heard = Heard::default();
        let (a, b) = ("192.0.2.1:5".parse().unwrap(), "192.0.2.2:5".parse().unwrap());
        for (source, tsi) in [(a, 7), (a, 7), (a, 8), (b, 7)] {
            heard.take(source, &packet(tsi));
        }
        heard.take(a, b"nonsense");
        heard.finish(Duration::from_secs(2));
        let counts = heard.sessions.iter().map(|session| (session.source, session.tsi, session.packets));
        assert_eq!(counts.collect::<Vec<_>>(), [(a, Some(7), 2), (a, Some(8), 1), (b, Some(7), 1)]);
        // 40 bytes in 2 s.
        assert_eq!((heard.sessions[0].rate_bits, heard.others), (160, 1));
        let check = judge(group(), heard);
        assert_eq!(check.verdict, Verdict::Ok);
        assert!(check.seen.starts_with("TSI 7 from 192.0.2.1:5 at 160"), "{}", check.seen);
    }

    #[test]
    fn a_flood_of_sessions_stays_bounded() {
        let mut heard = Heard::default();
        for port in 1..=100 {
            heard.take(SocketAddr::from(([192, 0, 2, 1], port)), &packet(1));
        }
        assert_eq!((heard.sessions.len(), heard.others), (SESSIONS_MAX, 68));
    }

    #[test]
    fn silence_has_reasons() {
        let verdict = |heard| judge(group(), heard).verdict;
        assert_eq!(verdict(Heard::default()), Verdict::Unknown);
        assert_eq!(verdict(Heard { others: 5, ..Heard::default() }), Verdict::Warning);
        assert_eq!(verdict(Heard { filter_drops: 5, ..Heard::default() }), Verdict::Problem);
        let mut dropping = Heard { kernel_drops: 9, ..Heard::default() };
        dropping.take("192.0.2.1:5".parse().unwrap(), &packet(1));
        let check = judge(group(), dropping);
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.seen.contains("dropped 9"));
    }
}
