//! Selection of the session that a receiver receives, and detection of a sender that is gone.

use core::net::{IpAddr, SocketAddr};

use crate::time::{Duration, Instant};

/// Silence after which another session on the group may replace the received session. Long enough for an
/// interface or a route that recovers, and for a sender of any rate except LE-SBCC's floor, a packet in up to
/// 10 to 15 s.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Maximum number of other sessions on the group that are reported.
pub const OTHERS_MAX: usize = 16;
/// Silence after which a closed session ends.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The session that a receiver receives: the first acceptable session heard.
#[derive(Debug)]
pub(crate) struct Listening {
    tsi: Option<u64>,
    source: Option<IpAddr>,
    session: Option<(IpAddr, u64)>,
    /// Source address of the session's first packet.
    sender: Option<SocketAddr>,
    /// Other sessions that were reported, at most [`OTHERS_MAX`].
    others: Vec<(IpAddr, u64)>,
    /// Whether a packet that closes the session arrived. The session ends only if silence follows: a corrupt
    /// or forged packet does not end a session that continues.
    is_closed: bool,
    last_heard: Instant,
}

/// Session of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The packet belongs to the received session; perhaps the first packet.
    Ours { is_first: bool },
    /// The packet belongs to another session: perhaps the first packet of that session, and perhaps a session
    /// that replaces the received session, which is silent.
    Other { is_news: bool, replaces: bool },
}

impl Listening {
    /// Listens for the wanted session and source; `None` accepts any.
    pub(crate) fn new(tsi: Option<u64>, source: Option<IpAddr>, now: Instant) -> Self {
        let (session, sender, others) = (None, None, Vec::new());
        Self { tsi, source, session, sender, others, is_closed: false, last_heard: now }
    }

    /// Records a packet and returns the session of the packet.
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

    /// Records whether the session's last packet closes the session.
    pub(crate) fn close(&mut self, closes: bool) {
        self.is_closed |= closes;
    }

    /// Returns the sender's address and the session's identifier; `None` before the first packet.
    pub(crate) fn session(&self) -> Option<(IpAddr, u64)> {
        self.session
    }

    /// Returns the arrival time of the session's last packet; `None` before the first packet.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        self.session.map(|_| self.last_heard)
    }

    /// Returns the source address of the session's first packet.
    pub(crate) fn sender(&self) -> Option<SocketAddr> {
        self.sender
    }

    /// Returns the time at which a closed session ends unless another packet arrives.
    pub(crate) fn close_deadline(&self) -> Option<Instant> {
        self.is_closed.then(|| self.last_heard + CLOSE_GRACE)
    }
}
