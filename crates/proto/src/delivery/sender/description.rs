//! When the FDT goes out, and what of it.

use headwater_wire::extensions::FDT_INSTANCE_ID_MAX;
use headwater_wire::fdt::Instance;

use super::SenderConfig;
use crate::delivery::fdt::{FdtCarousel, FdtSymbol, FdtTooLarge};
use crate::delivery::offsets::bisecting_offsets;
use crate::time::{Duration, Instant};

/// Least time between two rounds of the FDT.
const INTERVAL: Duration = Duration::from_secs(1);
/// After its first round an FDT packet is sent for at most each so many packets of a channel: 5 %.
const CREDIT_PACKETS: u32 = 20;
/// On a slow base channel one in four, and no more than four a second, as far as a round takes longer than
/// [`SLOW_ROUND`] without: who joins at 10 packets/s is described within 2 s by up to five symbols of the FDT.
const SLOW_CREDIT_PACKETS: u32 = 3;
const SLOW_GAP: Duration = Duration::from_millis(250);
const SLOW_ROUND: Duration = Duration::from_secs(2);
/// An FDT of more symbols goes on the levels above the base as well: the base of a session of many files may be too slow
/// for it. Each level sends a first round, then at most a round in each [`INTERVAL`]: a share of the packets alone would be
/// 5 % of a fast session for ever.
const BASE_SYMBOLS_MAX: u64 = 8;
/// How long an FDT instance may be used; a new one replaces it half-way.
const LIFETIME: Duration = Duration::from_secs(3_600);

/// By how much the headers of an FDT packet (EXT_FDT, EXT_FTI, EXT_CENC) are longer than those of content.
const FDT_HEADER_BYTES: u16 = 24;
/// Shortest symbol of the FDT, where those of content are tiny.
const FDT_SYMBOL_BYTES_MIN: u16 = 64;

/// The FDT of a session, on its way.
#[derive(Debug)]
pub(crate) struct Description {
    instance: Instance,
    carousel: FdtCarousel,
    instance_id: u32,
    is_alone: bool,
    symbol_size: u16,
    next_round: Instant,
    renew: Instant,
    rounds: u64,
    round_began: Option<Instant>,
    last_sent: Instant,
    /// The epoch of the base's last packet, of controls that have epochs.
    epoch: Option<u64>,
    levels: Vec<Turn>,
}

/// The FDT on one level.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The next symbol.
    next: u64,
    /// Symbols until the level has sent each once.
    left_of_first: u64,
    /// Packets of content since the last one of the FDT, up to [`CREDIT_PACKETS`].
    credit: u32,
    /// Time of the last packet of the FDT.
    last_sent: Instant,
}

impl Description {
    /// Beside packets of content with `content_bytes` each: no packet is longer than those, so that what fits the path fits
    /// it always. `instance_id` is the first one. An instance may not be numbered like one of an earlier session that receivers may
    /// still know, so it goes with the time of day.
    pub(crate) fn new(
        instance: Instance,
        instance_id: u32,
        content_bytes: u16,
        levels: u16,
    ) -> Result<Self, FdtTooLarge> {
        let symbol_size = content_bytes.saturating_sub(FDT_HEADER_BYTES).max(FDT_SYMBOL_BYTES_MIN);
        let carousel = FdtCarousel::new(&instance, instance_id, symbol_size)?;
        Ok(Self {
            // Alone: there is no content to share the channel with.
            is_alone: instance.files.iter().all(|file| file.transfer_length == Some(0)),
            levels: turns(&carousel, levels),
            carousel,
            instance,
            instance_id,
            symbol_size,
            next_round: Instant::ZERO,
            renew: Instant::ZERO + Duration::from_nanos(LIFETIME.as_nanos() / 2),
            rounds: 0,
            round_began: None,
            last_sent: Instant::ZERO,
            epoch: None,
        })
    }

    /// Symbols of a round.
    pub(crate) fn symbols(&self) -> u64 {
        self.carousel.symbols()
    }

    /// Rounds that the base has sent.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// When the base may begin its next round.
    pub(crate) fn next_round(&self) -> Instant {
        self.next_round
    }

    /// Whether the next packet of a level is one of the FDT. To be asked once for each, with the control's `epoch` of it.
    ///
    /// Receivers join by the first packet of the base in an epoch. Where that one describes the session, who has just come begins at once.
    pub(crate) fn is_due(&mut self, now: Instant, level: u16, epoch: Option<u64>) -> bool {
        let turn = self.levels[usize::from(level)];
        if level > 0 {
            let (credit, gap) = match turn.left_of_first {
                0 => (CREDIT_PACKETS, Duration::from_nanos(INTERVAL.as_nanos() / self.symbols())),
                _ => (SLOW_CREDIT_PACKETS, Duration::ZERO),
            };
            return self.symbols() > BASE_SYMBOLS_MAX && turn.credit >= credit && turn.last_sent + gap <= now;
        }
        let opens = core::mem::replace(&mut self.epoch, epoch) != epoch;
        // The first round comes whole and before all else; later ones take their share of the packets.
        if self.rounds == 0 || self.is_alone {
            return self.next_round <= now;
        }
        let gap = Duration::from_nanos(SLOW_ROUND.as_nanos() / self.symbols()).max(SLOW_GAP);
        (turn.credit >= CREDIT_PACKETS && self.next_round <= now)
            || (turn.credit >= SLOW_CREDIT_PACKETS && (opens || self.last_sent + gap <= now))
    }

