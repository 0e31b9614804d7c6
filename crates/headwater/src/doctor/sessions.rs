//! Check of current packets to the group.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use headwater_proto::Rate;
use headwater_proto::pgm::carrier::{self, Opened};
use headwater_wire::{lct, probe};

use super::check::Check;
use super::groups::Waves;
use crate::net::{Poller, ReceiverSocket, RecvBatch};
use crate::send::symbol_size_within;
use crate::system::InputLosses;

const NAME: &str = "sessions";
/// Maximum number of sessions.
const SESSIONS_MAX: usize = 32;
/// Maximum number of sessions named in a sentence.
const NAMED_MAX: usize = 3;
/// MTU of Ethernet, the default limit of senders.
const MTU_USUAL: u32 = 1_500;
/// Number of dropped frames above which the frames are not stray frames of other protocols.
const FRAMES_DROPPED_MIN: u64 = 10;

/// Group and interface to listen on.
#[derive(Clone, Debug)]
pub(super) struct SurveyPlace {
    /// Group.
    pub group: SocketAddr,
    /// Only source, if named.
    pub source: Option<IpAddr>,
    /// Interface.
    pub interface: String,
    /// MTU of the interface, if known.
    pub mtu: Option<u32>,
}

/// Received session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSession {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Transport session identifier, if packets carry an identifier.
    pub tsi: Option<u64>,
    /// Received packets.
    pub packets: u64,
    /// Received bytes of UDP payload.
    pub bytes: u64,
    /// Mean rate in bit/s of UDP payload.
    pub rate_bits: u64,
}

/// Result of listening.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionSurvey {
    /// Sessions, at most [`SESSIONS_MAX`].
    pub sessions: Vec<FoundSession>,
    /// Datagrams that are no ALC packets, and packets of further sessions.
    pub others: u64,
    /// Messages that the kernel dropped because the receive buffer was full.
    pub kernel_drops: u64,
    /// Packets of any kind that the reverse path filter dropped meanwhile.
    pub filter_drops: u64,
    /// Packets of any kind that the interface and the reassembly of fragments lost meanwhile.
    pub losses: InputLosses,
    /// Sessions of other sources than the named source.
    pub of_others: Vec<FoundSession>,
    /// Waves of the first session that has waves.
    pub waves: Option<Waves>,
    /// Time of listening.
    pub listened: Duration,
}

