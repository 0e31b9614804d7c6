//! Schedule of the FDT: the time of each FDT packet, and the choice of its symbol.

use core::ops::Range;

use headwater_wire::extensions::FDT_INSTANCE_ID_MAX;
use headwater_wire::fdt::{File, Instance, Withdrawal};

use super::DeliverySenderConfig;
use crate::delivery::carousel::bisecting_offsets;
use crate::delivery::fdt::{FdtCarousel, FdtSymbol, FdtTooLarge, check_room};
use crate::delivery::object::{Digest, short};
use crate::delivery::repair::{describe_times, entity_tag};
use crate::time::{Duration, Instant};

/// Minimum time between two rounds of the FDT.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two prefaces. On a slow base, every second FDT packet is a preface.
const PREFACE_INTERVAL: Duration = Duration::from_millis(500);
/// Minimum time between two instances that announce parts of a stream: the content of a part waits for its
/// announcement.
const PARTS_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum number of content packets between two FDT packets of a channel after the first round: 5 %.
const CREDIT_PACKETS: u32 = 20;
/// Content packets per FDT packet on a slow base channel, where a round would otherwise take longer than
/// [`SLOW_ROUND`]: every fourth packet is an FDT packet, but at most four a second. A receiver that joins at
/// 10 packets/s gets an FDT of up to five symbols within 2 s.
const SLOW_CREDIT_PACKETS: u32 = 3;
const SLOW_GAP: Duration = Duration::from_millis(250);
const SLOW_ROUND: Duration = Duration::from_secs(2);
/// Number of symbols above which the FDT is also sent on the levels above the base: the base of a session of
/// many files may be too slow. Each level sends a first round, then at most a round in each [`INTERVAL`]: a
/// fixed share of the packets alone would take 5 % of a fast session for ever.
const BASE_SYMBOLS_MAX: u64 = 8;
/// Rounds of the current instance that the base sends before a withdrawal is announced, so that receivers
/// have received that instance whole. The delay is at most [`HOLD_MAX`].
const HOLD_ROUNDS: u64 = 2;
const HOLD_MAX: Duration = Duration::from_secs(30);
/// Rounds of the common cycle of all levels after which the first rounds end: receivers of most levels have
/// the FDT by then, and content gets its share.
const ROUNDS_OF_ALL: u64 = 3;
/// Lifetime of an FDT instance; a new instance replaces an instance after half of the lifetime.
const LIFETIME: Duration = Duration::from_secs(3_600);

/// Excess of the headers of an FDT packet (EXT_FDT, EXT_FTI, EXT_CENC) over the headers of a content packet,
/// in bytes.
const FDT_HEADER_BYTES: u16 = 24;
/// Minimum symbol size of the FDT, for content with tiny symbols.
const FDT_SYMBOL_BYTES_MIN: u16 = 64;

/// Kind of a level's next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The next packet carries content.
    No,
    /// The next packet carries the FDT if the content may be omitted.
    Soon,
    /// The next packet carries the FDT.
    Now,
}

/// The FDT of a session and its schedule.
///
/// A single instance holds everything known and is sent cyclically. An instance of several symbols has a
/// preface: an instance of one symbol with the control and as many entries as fit, so that receivers can
/// choose levels before the rest arrives. If entries change, a new instance replaces the old instance.
#[derive(Debug)]
pub(crate) struct Description {
    instance: Instance,
    /// Number of objects before the first entry: released parts of a stream.
    released: usize,
    /// Number of objects up to the last entry of the carousel's instance.
    announced: usize,
    /// Whether parts of a stream came or went since the carousel's instance.
    has_parts_news: bool,
    carousel: FdtCarousel,
    preface: Option<Preface>,
    /// Number of the most recent instance.
    instance_id: u32,
    is_alone: bool,
    symbol_size: u16,
    /// Creation time of the carousel.
    made: Instant,
    /// Whether a change should be announced soon.
    is_stale: bool,
    /// Whether the change is that the description is now complete.
    has_completed: bool,
    /// Minimum lifetime of the instance while files are withdrawn.
    hold: Duration,
    /// Block digests in `instance`, and block digests in the carousel.
    digests: u64,
    digests_sent: u64,
    next_round: Instant,
    renew: Instant,
    rounds: u64,
    /// Rounds of the current instance.
    rounds_of_instance: u64,
    round_began: Option<Instant>,
    last_sent: Instant,
    /// Epoch of the base's last packet, for controls with epochs.
    epoch: Option<u64>,
    levels: Vec<Turn>,
    /// Symbols sent in the common cycle of all levels above the base.
    next_of_all: u64,
}