    /// A packet of content went out on a level.
    pub(crate) fn content_sent(&mut self, level: u16) {
        let turn = &mut self.levels[usize::from(level)];
        turn.credit = (turn.credit + 1).min(CREDIT_PACKETS);
    }

    /// The next symbol of a level, which is sent now.
    pub(crate) fn send(&mut self, now: Instant, level: u16, config: SenderConfig) -> FdtSymbol<'_> {
        if level == 0 {
            self.renew(now, config);
        }
        let symbols = self.carousel.symbols();
        let turn = &mut self.levels[usize::from(level)];
        let number = turn.next;
        *turn = Turn {
            next: (number + 1) % symbols,
            left_of_first: turn.left_of_first.saturating_sub(1),
            credit: 0,
            last_sent: now,
        };
        if level == 0 {
            self.last_sent = now;
            let began = *self.round_began.get_or_insert(now);
            if number + 1 == symbols {
                self.rounds += 1;
                self.round_began = None;
                self.next_round = began + INTERVAL;
            }
        }
        self.carousel.symbol(number)
    }

    /// A symbol that was asked for, which is sent now.
    pub(crate) fn asked(&mut self, now: Instant, number: u64, config: SenderConfig) -> FdtSymbol<'_> {
        self.renew(now, config);
        self.carousel.symbol(number)
    }

    /// A symbol by its number, round and round.
    pub(crate) fn symbol(&self, number: u64) -> FdtSymbol<'_> {
        self.carousel.symbol(number)
    }

    /// Between two rounds: a new instance, with a new time of expiry, when the old one has had half of its life.
    fn renew(&mut self, now: Instant, config: SenderConfig) {
        if now < self.renew || self.round_began.is_some() {
            return;
        }
        self.renew = now + Duration::from_nanos(LIFETIME.as_nanos() / 2);
        self.instance.expires = expires(config, now);
        self.instance_id = (self.instance_id + 1) & FDT_INSTANCE_ID_MAX;
        if let Ok(carousel) = FdtCarousel::new(&self.instance, self.instance_id, self.symbol_size) {
            self.levels = turns(&carousel, u16::try_from(self.levels.len()).unwrap_or(u16::MAX));
            self.carousel = carousel;
        }
    }
}

/// Levels begin apart, so that a receiver of several has all symbols the sooner.
fn turns(carousel: &FdtCarousel, levels: u16) -> Vec<Turn> {
    let symbols = carousel.symbols();
    bisecting_offsets(symbols, levels.into())
        .into_iter()
        .map(|next| Turn { next, left_of_first: symbols, credit: 0, last_sent: Instant::ZERO })
        .collect()
}

/// When an instance that is sent at `now` expires, in NTP seconds.
pub(crate) fn expires(config: SenderConfig, now: Instant) -> u32 {
    let seconds = now.since(Instant::ZERO).as_nanos() / 1_000_000_000 + LIFETIME.as_nanos() / 1_000_000_000;
    // NTP's era wraps in 2036; receivers compare modulo 2^32.
    config.ntp_at_zero.wrapping_add(u32::try_from(seconds & u64::from(u32::MAX)).expect("32 bits are left"))
}

#[cfg(test)]
mod tests {
    use headwater_wire::fdt::{File, Headwater};

    use super::*;
    use crate::Seed;

    /// At 1 Gbit/s a twentieth of the packets would be 4 300 symbols a second of an FDT of some 20.
    #[test]
    fn a_level_above_the_base_sends_a_round_a_second_at_any_rate() {
        let mut stream = Seed(1).stream("digests", 0);
        let block_digests = (0..1_000).map(|_| rand::RngExt::random(&mut stream)).collect();
        let headwater = Headwater { block_digests, ..Headwater::default() };
        let files = vec![File { toi: 1, transfer_length: Some(1 << 30), headwater, ..File::default() }];
        let instance = Instance { complete: true, files, ..Instance::default() };
        let mut description = Description::new(instance, 0, 1_408, 2).unwrap();
        let symbols = description.symbols();
        assert!(symbols > BASE_SYMBOLS_MAX);
        let mut sent = Vec::new();
        for packet in 0..40_000_u64 {
            let now = Instant::from_nanos(packet * 100_000);
            if description.is_due(now, 1, None) {
                description.send(now, 1, SenderConfig::new(1));
                sent.push(now);
            } else {
                description.content_sent(1);
            }
        }
        let second = |at: &&Instant| **at >= Instant::from_nanos(1_000_000_000);
        let first_round = sent[usize::try_from(symbols).unwrap() - 1];
        assert!(first_round < Instant::from_nanos(100_000_000), "the first round takes its share alone");
        let later = sent.iter().filter(second).count() as u64;
        assert!((2 * symbols..=3 * symbols).contains(&later), "{later} in 3 s, of {symbols}");
    }
}