impl SessionSurvey {
    /// Processes a datagram.
    pub(super) fn take(&mut self, source: SocketAddr, datagram: &[u8]) {
        if probe::Message::parse(datagram).is_ok() {
            return;
        }
        let packet = match carrier::open(datagram) {
            Some(Opened::Bare(packet) | Opened::Carried(_, packet)) => lct::Packet::new_checked(packet).ok(),
            // Packet of PGM, whose session also sends ALC packets.
            Some(Opened::Word(_)) => return,
            None => None,
        };
        let Some(packet) = packet else {
            self.others += 1;
            return;
        };
        self.waves = self.waves.or_else(|| Waves::read(source, &packet));
        let tsi = packet.tsi();
        let known = self.sessions.iter_mut().find(|session| session.source == source && session.tsi == tsi);
        let bytes = datagram.len() as u64;
        if let Some(session) = known {
            session.packets += 1;
            session.bytes += bytes;
        } else if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push(FoundSession { source, tsi, packets: 1, bytes, rate_bits: 0 });
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
/// The error of the kernel.
pub(super) fn listen(socket: &mut ReceiverSocket, deadline: Instant) -> io::Result<SessionSurvey> {
    let start = Instant::now();
    let mut poller = Poller::new()?;
    let mut batch = RecvBatch::new();
    let mut heard = SessionSurvey::default();
    // The deadline is checked after each batch, so that a flood does not extend the time.
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

/// Checks for a session that arrives without losses.
pub(super) fn judge(place: &SurveyPlace, heard: SessionSurvey) -> Check {
    let seconds = format!("{:.1} s", heard.listened.as_secs_f64());
    let mut check = if let Some(check) = too_long(place, &heard, &seconds) {
        check
    } else if heard.sessions.is_empty() {
        silence(place, &heard, &seconds)
    } else {
        let named = named(&heard.sessions);
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

/// Checks for packets that are too long for the interface or have missing fragments.
fn too_long(place: &SurveyPlace, heard: &SessionSurvey, seconds: &str) -> Option<Check> {
    let SurveyPlace { interface, mtu, .. } = place;
    let InputLosses { frames, fragments } = heard.losses;
    let seen = match (heard.sessions.is_empty(), named(&heard.sessions)) {
        (true, _) => "no session".to_owned(),
        (false, named) => named,
    };
    if let Some(mtu) = mtu.filter(|mtu| *mtu < MTU_USUAL && frames >= FRAMES_DROPPED_MIN) {
        let symbol_size = symbol_size_within(Some(mtu), place.group.is_ipv4());
        return Some(Check::problem(
            NAME,
            format!(
                "{seen}; and {interface} dropped {frames} packets in {seconds}: its MTU is {mtu}, and packets of senders with the \
                 usual {MTU_USUAL} are longer"
            ),
            format!(
                "give it the MTU of the sender's network: ip link set dev {interface} mtu {MTU_USUAL}; or let the sender send \
                 with --symbol-size {symbol_size}"
            ),
        ));
    }
    (fragments > 0).then(|| {
        Check::warning(
            NAME,
            format!(
                "{seen}; and {fragments} packets came in fragments in {seconds}, of which some were missing: packets are longer \
                 than the way takes whole"
            ),
            "let the sender send shorter packets: --symbol-size 1024, or what the smallest MTU on the way takes",
        )
    })
}

fn silence(place: &SurveyPlace, heard: &SessionSurvey, seconds: &str) -> Check {
    let SurveyPlace { group, source, interface, .. } = place;
    let from = source.map_or_else(String::new, |source| format!(" from {source}"));
    if heard.filter_drops > 0 {
        return Check::problem(
            NAME,
            format!(
                "nothing{from} to {group} in {seconds}, but the reverse path filter dropped {} packets",
                heard.filter_drops
            ),
            format!(
                "loosen it: sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{interface}.rp_filter=2"
            ),
        );
    }
    if let (Some(source), Some(other)) = (source, heard.of_others.first()) {
        return Check::problem(
            NAME,
            format!(
                "nothing from {source}, the sender named, in {seconds}; from others: {}",
                named(&heard.of_others)
            ),
            format!("name who sends: --source {}, or leave it out to take any sender", other.source.ip()),
        );
    }
    if heard.others > 0 {
        return Check::warning(
            NAME,
            format!("{} datagrams in {seconds} to {group}, none of them an ALC packet", heard.others),
            "something else uses this group and port: choose another --group",
        );
    }
    let seen = format!("nothing was sent{from} to {group} in {seconds}");
    let advice = "is a sender running, on this group and port? If it is: its --interface and --ttl, and a firewall \
                  or a snooping switch on the way";
    match source {
        // A named sender is expected to send.
        Some(_) => Check::warning(NAME, seen, advice),
        None => Check::unknown(NAME, seen, advice),
    }
}

/// Formats the first few sessions.
fn named(sessions: &[FoundSession]) -> String {
    let mut named = sessions.iter().take(NAMED_MAX).map(described).collect::<Vec<_>>().join("; ");
    let more = sessions.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        named.push_str(&format!("; and {more} more"));
    }
    named
}

fn described(session: &FoundSession) -> String {
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
        let mut heard = SessionSurvey::default();
        heard.take("192.0.2.1:5".parse().unwrap(), &datagram);
        assert_eq!((heard.sessions.len(), heard.sessions[0].tsi, heard.others), (1, Some(7), 0));
    }

    fn place() -> SurveyPlace {
        let group = "239.1.1.1:7287".parse().unwrap();
        SurveyPlace { group, source: None, interface: "eth0".to_owned(), mtu: Some(1_500) }
    }

    fn session(source: &str) -> SessionSurvey {
        let mut heard = SessionSurvey::default();
        heard.take(source.parse().unwrap(), &packet(7));
        heard
    }

    #[test]
    fn a_sender_that_is_named_and_not_heard_is_told() {
        let named = SurveyPlace { source: Some("192.0.2.9".parse().unwrap()), ..place() };
        let others = session("192.0.2.1:5").sessions;
        let check = judge(&named, SessionSurvey { of_others: others, ..SessionSurvey::default() });
        assert_eq!(check.verdict, Verdict::Problem);
        assert!(
            check.seen.contains("nothing from 192.0.2.9") && check.seen.contains("TSI 7"),
            "{}",
            check.seen
        );
        assert!(check.advice.unwrap().contains("--source 192.0.2.1,"));
        assert_eq!(judge(&named, SessionSurvey::default()).verdict, Verdict::Warning);
    }

    #[test]
    fn packets_too_long_for_the_interface_are_the_problem() {
        let losses = InputLosses { frames: 500, fragments: 0 };
        let small = SurveyPlace { mtu: Some(1_200), ..place() };
        let check = judge(&small, SessionSurvey { losses, ..session("192.0.2.1:5") });
        assert_eq!(check.verdict, Verdict::Problem);
        assert!(check.seen.contains("its MTU is 1200"), "{}", check.seen);
        let advice = check.advice.unwrap();
        assert!(advice.contains("dev eth0 mtu 1500") && advice.contains("--symbol-size 1024"), "{advice}");
        // With the usual MTU frames are dropped for other reasons.
        assert_eq!(judge(&place(), SessionSurvey { losses, ..session("192.0.2.1:5") }).verdict, Verdict::Ok);
        let losses = InputLosses { frames: 0, fragments: 3 };
        assert_eq!(
            judge(&place(), SessionSurvey { losses, ..session("192.0.2.1:5") }).verdict,
            Verdict::Warning
        );
    }

    #[test]
    fn sessions_are_told_apart_by_source_and_tsi() {
        let mut heard = SessionSurvey::default();
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
        let check = judge(&place(), heard);
        assert_eq!(check.verdict, Verdict::Ok);
        assert!(check.seen.starts_with("TSI 7 from 192.0.2.1:5 at 160"), "{}", check.seen);
    }

    #[test]
    fn a_flood_of_sessions_stays_bounded() {
        let mut heard = SessionSurvey::default();
        for port in 1..=100 {
            heard.take(SocketAddr::from(([192, 0, 2, 1], port)), &packet(1));
        }
        assert_eq!((heard.sessions.len(), heard.others), (SESSIONS_MAX, 68));
    }

    #[test]
    fn silence_has_reasons() {
        let verdict = |heard| judge(&place(), heard).verdict;
        assert_eq!(verdict(SessionSurvey::default()), Verdict::Unknown);
        assert_eq!(verdict(SessionSurvey { others: 5, ..SessionSurvey::default() }), Verdict::Warning);
        assert_eq!(verdict(SessionSurvey { filter_drops: 5, ..SessionSurvey::default() }), Verdict::Problem);
        let mut dropping = SessionSurvey { kernel_drops: 9, ..SessionSurvey::default() };
        dropping.take("192.0.2.1:5".parse().unwrap(), &packet(1));
        let check = judge(&place(), dropping);
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.seen.contains("dropped 9"));
    }
}
