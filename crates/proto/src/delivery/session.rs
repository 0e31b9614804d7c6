//! Which session a receiver is of, and whether its sender is still there.

use core::net::{IpAddr, SocketAddr};

use crate::time::{Duration, Instant};

/// A session from which nothing was heard for this long makes way for another one on the group: long enough
/// for an interface or a route that comes back, and for a sender of any rate but LE-SBCC's floor, a packet in
/// up to 10 to 15 s.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Other sessions on the group that are told of.
pub const OTHERS_MAX: usize = 16;
/// A closed session ends when nothing was heard for this long.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The session that a receiver is of: the first one heard that it would take.
#[derive(Debug)]
pub(crate) struct Listening {
    tsi: Option<u64>,
    source: Option<IpAddr>,
    session: Option<(IpAddr, u64)>,
    /// Where its first packet came from.
    sender: Option<SocketAddr>,
    /// Other sessions told of, at most [`OTHERS_MAX`].
    others: Vec<(IpAddr, u64)>,
    /// Whether the sender was heard to close the session. It counts once nothing more is heard: a packet that
    /// is corrupt or forged does not end a session that goes on.
    is_closed: bool,
    last_heard: Instant,
}

/// Of which session a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of this one; perhaps its first packet.
    Ours { is_first: bool },
    /// Of another one: perhaps the first time, and perhaps one that takes the place of this one, which is
    /// silent.
    Other { is_news: bool, replaces: bool },
}

impl Listening {
    /// Listens for the session wanted, or for any, from the source wanted, or from anyone.
    pub(crate) fn new(tsi: Option<u64>, source: Option<IpAddr>, now: Instant) -> Self {
        let (session, sender, others) = (None, None, Vec::new());
        Self { tsi, source, session, sender, others, is_closed: false, last_heard: now }
    }

    /// A packet came.
    pub(crate) fn hear(&mut self, now: Instant, source: SocketAddr, tsi: u64) -> Whose {
        let would_take = self.tsi.is_none_or(|wanted| wanted == tsi)
            && self.source.is_none_or(|wanted| wanted == source.ip());
        let this = (source.ip(), tsi);
        if self.session == Some(this) || (self.session.is_none() && would_take) {
            let is_first = self.session.replace(this).is_none();
            self.sender.get_or_insert(source);
            self.last_heard = now;
            return Whose::Ours { is_first };
        }
        let is_news = self.others.len() < OTHERS_MAX && !self.others.contains(&this);
        if is_news {
            self.others.push(this);
        }
        let is_silent = self.session.is_some() && now >= self.last_heard + SILENCE;
        Whose::Other { is_news, replaces: is_silent && would_take }
    }

    /// The session's packet that was heard last closes it, or does not.
    pub(crate) fn close(&mut self, closes: bool) {
        self.is_closed |= closes;
    }

    /// Who sends the session and its identifier, once a packet of it has come.
    pub(crate) fn session(&self) -> Option<(IpAddr, u64)> {
        self.session
    }

    /// When a packet of the session came last, once one has come.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        self.session.map(|_| self.last_heard)
    }

    /// Where its first packet came from.
    pub(crate) fn sender(&self) -> Option<SocketAddr> {
        self.sender
    }

    /// When a session that was closed has ended, unless more is heard.
    pub(crate) fn close_deadline(&self) -> Option<Instant> {
        self.is_closed.then(|| self.last_heard + CLOSE_GRACE)
    }
}
