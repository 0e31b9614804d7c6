use core::net::SocketAddr;
use core::num::NonZeroU32;

use headwater_wire::bcfs::{Label, Level, mark_any};
use headwater_wire::{PayloadId, alc, fdt};

use super::{BODY_BYTES_MAX, NAME, WINDOW_BITS, Wanted};
use crate::bcfs::Client;
use crate::control::{
    Arrival, BlockName, DescribedControl, EnvelopeContent, Membership, ReceiverControl, ReceiverEnvelope,
    Reception, Requester, Status, Wishes,
};
use crate::machine::{ChannelId, Datagram, Transmit};
use crate::rainbow::WindowConfig;
use crate::rainbow::window::{Ask, RainbowWindow};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Interval after which the FDT is requested again, if incomplete although all symbols have been sent.
const AGAIN: Duration = Duration::from_secs(1);
/// Least and most time between two requests for a word.
const HELLO_LEAST: Duration = Duration::from_millis(50);
const HELLO_MOST: Duration = Duration::from_secs(3);
/// Share of the time waited so far after which the next request for a word follows. A hop under attack
/// answers some of the requests, so that the first requests have to come fast.
const HELLO_SHARE: u64 = 20;

/// Assumed bytes of a packet before the first has come.
const PACKET_BYTES_FIRST: usize = 1_200;

/// Requests that bring a place in the cycle: some are lost, or answered by a relay.
const PLACES: u8 = 32;

/// Configuration of a [`RainbowCarrierReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct RainbowCarrierReceiverConfig {
    source: SocketAddr,
    upstream: SocketAddr,
    window: WindowConfig,
    channel: Option<ChannelId>,
    has_words: bool,
    max_rate: Option<Rate>,
}

impl RainbowCarrierReceiverConfig {
    /// Creates the configuration of a receiver of a source's session. Requests go to `upstream`: a relay, or
    /// the source itself.
    pub const fn new(source: SocketAddr, upstream: SocketAddr) -> Self {
        Self {
            source,
            upstream,
            window: WindowConfig::new(),
            channel: None,
            has_words: false,
            max_rate: None,
        }
    }

    /// Returns the word of the next hop's challenges in each request, as relays and sources with challenges
    /// demand. Default: no word, as in the paper.
    #[must_use]
    pub const fn with_words(mut self) -> Self {
        self.has_words = true;
        self
    }

    /// Sets the window. Default: the paper's.
    #[must_use]
    pub const fn with_window(mut self, window: WindowConfig) -> Self {
        self.window = window;
        self
    }

