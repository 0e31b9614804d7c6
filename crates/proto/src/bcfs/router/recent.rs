//! Cache of replies that answer any request, for receivers without these replies.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use headwater_wire::bcfs::{Header, Kind};

use crate::machine::{ChannelId, DATAGRAM_BYTES_MAX, Datagram, InterfaceId};
use crate::time::{Duration, Instant};

/// Lifetime of a cached reply: a restarted source sends different replies.
const KEPT: Duration = Duration::from_secs(1);
/// Maximum number of sources with cached replies.
const SOURCES_MAX: usize = 16;
/// Maximum number of replies sent on a link out of order, ahead of replies not yet sent there.
const AHEAD_MAX: usize = 256;

/// Most recent replies of each source.
#[derive(Debug)]
pub(super) struct Recent {
    /// Maximum number of cached replies of a source.
    most: usize,
    /// At most [`SOURCES_MAX`].
    rings: BTreeMap<SocketAddr, Ring>,
}

/// Identifier of a cached reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    source: SocketAddr,
    number: u64,
}

#[derive(Debug, Default)]
struct Ring {
    /// Number of the oldest cached reply, counted from 0.
    first: u64,
    replies: VecDeque<Reply>,
    /// State by interface; at most as many as a relay has.
    links: BTreeMap<u32, Link>,
}

#[derive(Debug)]
struct Reply {
    at: Instant,
    /// Channel on which the reply arrived.
    channel: Option<ChannelId>,
    /// Whether the reply replaces a reply lost above.
    follows_loss: bool,
    message: Vec<u8>,
}

/// Replies sent on a link: all before `next` are sent or expired; some after `next` are sent as well.
#[derive(Debug, Default)]
struct Link {
    next: u64,
    /// Ascending, at most [`AHEAD_MAX`]: 2 kB.
    ahead: VecDeque<u64>,
}

impl Recent {
    /// Creates a cache of at most `most` replies of each source.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, rings: BTreeMap::new() }
    }

    /// Caches a reply if the reply answers any request.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        header: &Header,
        follows_loss: bool,
        datagram: &Datagram<'_>,
    ) -> Option<Number> {
        let message = datagram.payload;
        if self.most == 0 || !header.is_any || message.len() > DATAGRAM_BYTES_MAX {
            return None;
        }
        // An IPv4 address in IPv6 form makes the header longer than the header that the cached reply gets.
        if !Header::parse(message).is_ok_and(|(_, body)| header.buffer_len() + body.len() == message.len()) {
            return None;
        }
        if !self.rings.contains_key(&header.source) && self.rings.len() == SOURCES_MAX {
            self.rings.retain(|_, ring| ring.replies.back().is_some_and(|reply| reply.at + KEPT > now));
            if self.rings.len() == SOURCES_MAX {
                return None;
            }
        }
        let ring = self.rings.entry(header.source).or_default();
        let number =
            ring.keep(now, message, datagram.channel, header.follows_loss || follows_loss, self.most);
        Some(Number { source: header.source, number })
    }

    /// Records that a cached reply was sent on a link.
    pub(super) fn sent(&mut self, Number { source, number }: Number, egress: InterfaceId) {
        if let Some(ring) = self.rings.get_mut(&source) {
            ring.link(egress).sent(number);
        }
    }

    /// Returns a cached reply that `ingress` has not received yet, for a request from that link, and marks
    /// the reply as sent there.
    pub(super) fn answer(&mut self, now: Instant, ingress: InterfaceId, asked: &Header) -> Option<Number> {
        if asked.kind != Kind::Request || !asked.is_any {
            return None;
        }
        let number = self.rings.get_mut(&asked.source)?.take(now, ingress)?;
        Some(Number { source: asked.source, number })
    }

    /// Writes a cached reply as the answer to a request. Returns the length of the reply and the channel of
    /// arrival.
    pub(super) fn write(
        &self,
        Number { source, number }: Number,
        asked: &Header,
        room: &mut [u8],
    ) -> Option<(usize, Option<ChannelId>)> {
        let Reply { message, channel, follows_loss, .. } = self.rings.get(&source)?.at(number)?;
        let reply = room.get_mut(..message.len())?;
        reply.copy_from_slice(message);
        Header { kind: Kind::Reply, follows_loss: *follows_loss, ..*asked }.emit(reply).ok()?;
        Some((message.len(), *channel))
    }
}