/// Beginning of an FDT of several symbols.
#[derive(Debug)]
struct Preface {
    carousel: FdtCarousel,
    /// Earliest time of the next transmission by the base.
    next: Instant,
    /// Whether a symbol of the instance comes first.
    yields: bool,
}

/// State of the FDT on a level.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The next symbol.
    next: u64,
    /// Symbols left of the first round of the level's own cycle.
    left_of_first: u64,
    /// Content packets since the last FDT packet, up to twice [`CREDIT_PACKETS`].
    credit: u32,
    /// Time of the last FDT packet.
    last_sent: Instant,
    /// Whether the last symbol belonged to the common cycle.
    is_of_all: bool,
}

impl Turn {
    /// Returns the next symbol of a level. Above the base, every second symbol belongs to the common cycle of
    /// all levels, so that receivers of most levels get all symbols after the fewest packets. The level's own
    /// cycle brings each symbol to receivers of any set of levels.
    fn next_symbol(&mut self, level: u16, symbols: u64, next_of_all: &mut u64) -> u64 {
        self.is_of_all = level > 0 && !self.is_of_all;
        let next = if self.is_of_all { next_of_all } else { &mut self.next };
        let number = *next % symbols;
        *next += 1;
        self.left_of_first = self.left_of_first.saturating_sub(u64::from(!self.is_of_all));
        number
    }
}

impl Description {
    /// Creates the schedule for a session whose content packets carry `content_bytes`. No FDT packet is
    /// longer than a content packet, so that a path for content also carries the FDT. `instance_id` is the
    /// number of the first instance. Receivers may still know the instances of an earlier session, and
    /// numbers must not repeat, so the first number follows the time of day. `digests_missing` is the number
    /// of block digests to be added later.
    ///
    /// # Errors
    /// When the description is too long, or will be.
    pub(crate) fn new(
        instance: Instance,
        instance_id: u32,
        content_bytes: u16,
        levels: u16,
        digests_missing: u64,
    ) -> Result<Self, FdtTooLarge> {
        let symbol_size = content_bytes.saturating_sub(FDT_HEADER_BYTES).max(FDT_SYMBOL_BYTES_MIN);
        let carousel = FdtCarousel::new(&instance, instance_id, symbol_size)?;
        check_room(&instance, digests_missing)?;
        let digests = instance.files.iter().map(|file| file.headwater.block_digests.len() as u64).sum();
        let mut description = Self {
            // No content shares the channel.
            is_alone: instance.files.iter().all(|file| file.transfer_length == Some(0)),
            levels: turns(&carousel, levels),
            next_of_all: 0,
            carousel,
            released: 0,
            announced: instance.files.len(),
            has_parts_news: false,
            preface: None,
            instance,
            instance_id,
            symbol_size,
            made: Instant::ZERO,
            is_stale: false,
            has_completed: false,
            hold: INTERVAL,
            digests,
            digests_sent: digests,
            next_round: Instant::ZERO,
            renew: Instant::ZERO + Duration::from_nanos(LIFETIME.as_nanos() / 2),
            rounds: 0,
            rounds_of_instance: 0,
            round_began: None,
            last_sent: Instant::ZERO,
            epoch: None,
        };
        description.preface = description.make_preface(Instant::ZERO);
        Ok(description)
    }

    /// Number of the newest instance, and whether everything is known.
    pub(crate) fn revision(&self) -> (u32, bool) {
        (self.instance_id, self.instance.complete)
    }

    /// Returns everything known in XML.
    pub(crate) fn to_xml(&self) -> String {
        self.instance.to_xml()
    }