    /// Sets the maximum rate of requested packets, by the mean length. Default: what the window permits.
    #[must_use]
    pub const fn with_max_rate(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// Sets a channel on which replies may arrive as well. Default: unicast only.
    #[must_use]
    pub const fn with_channel(mut self, channel: Option<ChannelId>) -> Self {
        self.channel = channel;
        self
    }
}

/// Requests packets as the window permits, from start to stop; the FDT comes first.
///
/// Only packets of the session answer a request. Memory: the window's, and 8 bytes for each possible label.
#[derive(Debug)]
pub struct RainbowCarrierReceiver {
    config: RainbowCarrierReceiverConfig,
    client: Client,
    window: RainbowWindow,
    is_held: bool,
    /// Request for the first word; the window starts with the word.
    hello: Option<Hello>,
    /// Whether the last packet closed the session.
    is_dismissed: bool,
    wishes: Wishes,
    description: Description,
    /// Reply being processed, until known to belong to the session.
    reply: Option<Reply>,
    /// Last token of the source, returned in requests.
    word: Option<[u8; 4]>,
    /// Place in the cycle of the content, and the number of requests that bring the place.
    place: Option<(NonZeroU32, u8)>,
    /// Block of which the next request for content asks for a symbol.
    block: Option<BlockName>,
    /// Reception counters; the losses are those of earlier windows.
    reception: Reception,
    /// Mean bytes of a packet, for the maximum rate.
    packet_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Hello {
    since: Instant,
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Reply {
    label: Label,
    level: Level,
    follows_loss: bool,
    /// Whether the reply answers a request for an FDT symbol beyond the last.
    is_past_description: bool,
}

/// Requests for the symbols of the FDT.
#[derive(Debug)]
struct Description {
    is_whole: bool,
    /// Number of the next symbol.
    next: u32,
    /// Time from which all existing symbols are known to be requested.
    exhausted: Option<Instant>,
    /// FDT symbol last requested, by label of the window, less 1; `None` for content.
    asked: Box<[Option<u32>]>,
}

impl RainbowCarrierReceiver {
    /// Creates a receiver without requests.
    pub fn new(config: RainbowCarrierReceiverConfig) -> Self {
        let mut client = Client::new(config.source, config.upstream);
        client.bind(Label(0), 0).expect("the first binding of a client");
        if config.has_words {
            client = client.with_words();
        }
        let asked = vec![None; config.window.labels_max.into()].into();
        Self {
            config,
            client,
            window: RainbowWindow::new(config.window),
            packet_bytes: PACKET_BYTES_FIRST,
            is_held: false,
            hello: None,
            is_dismissed: false,
            wishes: Wishes::default(),
            description: Description { is_whole: false, next: 0, exhausted: None, asked },
            reply: None,
            word: None,
            place: None,
            block: None,
            reception: Reception::default(),
        }
    }

    /// Returns the window.
    pub const fn window(&self) -> &RainbowWindow {
        &self.window
    }

    fn lost(&self) -> u64 {
        let counters = self.window.counters();
        self.reception.lost + counters.overtaken + counters.late
    }

    /// Starts requests with a new window, as soon as the next hop's word is known.
    fn begin(&mut self, now: Instant) {
        self.is_dismissed = false;
        self.reception.lost = self.lost();
        self.window = RainbowWindow::new(self.config.window);
        self.space_requests();
        if self.client.lacks_word() {
            self.hello = Some(Hello { since: now, due: now });
        } else {
            self.window.start(now);
        }
    }

    /// Spaces requests by the maximum rate.
    fn space_requests(&mut self) {
        if let Some(rate) = self.config.max_rate {
            self.window.set_spacing(rate.time_of(self.packet_bytes as u64));
        }
    }

    /// Starts the window, if only a word was missing.
    fn end_hello(&mut self, now: Instant) {
        if self.hello.take().is_some() {
            self.window.start(now);
        }
    }

    /// Returns a request for a word, if due: a null of level 0, which asks for no reply.
    fn poll_hello(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let hello = self.hello.as_mut().filter(|hello| hello.due <= now)?;
        let share = Duration::from_nanos(now.since(hello.since).as_nanos() / HELLO_SHARE);
        hello.due = now + share.clamp(HELLO_LEAST, HELLO_MOST);
        Some(self.client.request(Label(1), Level::ZERO, None, buffer))
    }

    /// Writes the source's token into a body of zeros. Requests for content also name a block, the first ones
    /// a place in a cycle. Returns the number of bytes.
    fn write_body(&mut self, wanted: Wanted, body: &mut [u8; BODY_BYTES_MAX]) -> usize {
        let Some(word) = self.word else { return 0 };
        body[..4].copy_from_slice(&word);
        let mut bytes = 4;
        if matches!(wanted, Wanted::Description(_)) {
            return bytes;
        }
        if let Some((place, left)) = self.place.as_mut().filter(|(_, left)| *left > 0) {
            *left -= 1;
            body[4..8].copy_from_slice(&place.get().to_be_bytes());
            bytes = 8;
        }
        if let Some(BlockName { toi, sbn, esi }) = self.block {
            body[8..12].copy_from_slice(&toi.get().to_be_bytes());
            body[12..16].copy_from_slice(&sbn.to_be_bytes());
            body[16..].copy_from_slice(&esi.map_or(0, |esi| esi + 1).to_be_bytes());
            bytes = BODY_BYTES_MAX;
        }
        bytes
    }

    fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        if let Some(channel) = self.config.channel {
            self.wishes.push(match is_held {
                true => Membership::Join(channel),
                false => Membership::Leave(channel),
            });
        }
    }
}

/// Whether a packet replaces an FDT symbol that does not exist. The replacement is content or, if there is no
/// content, the first symbol.
fn stands_for_none(header: &alc::Repr, number: u32) -> bool {
    let is_first = header.payload_id == Some(PayloadId { sbn: 0, esi: 0 });
    header.toi.is_some_and(|toi| toi != 0 || (is_first && number > 0))
}

impl Description {
    /// Whether this symbol is requested, and the FDT is incomplete.
    fn asks_for(&self, number: u32) -> bool {
        !self.is_whole && self.asked.contains(&Some(number))
    }

    /// Returns the symbol or content that a label of the window requests now.
    fn wanted(&mut self, now: Instant, ask: Ask) -> Wanted {
        let asked = &mut self.asked[usize::from(ask.label) - 1];
        if self.is_whole {
            *asked = None;
        } else if asked.is_none() || ask.level == 1 {
            // Content that arrives before the FDT has to wait.
            if self.exhausted.is_some_and(|since| since + AGAIN <= now) {
                (self.next, self.exhausted) = (0, None);
            }
            *asked = self.exhausted.is_none().then_some(self.next);
            self.next += u32::from(asked.is_some());
        }
        asked.map_or(Wanted::Content, Wanted::Description)
    }