impl Ring {
    fn keep(
        &mut self,
        now: Instant,
        message: &[u8],
        channel: Option<ChannelId>,
        follows_loss: bool,
        most: usize,
    ) -> u64 {
        let mut room = Vec::new();
        if self.replies.len() >= most
            && let Some(oldest) = self.replies.pop_front()
        {
            (room, self.first) = (oldest.message, self.first + 1);
        }
        room.clear();
        room.extend_from_slice(message);
        self.replies.push_back(Reply { at: now, channel, follows_loss, message: room });
        self.first + self.replies.len() as u64 - 1
    }

    /// Returns the oldest reply not yet sent on a link, and marks it as sent.
    fn take(&mut self, now: Instant, egress: InterfaceId) -> Option<u64> {
        while self.replies.front().is_some_and(|reply| reply.at + KEPT <= now) {
            self.replies.pop_front();
            self.first += 1;
        }
        let link = self.link(egress);
        let number = link.next;
        self.at(number)?;
        self.link(egress).next += 1;
        Some(number)
    }

    fn at(&self, number: u64) -> Option<&Reply> {
        self.replies.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns the state of a link, advanced past expired replies.
    fn link(&mut self, egress: InterfaceId) -> &mut Link {
        let link = self.links.entry(egress.0).or_default();
        link.next = link.next.max(self.first);
        link.settle();
        link
    }
}

impl Link {
    fn sent(&mut self, number: u64) {
        if self.ahead.len() >= AHEAD_MAX
            && let Some(oldest) = self.ahead.pop_front()
        {
            // Skips the earlier replies that the link lacks, so that no reply is sent twice.
            self.next = oldest + 1;
        }
        self.ahead.push_back(number);
        self.settle();
    }