    /// Number of symbols in a round.
    pub(crate) fn symbols(&self) -> u64 {
        self.carousel.symbols()
    }

    /// Number of rounds sent on the base.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns the earliest time of the base's next round.
    pub(crate) fn next_round(&self) -> Instant {
        self.next_round
    }

    /// Adds the digests of an object's next blocks.
    pub(crate) fn add_digests(&mut self, object: usize, digests: &[Digest]) {
        self.digests += digests.len() as u64;
        let entry = object - self.released;
        self.instance.files[entry].headwater.block_digests.extend(digests.iter().map(short));
    }

    /// Sets the digest of the file in `objects`, once the digests of all blocks are known, and the entity tag
    /// of the digest if `has_etags`.
    pub(crate) fn set_digest(&mut self, objects: Range<usize>, digest: Digest, has_etags: bool) {
        for file in &mut self.instance.files[entries(objects, self.released)] {
            file.etag = has_etags.then(|| entity_tag(&digest));
            (file.headwater.digest, file.headwater.digests_follow) = (Some(digest), false);
        }
    }

    /// Marks the file in `objects` as withdrawn.
    pub(crate) fn withdraw(&mut self, objects: Range<usize>, why: Withdrawal) {
        for file in &mut self.instance.files[entries(objects, self.released)] {
            (file.headwater.withdrawn, file.headwater.digests_follow) = (Some(why), false);
        }
        self.is_stale = true;
        self.judge_content();
    }

    /// Names receivers that serve the files, in place of those named before. The times apply to a session
    /// that names no other servers. Instances with other peers follow each other as those of withdrawn files
    /// do.
    pub(crate) fn name_peers(&mut self, urls: Vec<String>, offset: Duration, random: Duration) {
        if self.instance.peer_urls != urls {
            self.instance.peer_urls = urls;
            if self.instance.base_urls.is_empty() {
                describe_times(&mut self.instance, offset, random);
            }
            self.is_stale = true;
        }
    }

    /// Adds entries of parts of a stream.
    ///
    /// # Errors
    /// When the description is too long.
    pub(crate) fn add_parts(&mut self, entries: Vec<File>) -> Result<(), FdtTooLarge> {
        let digests = entries.iter().map(|file| file.headwater.block_digests.len() as u64);
        self.digests += digests.sum::<u64>();
        self.instance.files.extend(entries);
        self.has_parts_news = true;
        self.judge_content();
        check_room(&self.instance, 0)
    }

    /// Returns when parts that came or went are announced.
    pub(crate) fn next_parts(&self) -> Option<Instant> {
        self.has_parts_news.then(|| self.made + PARTS_INTERVAL)
    }

    /// Removes the entries of the oldest parts of a stream, up to object `end`.
    pub(crate) fn release(&mut self, end: usize) {
        self.instance.files.drain(..end - self.released);
        self.released = end;
        self.has_parts_news = true;
        self.judge_content();
    }

    /// Number of objects that the instance being sent describes, or that were released.
    pub(crate) fn announced(&self) -> usize {
        self.announced
    }

    /// Without content, FDT packets do not wait for content packets.
    fn judge_content(&mut self) {
        let has_content = |file: &File| file.transfer_length != Some(0) && file.headwater.withdrawn.is_none();
        self.is_alone = !self.instance.files.iter().any(has_content);
    }

    /// Whether the carousel's instance holds everything known.
    pub(crate) fn is_told(&self) -> bool {
        !self.is_stale && !self.has_parts_news && self.digests == self.digests_sent
    }

    /// Makes a new instance if anything is unannounced, regardless of the time.
    pub(crate) fn bring_up_to_date(&mut self, now: Instant, config: DeliverySenderConfig) {
        if !self.is_told() {
            self.remake(now, config);
        }
    }

    /// Sets whether the description is complete.
    pub(crate) fn set_complete(&mut self, complete: bool) {
        self.has_completed |= complete && !self.instance.complete;
        self.is_stale |= self.has_completed;
        self.instance.complete = complete;
    }

