//! Check of the number of groups that the path carries, by the groups of a session of M2C or WEBRC.
//!
//! The base channel tells the number of groups, the slot, and the highest level that is sent. A switch or
//! router whose table of groups is full drops or floods the groups that come later. All groups are therefore
//! joined, and those that are sent are spread evenly among the silent ones: the number of groups that were
//! joined before the first missing one is about the size of the table.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use headwater_proto::ChannelId;
use headwater_wire::cci::WebrcCci;
use headwater_wire::extensions::Extensions;
use headwater_wire::{Cci, lct};

use super::check::Check;
use super::error_chain;
use crate::net::{Channels, Poller, ReceiverOptions, ReceiverSocket, RecvBatch};

const NAME: &str = "groups";
/// Lowest level that is expected to bring packets: level 1 falls silent within a slot.
const LEVEL_LEAST: u16 = 2;
/// Time between two joins of groups that are sent. A kernel gathers joins into reports, newest first.
const STEP: Duration = Duration::from_millis(150);
/// Time in which leaves take effect: two queries of a router to other members, a second each.
const LEAVE_TIME: Duration = Duration::from_secs(4);
/// Rate up to which groups that are sent are joined, in bytes/s: 8 Mbit/s.
const RATE_MAX: u64 = 1_000_000;
/// Least time to listen: the lowest levels of a default session send a packet each 0.6 s.
const LISTEN_LEAST: Duration = Duration::from_secs(3);

/// Waves of a session, as a packet of the base channel shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waves {
    pub(super) source: SocketAddr,
    /// T: number of groups above the base.
    cycle: u16,
    slot: u16,
    /// Highest level that is sent, if told.
    ceiling: Option<u16>,
}

impl Waves {
    /// Reads a packet of the base channel; `None` if the packet is none of M2C or WEBRC.
    pub(super) fn read(source: SocketAddr, packet: &lct::Packet<&[u8]>) -> Option<Self> {
        let WebrcCci { slot, channel: cycle, .. } = Cci::new(packet.cci()).ok()?.webrc().ok()?;
        // Other controls number their base 0, or send zeros.
        if cycle < LEVEL_LEAST || cycle > u16::from(u8::MAX) || slot >= cycle {
            return None;
        }
        let levels = Extensions::parse(packet.extensions(), packet.codepoint()).ok()?.levels;
        Some(Self { source, cycle, slot, ceiling: levels.map(|levels| levels.ceiling.into()) })
    }

    /// Returns the groups of the levels from [`LEVEL_LEAST`] up that are sent, lowest first; if no ceiling is
    /// told, of all levels that there might be.
    fn sent(&self) -> Vec<ChannelId> {
        let highest = self.ceiling.unwrap_or(self.cycle).min(self.cycle);
        (LEVEL_LEAST..=highest).map(|level| ChannelId((self.slot + level - 1) % self.cycle + 1)).collect()
    }

    /// Returns all other groups above the base.
    fn silent(&self) -> Vec<ChannelId> {
        let sent = self.sent();
        (1..=self.cycle).map(ChannelId).filter(|channel| !sent.contains(channel)).collect()
    }
}

/// Groups that were joined and that brought packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Carried {
    /// All groups that were joined.
    joined: usize,
    /// Joined groups that the sender sends on.
    sent: usize,
    /// Number of joined groups that brought packets.
    arrived: usize,
    /// Number of groups that seem to fit: joined up to the last group that brought packets, and before the
    /// next. Groups of one report may change places, so that the number of groups decides, not which.
    fits: (usize, usize),
}

/// Result of listening with all groups joined and, if some are missing, with only the groups that are sent.
#[derive(Clone, Copy, Debug)]
struct GroupSurvey {
    all: Carried,
    alone: Option<Carried>,
}

/// Surveys the groups of a session and judges them. If `wait` is shorter than [`LISTEN_LEAST`], no group is
/// joined: a survey takes 6 s at least.
pub(super) fn check(base: &Channels, options: &ReceiverOptions, waves: Waves, wait: Duration) -> Check {
    if wait < LISTEN_LEAST {
        return Check::unknown(
            NAME,
            format!(
                "the session has {} groups; {:.1} s are too short to try them",
                waves.cycle,
                wait.as_secs_f64()
            ),
            "listen for longer: --wait 3s",
        );
    }
    judge(&survey(base, options, waves, wait))
}