    /// Returns the label of the window whose request a reply answers.
    fn window_label(&self, label: Label) -> Option<u16> {
        let place = match Wanted::of(label) {
            Wanted::Content | Wanted::Block(_) => {
                let label = label.0 % (1 << WINDOW_BITS);
                let place = usize::try_from(label.checked_sub(1)?).ok()?;
                self.asked.get(place).is_some_and(Option::is_none).then_some(place)
            }
            Wanted::Description(number) => self.asked.iter().position(|asked| *asked == Some(number)),
        };
        u16::try_from(place? + 1).ok()
    }
}

impl ReceiverControl for RainbowCarrierReceiver {
    fn start(&mut self, now: Instant) {
        self.hold(true);
        self.begin(now);
    }

    fn stop(&mut self, _now: Instant) {
        if self.is_held {
            self.hold(false);
            self.hello = None;
            self.window.stop();
        }
    }

    fn envelope(&mut self) -> Option<&mut dyn ReceiverEnvelope> {
        Some(self)
    }

    fn requester(&mut self) -> Option<&mut dyn Requester> {
        Some(self)
    }

    fn described(&mut self) -> Option<&mut dyn DescribedControl> {
        Some(self)
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        let Some(reply) = self.reply.take() else { return };
        // A source without challenges answers at once.
        self.end_hello(now);
        self.reception.count(arrival.ecn);
        if self.is_dismissed && self.is_held {
            self.begin(now);
        }
        self.packet_bytes = (7 * self.packet_bytes + arrival.bytes) / 8;
        self.space_requests();
        self.word = arrival.cci.as_bytes().try_into().ok();
        if reply.is_past_description {
            self.description.exhausted.get_or_insert(now);
        }
        if self.is_held
            && let Some(label) = self.description.window_label(reply.label)
        {
            if reply.follows_loss {
                self.window.share_loss(now, label);
            }
            self.window.reply(now, label, reply.level.0);
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if let Some(transmit) = self.poll_hello(now, buffer) {
            return Some(transmit);
        }
        if let Some(transmit) = self.client.poll_refused(buffer) {
            return Some(transmit);
        }
        let ask = self.window.poll_ask(now)?;
        let wanted = match (self.description.wanted(now, ask), self.block) {
            (Wanted::Content, Some(block)) => Wanted::block(block),
            (wanted, _) => wanted,
        };
        let mut body = [0; BODY_BYTES_MAX];
        let bytes = self.write_body(wanted, &mut body);
        let (label, level) = (wanted.label(ask.label), Level(ask.level));
        let request = self.client.request(label, level, Some(&body[..bytes]), buffer);
        if wanted == Wanted::Content {
            mark_any(buffer);
        }
        Some(request)
    }

    fn reception(&self) -> Reception {
        Reception { lost: self.lost(), ..self.reception }
    }

    fn status(&mut self, _now: Instant) -> Status {
        Status { name: NAME, window: Some(self.window.size()), rtt: self.window.srtt(), ..Status::default() }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let hello = self.hello.map(|hello| hello.due);
        hello.into_iter().chain(self.window.poll_timeout()).min().filter(|_| self.is_held)
    }

    fn timeout(&mut self, now: Instant) {
        if self.is_held {
            self.window.timeout(now);
        }
    }
}

impl ReceiverEnvelope for RainbowCarrierReceiver {
    fn open<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> EnvelopeContent<'a> {
        self.reply = None;
        if self.client.take_challenge(datagram) {
            if !self.client.lacks_word() {
                self.end_hello(now);
            }
            return EnvelopeContent::Signal;
        }
        let Some(reply) = self.client.receive(datagram) else { return EnvelopeContent::Malformed };
        let is_past_description = match Wanted::of(reply.label) {
            // Another receiver on this network may have requested a symbol beyond the last.
            Wanted::Description(number) if self.description.asks_for(number) => {
                alc::parse(reply.body).is_ok_and(|(header, _)| stands_for_none(&header, number))
            }
            _ => false,
        };
        self.reply = Some(Reply {
            label: reply.label,
            level: reply.level,
            follows_loss: reply.follows_loss,
            is_past_description,
        });
        EnvelopeContent::Packet { source: self.client.source(), packet: reply.body }
    }
}

impl Requester for RainbowCarrierReceiver {
    fn on_close(&mut self, _now: Instant) {
        // Each further request would be answered by another close flag. A later packet without the flag
        // reopens the session.
        self.is_dismissed = true;
        self.hello = None;
        self.window.stop();
    }

    fn continue_at(&mut self, place: NonZeroU32) {
        self.place = Some((place, PLACES));
    }

    fn name_block(&mut self, block: Option<BlockName>) {
        self.block = block;
    }
}

impl DescribedControl for RainbowCarrierReceiver {
    fn on_description(
        &mut self,
        _now: Instant,
        control: Option<&fdt::ControlAttributes>,
    ) -> Result<(), String> {
        let name = control.map_or("fixed", fdt::ControlAttributes::name);
        if name != NAME {
            return Err(format!(
                "the source sends a session of congestion control '{name}', which nobody can ask for"
            ));
        }
        self.description.is_whole = true;
        Ok(())
    }
}