    /// Makes a new instance if entries have changed, or after half of the old instance's lifetime; at most
    /// once a second. Digests alone wait until their number has doubled, so that all instances together carry
    /// at most twice the digests. While files are withdrawn one after another, the minimum lifetime of slow
    /// instances doubles each time: receivers must receive an instance whole.
    pub(crate) fn refresh(&mut self, now: Instant, config: DeliverySenderConfig) {
        let has_grown = self.digests > self.digests_sent && self.digests >= 2 * self.digests_sent;
        let is_heard = self.is_stale && self.rounds_of_instance >= HOLD_ROUNDS;
        let may_be_soon = has_grown || self.has_completed || is_heard;
        let is_due = (self.has_parts_news && now >= self.made + PARTS_INTERVAL)
            || (may_be_soon && now >= self.made + INTERVAL)
            || (self.is_stale && now >= self.made + self.hold);
        if is_due || (now >= self.renew && self.round_began.is_none()) {
            self.remake(now, config);
        }
    }

    /// Whether an instance must be sent without a request: an instance has followed the first, and the base
    /// has sent [`CREDIT_PACKETS`] content packets since the last FDT packet, or the session has no content.
    /// Receivers that request packets do not know of a new instance.
    pub(crate) fn has_news(&self) -> bool {
        self.made > Instant::ZERO && (self.is_alone || self.levels[0].credit >= CREDIT_PACKETS)
    }

    /// Returns the kind of a level's next packet. The caller asks once for each packet, with the control's
    /// `epoch` of the packet.
    ///
    /// Receivers join at the base's first packet of an epoch. If that packet describes the session, a
    /// receiver that joins can start immediately. Above the base, an FDT packet may wait for content that may
    /// be omitted, for at most as long again.
    pub(crate) fn due(&mut self, now: Instant, level: u16, epoch: Option<u64>) -> Due {
        let turn = self.levels[usize::from(level)];
        let is_first_round =
            turn.left_of_first > 0 && (level == 0 || self.next_of_all < ROUNDS_OF_ALL * self.symbols());
        let share = if is_first_round { SLOW_CREDIT_PACKETS } else { CREDIT_PACKETS };
        if level > 0 {
            let gap = match is_first_round {
                true => Duration::ZERO,
                false => Duration::from_nanos(INTERVAL.as_nanos() / self.symbols()),
            };
            return match turn.credit {
                _ if !self.is_long() || now < turn.last_sent + gap => Due::No,
                credit if credit >= 2 * share => Due::Now,
                credit if credit >= share => Due::Soon,
                _ => Due::No,
            };
        }
        if self.is_due_on_base(now, epoch, turn, share) { Due::Now } else { Due::No }
    }

    fn is_due_on_base(&mut self, now: Instant, epoch: Option<u64>, turn: Turn, share: u32) -> bool {
        let opens = core::mem::replace(&mut self.epoch, epoch) != epoch;
        if self.is_alone {
            return self.next_round <= now;
        }
        let is_first_round = self.rounds == 0;
        match &self.preface {
            // The first round is sent whole and before any content; later rounds take a share of the packets.
            None if is_first_round => return self.next_round <= now,
            Some(preface) if preface.next == Instant::ZERO => return true,
            Some(_) if is_first_round && turn.credit >= share => return true,
            _ => {}
        }
        let gap = Duration::from_nanos(SLOW_ROUND.as_nanos() / self.symbols()).max(SLOW_GAP);
        (turn.credit >= CREDIT_PACKETS && self.next_round <= now)
            || (turn.credit >= SLOW_CREDIT_PACKETS && (opens || self.last_sent + gap <= now))
    }

    /// Records a content packet on a level.
    pub(crate) fn content_sent(&mut self, level: u16) {
        let turn = &mut self.levels[usize::from(level)];
        turn.credit = (turn.credit + 1).min(2 * CREDIT_PACKETS);
    }