    /// Moves `next` past the replies sent ahead.
    fn settle(&mut self) {
        while let Some(number) = self.ahead.front().filter(|number| **number <= self.next) {
            self.next += u64::from(*number == self.next);
            self.ahead.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_wire::bcfs::{Label, Level};

    use super::*;
    use crate::machine::Ecn;

    const SOURCE: &str = "192.0.2.1:7288";
    const RELAY: InterfaceId = InterfaceId(3);
    const OTHER: InterfaceId = InterfaceId(4);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn header(kind: Kind, source: &str, label: u32, is_any: bool) -> Header {
        Header { is_any, ..Header::new(kind, source.parse().unwrap(), Label(label), Level::ONE) }
    }

    /// Hands in a reply of so many bytes.
    fn keep_of(recent: &mut Recent, now: Instant, header: &Header, bytes: usize, body: u8) -> Option<Number> {
        let mut payload = vec![body; bytes];
        header.emit(&mut payload).unwrap();
        let datagram =
            Datagram { source: header.source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
        recent.keep(now, header, false, &datagram)
    }

    fn keep(recent: &mut Recent, ms: u64, body: u8, links: &[InterfaceId]) {
        let kept = keep_of(recent, at(ms), &header(Kind::Reply, SOURCE, 1, true), 30, body).unwrap();
        links.iter().for_each(|link| recent.sent(kept, *link));
    }

    /// The body of what answers.
    fn answer(recent: &mut Recent, ms: u64, link: InterfaceId) -> Option<u8> {
        let (mut room, asked) = ([0; 100], header(Kind::Request, SOURCE, 9, true));
        let number = recent.answer(at(ms), link, &asked)?;
        let (bytes, channel) = recent.write(number, &asked, &mut room).unwrap();
        let (header, body) = Header::parse(&room[..bytes]).unwrap();
        assert_eq!((header.kind, header.label, header.level), (Kind::Reply, Label(9), Level::ONE));
        assert_eq!((channel, body.len()), (None, 10));
        Some(body[0])
    }

    #[test]
    fn a_link_gets_what_it_has_not_had_and_nothing_twice() {
        let mut recent = Recent::new(8);
        keep(&mut recent, 0, 1, &[RELAY]);
        keep(&mut recent, 1, 2, &[RELAY, OTHER]);
        keep(&mut recent, 2, 3, &[RELAY]);
        assert_eq!(answer(&mut recent, 3, RELAY), None);
        assert_eq!([3, 4, 5].map(|ms| answer(&mut recent, ms, OTHER)), [Some(1), Some(3), None]);
        keep(&mut recent, 6, 4, &[OTHER]);
        assert_eq!((answer(&mut recent, 7, RELAY), answer(&mut recent, 7, OTHER)), (Some(4), None));
        // One that has never asked.
        let all: Vec<_> = core::iter::from_fn(|| answer(&mut recent, 8, InterfaceId(9))).collect();
        assert_eq!(all, [1, 2, 3, 4]);
    }

    #[test]
    fn a_link_that_is_slow_gets_some_and_old_ones_are_gone() {
        let mut recent = Recent::new(8);
        for body in 0..100 {
            keep(&mut recent, body.into(), body, &[RELAY]);
            if body % 10 == 9 {
                assert_eq!(answer(&mut recent, body.into(), OTHER), Some(body - 7));
            }
        }
        assert_eq!(answer(&mut recent, 1_093, OTHER), Some(94), "for a second");
        assert_eq!(answer(&mut recent, 1_099, OTHER), None);
    }

    #[test]
    fn what_only_its_label_answers_is_neither_kept_nor_answered() {
        let mut recent = Recent::new(8);
        let reply = |is_any| header(Kind::Reply, SOURCE, 1, is_any);
        assert!(keep_of(&mut recent, at(0), &reply(false), 30, 1).is_none());
        keep(&mut recent, 0, 1, &[]);
        for request in [
            header(Kind::Request, SOURCE, 1, false),
            header(Kind::Null, SOURCE, 1, true),
            header(Kind::Request, "192.0.2.1:7289", 1, true),
        ] {
            assert!(recent.answer(at(0), RELAY, &request).is_none());
        }
        assert!(keep_of(&mut Recent::new(0), at(0), &reply(true), 30, 1).is_none());
    }

    #[test]
    fn few_sources_have_a_place_and_silent_ones_give_way() {
        let mut recent = Recent::new(8);
        let source = |number: usize| format!("192.0.2.{number}:7288");
        let mut keep = |ms, number| {
            keep_of(&mut recent, at(ms), &header(Kind::Reply, &source(number), 1, true), 30, 1).is_some()
        };
        let kept = (0..40).filter(|number| keep(0, *number)).count();
        assert_eq!(kept, SOURCES_MAX);
        assert!(!keep(999, 100) && keep(1_001, 100));
    }

    #[test]
    fn what_could_not_go_out_whole_is_not_kept() {
        let mut recent = Recent::new(8);
        let mut is_kept =
            |bytes| keep_of(&mut recent, at(0), &header(Kind::Reply, SOURCE, 1, true), bytes, 1).is_some();
        assert!(is_kept(DATAGRAM_BYTES_MAX) && !is_kept(DATAGRAM_BYTES_MAX + 1));
    }

    /// The header of an answer would not be where that of the reply was.
    #[test]
    fn a_reply_that_names_its_source_by_more_bytes_than_it_takes_is_not_kept() {
        let mut recent = Recent::new(8);
        let mut message = [7; 60];
        let longer: [u8; 16] =
            [b"\0\0\0\0\0\0\0\0\0\0\xFF\xFF", &[192, 0, 2, 1][..]].concat().try_into().unwrap();
        header(Kind::Reply, "[2001:db8::1]:7288", 1, true).emit(&mut message).unwrap();
        message[16..32].copy_from_slice(&longer);
        let (parsed, body) = Header::parse(&message).unwrap();
        assert_eq!((parsed.source.to_string().as_str(), body), (SOURCE, &[7; 28][..]));
        let datagram =
            Datagram { source: parsed.source, channel: None, ecn: Ecn::NotCapable, payload: &message };
        assert!(recent.keep(at(0), &parsed, false, &datagram).is_none());
        assert_eq!(answer(&mut recent, 1, RELAY), None);
    }

    #[test]
    fn a_gap_too_long_to_remember_is_given_up_and_nothing_comes_twice() {
        let mut recent = Recent::new(4_096);
        keep(&mut recent, 0, 0, &[]);
        (0..600).for_each(|_| keep(&mut recent, 0, 1, &[OTHER]));
        keep(&mut recent, 0, 2, &[]);
        let all: Vec<_> = core::iter::from_fn(|| answer(&mut recent, 1, OTHER)).collect();
        assert_eq!(all, [2]);
    }

    #[test]
    fn what_is_known_of_a_link_is_bounded() {
        let mut recent = Recent::new(8);
        keep(&mut recent, 0, 0, &[]);
        for body in 0..10_000_u32 {
            keep(&mut recent, 0, (body % 250) as u8, &[OTHER]);
        }
        let ring = recent.rings.values().next().unwrap();
        assert!(ring.links[&OTHER.0].ahead.len() <= AHEAD_MAX && ring.replies.len() == 8);
    }
}