/// Joins the groups of a session and counts those that bring packets, `wait` after the last join.
///
/// # Errors
/// A message, if the groups cannot be joined.
fn survey(
    base: &Channels,
    options: &ReceiverOptions,
    waves: Waves,
    wait: Duration,
) -> Result<GroupSurvey, String> {
    let channels = Channels::new(base.base(), waves.cycle + 1).map_err(|error| error.to_string())?;
    let listen = |is_alone| Listener::open(&channels, options, waves)?.carried(is_alone, wait);
    let all = listen(false)?;
    if all.arrived == all.sent {
        return Ok(GroupSurvey { all, alone: None });
    }
    thread::sleep(LEAVE_TIME);
    Ok(GroupSurvey { all, alone: Some(listen(true)?) })
}

/// A receiver of one session.
struct Listener {
    socket: ReceiverSocket,
    poller: Poller,
    batch: RecvBatch,
    waves: Waves,
    arrived: BTreeSet<u16>,
    bytes: u64,
}

impl Listener {
    fn open(channels: &Channels, options: &ReceiverOptions, waves: Waves) -> Result<Self, String> {
        let mut socket = ReceiverSocket::open(channels, options).map_err(|error| error_chain(&error))?;
        socket.join(ChannelId::BASE).map_err(|error| error_chain(&error))?;
        let poller = Poller::new().map_err(|error| error.to_string())?;
        Ok(Self { socket, poller, batch: RecvBatch::new(), waves, arrived: BTreeSet::new(), bytes: 0 })
    }

    fn carried(&mut self, is_alone: bool, wait: Duration) -> Result<Carried, String> {
        // Slots change: what is sent is read anew.
        self.listen(Duration::from_millis(500)).map_err(|error| error.to_string())?;
        let (sent, silent) = (self.waves.sent(), self.waves.silent());
        let mut silent = if is_alone { [].iter() } else { silent.iter() };
        let (each, mut is_within_rate) = (silent.len().div_ceil(sent.len().max(1)), true);
        // Groups that are sent, each with the number of groups that are joined by then.
        let (mut expected, mut joined) = (Vec::new(), 1);
        for channel in sent {
            for silent in silent.by_ref().take(each) {
                self.join(*silent, &mut joined)?;
            }
            if !is_within_rate {
                continue;
            }
            self.join(channel, &mut joined)?;
            expected.push((channel.0, joined));
            let before = self.bytes;
            self.listen(STEP).map_err(|error| error.to_string())?;
            let most = u128::from(RATE_MAX) * STEP.as_millis() / 1_000;
            is_within_rate = u128::from(self.bytes - before) <= most;
        }
        self.arrived.clear();
        self.listen(wait).map_err(|error| error.to_string())?;
        // Without a ceiling, the levels above the highest that arrives may not exist.
        if self.waves.ceiling.is_none() {
            let last = expected.iter().rposition(|(channel, _)| self.arrived.contains(channel));
            expected.truncate(last.map_or(0, |last| last + 1));
        }
        let arrived = expected.iter().filter(|(channel, _)| self.arrived.contains(channel)).count();
        let by = |number: usize| expected.get(number).map(|(_, joined)| *joined);
        let least = arrived.checked_sub(1).and_then(by).unwrap_or(1);
        let fits = (least, by(arrived).map_or(joined, |missing| missing - 1));
        Ok(Carried { joined, sent: expected.len(), arrived, fits })
    }

    fn join(&mut self, channel: ChannelId, joined: &mut usize) -> Result<(), String> {
        *joined += 1;
        self.socket.join(channel).map_err(|error| error_chain(&error))
    }

    fn listen(&mut self, time: Duration) -> io::Result<()> {
        let deadline = Instant::now() + time;
        let Waves { source, cycle, .. } = self.waves;
        while Instant::now() < deadline {
            if self.socket.recv(&mut self.batch)? == 0 {
                self.poller.wait(self.socket.fds(), Some(deadline))?;
            }
            for datagram in self.batch.iter().filter(|datagram| datagram.source == source) {
                self.bytes += datagram.payload.len() as u64;
                let Some(channel) = datagram.channel else { continue };
                self.arrived.insert(channel.0);
                let packet = lct::Packet::new_checked(datagram.payload).ok();
                let waves = packet.and_then(|packet| Waves::read(datagram.source, &packet));
                if let Some(waves) = waves.filter(|waves| channel == ChannelId::BASE && waves.cycle == cycle)
                {
                    self.waves = waves;
                }
            }
        }
        Ok(())
    }
}