    /// Returns the symbol of a level's FDT packet, and records the packet as sent.
    pub(crate) fn send(&mut self, now: Instant, level: u16) -> FdtSymbol<'_> {
        let turn = &mut self.levels[usize::from(level)];
        (turn.credit, turn.last_sent) = (0, now);
        if level == 0 {
            self.last_sent = now;
            if let Some(preface) = &mut self.preface {
                preface.yields = !preface.yields && preface.next <= now;
                if preface.yields {
                    preface.next = now + PREFACE_INTERVAL;
                    return preface.carousel.symbol(0);
                }
            }
        }
        let symbols = self.carousel.symbols();
        let number = turn.next_symbol(level, symbols, &mut self.next_of_all);
        if level == 0 {
            let began = *self.round_began.get_or_insert(now);
            if number + 1 == symbols {
                self.rounds += 1;
                self.rounds_of_instance += 1;
                self.round_began = None;
                self.next_round = began + INTERVAL;
            }
        }
        self.carousel.symbol(number)
    }

    /// Returns the symbol with a number, counted cyclically.
    pub(crate) fn symbol(&self, number: u64) -> FdtSymbol<'_> {
        self.carousel.symbol(number)
    }

    /// Whether the FDT is also sent on the levels above the base.
    fn is_long(&self) -> bool {
        self.symbols() > BASE_SYMBOLS_MAX
    }

    /// Replaces the current instance by a new instance.
    fn remake(&mut self, now: Instant, config: DeliverySenderConfig) {
        let lived = now.since(self.made);
        self.hold = if lived < self.hold + self.hold { self.hold + self.hold } else { INTERVAL };
        self.hold = self.hold.min(HOLD_MAX);
        (self.made, self.is_stale, self.digests_sent) = (now, false, self.digests);
        self.rounds_of_instance = 0;
        self.has_completed = false;
        self.renew = now + Duration::from_nanos(LIFETIME.as_nanos() / 2);
        self.instance.expires = expires(config, now);
        let id = self.next_id();
        // The additions fit: `check_room` accounted for them when the first instance was made.
        let Ok(carousel) = FdtCarousel::new(&self.instance, id, self.symbol_size) else { return };
        (self.announced, self.has_parts_news) = (self.released + self.instance.files.len(), false);
        self.next_of_all = 0;
        self.levels = turns(&carousel, u16::try_from(self.levels.len()).unwrap_or(u16::MAX));
        self.carousel = carousel;
        (self.round_began, self.next_round) = (None, now);
        let next = self.preface.take().map_or(now, |preface| preface.next);
        self.preface = self.make_preface(next);
    }

    fn next_id(&mut self) -> u32 {
        self.instance_id = (self.instance_id + 1) & FDT_INSTANCE_ID_MAX;
        self.instance_id
    }

    /// Creates the preface of an FDT of several symbols in a session with several levels, for
    /// transmission from `next` on. The preface has the first entries, with block digests if there is
    /// room. An FDT instance must have an entry (RFC 6726, section 3.4.2); if no entry fits, there is no
    /// preface.
    fn make_preface(&mut self, next: Instant) -> Option<Preface> {
        if self.symbols() < 2 || self.levels.len() < 2 || self.instance.control.is_none() {
            return None;
        }
        let id = self.next_id();
        let (expires, control) = (self.instance.expires, &self.instance.control);
        let fits = |files: &[File]| {
            let (control, files) = (control.clone(), files.to_vec());
            let instance = Instance { expires, control, files, ..Instance::default() };
            FdtCarousel::of_one_symbol(&instance, id, self.symbol_size)
        };
        let mut files = Vec::new();
        let mut made = None;
        for file in &self.instance.files {
            files.push(file.clone());
            let whole = fits(&files);
            let carousel = whole.or_else(|| {
                let last = &mut files.last_mut()?.headwater;
                last.digests_follow |= last.withdrawn.is_none();
                last.block_digests = Vec::new();
                fits(&files)
            });
            match carousel {
                Some(carousel) => made = Some(carousel),
                None => break,
            }
        }
        Some(Preface { carousel: made?, next, yields: false })
    }
}

/// Returns the entries of objects after `released` objects without an entry.
fn entries(objects: Range<usize>, released: usize) -> Range<usize> {
    objects.start - released..objects.end - released
}

/// Creates the states of all levels. The levels begin at distant symbols, so that a receiver of several
/// levels gets all symbols sooner.
fn turns(carousel: &FdtCarousel, levels: u16) -> Vec<Turn> {
    let symbols = carousel.symbols();
    bisecting_offsets(symbols, levels.into())
        .into_iter()
        .map(|next| Turn {
            next,
            left_of_first: symbols,
            credit: 0,
            last_sent: Instant::ZERO,
            is_of_all: false,
        })
        .collect()
}

/// Returns the expiry of an instance sent at `now`, in NTP seconds.
pub(crate) fn expires(config: DeliverySenderConfig, now: Instant) -> u32 {
    let seconds = now.since(Instant::ZERO).as_nanos() / 1_000_000_000 + LIFETIME.as_nanos() / 1_000_000_000;
    // NTP's era wraps in 2036; receivers compare modulo 2^32.
    config.ntp_at_zero.wrapping_add(u32::try_from(seconds & u64::from(u32::MAX)).expect("32 bits are left"))
}

#[cfg(test)]
mod tests {
    use headwater_wire::fdt::{File, Headwater};

    use super::*;
    use crate::Seed;

    /// Issue 23: of several files that changed one after the other, receivers heard up to 30 s later.
    #[test]
    fn files_withdrawn_one_after_the_other_are_told_within_seconds() {
        let files = (1..=12).map(|toi| File { toi, transfer_length: Some(1 << 20), ..File::default() });
        let instance = Instance { complete: true, files: files.collect(), ..Instance::default() };
        let mut description = Description::new(instance, 0, 1_408, 1, 0).unwrap();
        let config = DeliverySenderConfig::new(1);
        let (mut changed, mut waited_max) = (None, Duration::ZERO);
        for packet in 0..4_000_u64 {
            // 100 packets a second, of which a file changes every 3 s.
            let now = Instant::from_nanos(packet * 10_000_000);
            if packet % 300 == 100 && packet < 3_300 {
                let object = usize::try_from(packet / 300).unwrap();
                description.withdraw(object..object + 1, Withdrawal::Changed);
                changed.get_or_insert(now);
            }
            description.refresh(now, config);
            if description.is_told()
                && let Some(since) = changed.take()
            {
                waited_max = waited_max.max(now.since(since));
            }
            match description.due(now, 0, None) {
                Due::No => description.content_sent(0),
                _ => drop(description.send(now, 0)),
            }
        }
        assert!(description.is_told() && changed.is_none());
        assert!(waited_max <= Duration::from_secs(4), "{waited_max:?}");
    }

    /// At 1 Gbit/s a twentieth of the packets would be 4 300 symbols a second of an FDT of some 20.
    #[test]
    fn a_level_above_the_base_sends_a_round_a_second_at_any_rate() {
        let mut stream = Seed(1).stream("digests", 0);
        let block_digests = (0..1_000).map(|_| rand::RngExt::random(&mut stream)).collect();
        let headwater = Headwater { block_digests, ..Headwater::default() };
        let files = vec![File { toi: 1, transfer_length: Some(1 << 30), headwater, ..File::default() }];
        let instance = Instance { complete: true, files, ..Instance::default() };
        let mut description = Description::new(instance, 0, 1_408, 2, 0).unwrap();
        let symbols = description.symbols();
        assert!(symbols > BASE_SYMBOLS_MAX);
        let mut sent = Vec::new();
        for packet in 0..40_000_u64 {
            let now = Instant::from_nanos(packet * 100_000);
            if description.due(now, 1, None) != Due::No {
                description.send(now, 1);
                sent.push(now);
            } else {
                description.content_sent(1);
            }
        }
        let second = |at: &&Instant| **at >= Instant::from_nanos(1_000_000_000);
        // The first round of the level's own cycle, with as many symbols of the common cycle between.
        let first_round = sent[2 * usize::try_from(symbols).unwrap() - 1];
        assert!(first_round < Instant::from_nanos(100_000_000), "the first round takes its share alone");
        let later = sent.iter().filter(second).count() as u64;
        assert!((2 * symbols..=3 * symbols).contains(&later), "{later} in 3 s, of {symbols}");
    }
}