/// Judges how many groups the path seems to carry.
fn judge(survey: &Result<GroupSurvey, String>) -> Check {
    let advice = "a switch without room for more groups drops them, or floods them to all ports; see headwater send --groups";
    let GroupSurvey { all, alone } = match survey {
        Ok(survey) => *survey,
        Err(error) => {
            return Check::warning(NAME, format!("the session's groups cannot be joined: {error}"), advice);
        }
    };
    let Carried { joined, sent, arrived, fits } = all;
    if sent == 0 {
        return Check::unknown(
            NAME,
            format!(
                "the session has groups that this machine could join ({joined}), and none of them is sent now"
            ),
            "look again while a receiver of the session runs",
        );
    }
    let Some(few) = alone.filter(|_| arrived < sent) else {
        return Check::ok(
            NAME,
            format!(
                "{joined} groups joined; all {sent} of them that are sent now bring packets: the path carries {joined} groups, or a switch \
                 floods those that its table has no room for"
            ),
        );
    };
    if few.arrived * sent > arrived * few.sent {
        let (least, most) = fits;
        return Check::warning(
            NAME,
            format!(
                "{joined} groups joined: {arrived} of {sent} that are sent bring packets; {} groups joined: {} of {} do. The path seems to \
                 carry {least} to {most} groups; groups of other sessions and machines count, too",
                few.joined, few.arrived, few.sent
            ),
            format!("let the sender use fewer groups: headwater send --groups {}", least - least / 8),
        );
    }
    Check::warning(
        NAME,
        format!(
            "{joined} groups joined: {arrived} of {sent} that are sent bring packets, and as few with {} joined: the number of groups does \
             not seem to be the reason",
            few.joined
        ),
        "compare with another machine; a router or a firewall may pass only some groups, or the link is full",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn waves(cycle: u16, slot: u16, ceiling: Option<u16>) -> Waves {
        Waves { source: "192.0.2.1:5".parse().unwrap(), cycle, slot, ceiling }
    }

    #[test]
    fn groups_follow_from_slot_and_ceiling() {
        let waves = waves(10, 8, Some(4));
        // Levels 1 to 4 have the numbers 8, 9, 0, 1, one above on the network.
        assert_eq!(waves.sent(), [10, 1, 2].map(ChannelId));
        assert_eq!(waves.silent(), [3, 4, 5, 6, 7, 8, 9].map(ChannelId));
        assert!(Waves { ceiling: Some(1), ..waves }.sent().is_empty());
        assert_eq!(Waves { ceiling: None, ..waves }.sent().len(), 9);
        assert_eq!(Waves { ceiling: Some(200), ..waves }.sent().len(), 9);
    }

    #[test]
    fn packets_of_other_controls_are_none_of_waves() {
        let read = |cci: [u8; 4]| {
            let mut packet = vec![0x10, 0b1010_0000, 4, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 9];
            packet[4..8].copy_from_slice(&cci);
            Waves::read("192.0.2.1:5".parse().unwrap(), &lct::Packet::new_checked(&packet[..]).unwrap())
        };
        assert_eq!(read([8, 10, 0, 0]), Some(waves(10, 8, None)));
        for other in [[0; 4], [10, 10, 0, 0], [0, 1, 0, 0], [3, 0, 0, 0]] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_short_wait_leaves_the_groups_out() {
        let base = Channels::new("239.255.72.98:17298".parse().unwrap(), 1).unwrap();
        let started = Instant::now();
        let left_out =
            check(&base, &ReceiverOptions::default(), waves(10, 8, Some(4)), Duration::from_millis(100));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        assert_eq!(left_out.verdict, Verdict::Unknown);
        assert!(left_out.advice.unwrap().contains("--wait 3s"));
    }

    #[test]
    fn verdicts_tell_a_full_table_from_other_reasons() {
        let survey = |all: [usize; 3], alone: Option<[usize; 3]>| {
            let carried =
                |[joined, sent, arrived]: [usize; 3]| Carried { joined, sent, arrived, fits: (33, 40) };
            judge(&Ok(GroupSurvey { all: carried(all), alone: alone.map(carried) }))
        };
        let whole = survey([108, 16, 16], None);
        assert_eq!(whole.verdict, Verdict::Ok);
        assert!(whole.seen.contains("carries 108 groups") && whole.seen.contains("floods"), "{}", whole.seen);
        let full = survey([108, 16, 4], Some([17, 16, 16]));
        assert_eq!(full.verdict, Verdict::Warning);
        assert!(full.seen.contains("carry 33 to 40 groups"), "{}", full.seen);
        assert!(full.advice.unwrap().contains("--groups 29"));
        let other = survey([108, 16, 3], Some([17, 16, 3]));
        assert!(other.seen.contains("not seem to be the reason"), "{}", other.seen);
        assert_eq!(survey([108, 0, 0], None).verdict, Verdict::Unknown);
        assert_eq!(judge(&Err("no memory".into())).verdict, Verdict::Warning);
    }
}
