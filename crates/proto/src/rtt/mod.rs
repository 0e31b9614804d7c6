//! Round-trip time between a receiver and its sender, by unicast questions: `docs/reference/wire/rtt.md`.
//!
//! A receiver that joins a channel also waits for the routers, unlike a competing TCP. On many networks that
//! wait is much longer than the round trip. The receiver therefore asks the sender from time to time, and
//! works without answers if there are none.
//!
//! Both ends are parts of a congestion control: [`Prober`] of a receiving control, [`Answers`] of a sending
//! control. Each end limits its own rate, regardless of the number of peers.

mod reported;

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::rtt::{Demand, Message};
use rand::Rng;

use crate::admission::{AdmissionKey, PrefixLimiter};
use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

pub(crate) use reported::Reported;

/// Maximum number of queued answers; further questions stay unanswered.
const WAITING_MAX: usize = 32;
/// Burst of answers to one network.
const NETWORK_BURST: u32 = 4;
/// Interval at which the pause adapts to the rate of questions.
const PERIOD: Duration = Duration::from_secs(10);
/// Minimum and maximum of the pause announced in answers, in seconds.
const PAUSE_MIN: u16 = 15;
const PAUSE_MAX: u16 = 3_600;

/// Answers to round-trip questions, at a limited rate.
///
/// No state about receivers is kept. Memory: 32 queued answers, and 32 kB of limits by network.
#[derive(Clone, Debug)]
pub struct Answers {
    per_second: u32,
    /// Limits by network; `None` without a key.
    networks: Option<PrefixLimiter>,
    waiting: VecDeque<(SocketAddr, u64)>,
    /// Number of answers permitted now, and the time of the last update.
    credit: f64,
    credited: Instant,
    pause_s: u16,
    /// Questions since the period began.
    asked: u32,
    period_began: Instant,
}

impl Default for Answers {
    fn default() -> Self {
        Self::new(Self::PER_SECOND)
    }
}

impl Answers {
    /// Default rate limit of answers per second: with headers 18 kbit/s.
    pub const PER_SECOND: u32 = 50;

    /// Creates a limit of `per_second` answers a second, with bursts of as many; 0 disables answers.
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second,
            networks: None,
            waiting: VecDeque::new(),
            credit: f64::from(per_second),
            credited: Instant::ZERO,
            pause_s: PAUSE_MIN,
            asked: 0,
            period_began: Instant::ZERO,
        }
    }

    /// Limits the answers to each network to 20 a second, so that questions from one network leave answers
    /// for others. `key` must be secret. Without a call, all networks share one limit.
    pub fn set_key(&mut self, key: AdmissionKey) {
        self.networks = Some(PrefixLimiter::new(key, NETWORK_BURST));
    }

    /// Processes a datagram sent to the sender: answers a question, and returns a report.
    pub fn asked(&mut self, now: Instant, datagram: &Datagram<'_>) -> Option<Demand> {
        if datagram.channel.is_some() {
            return None;
        }
        match Message::parse(datagram.payload) {
            Ok(Message::Question { nonce }) => self.question(now, datagram.source, nonce),
            Ok(Message::Report(demand)) => return Some(demand),
            _ => {}
        }
        None
    }

    fn question(&mut self, now: Instant, source: SocketAddr, nonce: u64) {
        if self.per_second == 0 {
            return;
        }
        self.turn(now);
        self.asked = self.asked.saturating_add(1);
        let earned = now.since(self.credited).as_secs_f64() * f64::from(self.per_second);
        self.credit = (self.credit + earned).min(f64::from(self.per_second));
        self.credited = now;
        let has_room = self.credit >= 1.0 && self.waiting.len() < WAITING_MAX;
        if has_room && self.networks.as_mut().is_none_or(|networks| networks.admits(now, source.ip())) {
            self.credit -= 1.0;
            self.waiting.push_back((source, nonce));
        }
    }

    /// Returns the next answer, written at the start of `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, nonce) = self.waiting.pop_front()?;
        let answer = Message::Answer { nonce, pause_s: self.pause_s }.emit();
        buffer[..answer.len()].copy_from_slice(&answer);
        Some(Transmit { destination: Destination::Unicast(to), bytes: answer.len(), ecn: Ecn::NotCapable })
    }

    /// Adapts the pause after each period: doubles the pause if the questions exceeded half of the permitted
    /// answers, and halves the pause if the questions were below an eighth.
    fn turn(&mut self, now: Instant) {
        let elapsed = now.since(self.period_began);
        if elapsed < PERIOD {
            return;
        }
        let per_second = f64::from(self.asked) / elapsed.as_secs_f64();
        let most = f64::from(self.per_second);
        if per_second > most / 2.0 {
            self.pause_s = self.pause_s.saturating_mul(2).min(PAUSE_MAX);
        } else if per_second < most / 8.0 {
            self.pause_s = (self.pause_s / 2).max(PAUSE_MIN);
        }
        self.asked = 0;
        self.period_began = now;
    }
}

/// Spread of the first question's random time; the range doubles after each unanswered question.
const SPREAD: Duration = Duration::from_secs(4);
/// Maximum time for an answer; later answers are ignored.
const PATIENCE: Duration = Duration::from_secs(3);
/// Number of consecutive unanswered questions after which the receiver stops.
const UNANSWERED_MAX: u32 = 6;
/// Number of samples for the minimum.
const SAMPLES: usize = 8;
/// Minimum of a round-trip time, in seconds.
const FLOOR: f64 = 0.002;
/// Minimum pause after an answer.
const PAUSE_LEAST: Duration = Duration::from_secs(1);

/// Configuration of a [`Prober`].
#[derive(Clone, Copy, Debug)]
pub struct ProberConfig {
    seed: Seed,
}

impl ProberConfig {
    /// Creates a configuration; nonces and times are drawn from `seed`. If other hosts may forge answers, the
    /// seed must come from entropy.
    pub fn new(seed: Seed) -> Self {
        Self { seed }
    }
}

/// Measures the round-trip time to a sender by questions.
///
/// Memory: eight samples.
#[derive(Clone, Debug)]
pub struct Prober {
    stream: Stream,
    /// Destination of questions.
    sender: Option<SocketAddr>,
    next: Option<Instant>,
    /// Last question, while an answer may still arrive.
    pending: Option<(u64, Instant)>,
    unanswered: u32,
    samples: VecDeque<f64>,
}

impl Prober {
    /// Creates a prober that has sent no question.
    pub fn new(config: ProberConfig) -> Self {
        Self {
            stream: config.seed.stream("rtt/prober", 0),
            sender: None,
            next: None,
            pending: None,
            unanswered: 0,
            samples: VecDeque::with_capacity(SAMPLES),
        }
    }

    /// Records a packet of the session from `sender`. A new sender restarts the measurement.
    pub fn heard(&mut self, now: Instant, sender: SocketAddr) {
        if self.sender == Some(sender) {
            return;
        }
        self.sender = Some(sender);
        self.pending = None;
        self.unanswered = 0;
        self.samples.clear();
        self.next = Some(now + self.part(SPREAD, 0.0, 1.0));
    }

    /// Stops the questions until the next packet of the session.
    pub fn stop(&mut self) {
        (self.sender, self.next, self.pending) = (None, None, None);
    }

    /// Returns the minimum round-trip time of the last eight answers, in seconds.
    pub fn rtt(&self) -> Option<f64> {
        self.samples.iter().copied().reduce(f64::min)
    }

    /// Returns the time of the next question.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Returns the question due at `now`, if any, written at the start of `buffer`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.next.filter(|next| *next <= now)?;
        let sender = self.sender?;
        let nonce = self.stream.next_u64();
        self.pending = Some((nonce, now));
        self.unanswered += 1;
        // Assumes no answer; an answer reschedules the next question.
        let window = SPREAD.saturating_mul(1 << self.unanswered.min(UNANSWERED_MAX));
        let wait = self.part(window, 0.0, 1.0).max(PATIENCE);
        self.next = (self.unanswered < UNANSWERED_MAX).then_some(now + wait);
        let question = Message::Question { nonce }.emit();
        buffer[..question.len()].copy_from_slice(&question);
        Some(Transmit {
            destination: Destination::Unicast(sender),
            bytes: question.len(),
            ecn: Ecn::NotCapable,
        })
    }

    /// Processes a datagram; returns whether the datagram is an answer, even to an unknown question.
    /// `queueing` is the recent queueing delay of the session's packets in seconds. The answer most likely
    /// waited as long, so this delay is subtracted.
    pub fn answered(&mut self, now: Instant, datagram: &Datagram<'_>, queueing: f64) -> bool {
        let Ok(Message::Answer { nonce, pause_s }) = Message::parse(datagram.payload) else { return false };
        let Some((asked, at)) = self.pending else { return true };
        let is_timely = now.since(at) <= PATIENCE;
        if nonce != asked || self.sender != Some(datagram.source) || !is_timely {
            return true;
        }
        self.pending = None;
        self.unanswered = 0;
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now.since(at).as_secs_f64() - queueing).max(FLOOR));
        let pause = Duration::from_secs(pause_s.into()).max(PAUSE_LEAST);
        self.next = Some(now + self.part(pause, 0.5, 1.5));
        true
    }

    /// Returns a random part of a time, uniform in `from..to` of the time.
    fn part(&mut self, time: Duration, from: f64, to: f64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are left")]
        let unit = (self.stream.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let seconds = time.as_secs_f64() * (from + (to - from) * unit);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let nanos = (seconds * 1e9) as u64;
        Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(nonce: u64) -> [u8; 16] {
        Message::Question { nonce }.emit()
    }

    fn ask(answers: &mut Answers, now: Instant, payload: &[u8]) -> Option<(Transmit, Vec<u8>)> {
        let source = SocketAddr::from(([192, 0, 2, 1], 4_242));
        answers.asked(now, &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload });
        let mut buffer = [0; 64];
        let transmit = answers.poll_transmit(&mut buffer)?;
        assert_eq!(transmit.destination, Destination::Unicast(source));
        Some((transmit, buffer[..transmit.bytes].to_vec()))
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_answer_repeats_the_nonce_and_is_no_longer_than_its_question() {
        let mut answers = Answers::default();
        let (transmit, answer) = ask(&mut answers, at(5), &question(77)).unwrap();
        assert_eq!(transmit.bytes, question(77).len());
        assert_eq!(Message::parse(&answer), Ok(Message::Answer { nonce: 77, pause_s: PAUSE_MIN }));
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        let mut answers = Answers::default();
        let answer = Message::Answer { nonce: 1, pause_s: 9 }.emit();
        for payload in [&answer[..], &question(1)[..15], &[], &[0x48; 16]] {
            assert_eq!(ask(&mut answers, at(5), payload), None);
        }
        assert_eq!(ask(&mut Answers::new(0), at(5), &question(1)), None, "one that answers nobody");
    }

    #[test]
    fn a_flood_is_answered_at_the_configured_rate_and_told_to_pause() {
        let mut answers = Answers::new(20);
        let mut given = 0;
        let mut pause = 0;
        // 1000 questions a second for a minute.
        for ms in 0..60_000 {
            if let Some((_, answer)) = ask(&mut answers, at(ms), &question(ms)) {
                given += 1;
                let Ok(Message::Answer { pause_s, .. }) = Message::parse(&answer) else {
                    panic!("no answer")
                };
                pause = pause_s;
            }
        }
        assert!((1_200..=1_221).contains(&given), "{given} answers in a minute");
        assert!(pause >= 16 * PAUSE_MIN, "{pause} s");
        // Ten minutes of one question in a second: the pause comes down again.
        for second in 60..660 {
            let (_, answer) = ask(&mut answers, at(second * 1_000), &question(second)).unwrap();
            let Ok(Message::Answer { pause_s, .. }) = Message::parse(&answer) else { panic!("no answer") };
            pause = pause_s;
        }
        assert_eq!(pause, PAUSE_MIN);
    }

    #[test]
    fn a_flood_of_one_network_leaves_answers_for_others() {
        let mut answers = Answers::default();
        answers.set_key([5; 32]);
        let mut served = 0;
        for ms in 0..10_000_u64 {
            let source = SocketAddr::from(([198, 51, 100, u8::try_from(ms % 250).unwrap()], 4_242));
            let payload = question(ms);
            answers
                .asked(at(ms), &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload });
            while answers.poll_transmit(&mut [0; 64]).is_some() {}
            if ms % 100 == 50 {
                served += u32::from(ask(&mut answers, at(ms), &question(ms)).is_some());
            }
        }
        assert_eq!(served, 100, "ten questions a second");
    }

    #[test]
    fn answers_that_are_not_taken_do_not_pile_up() {
        let mut answers = Answers::new(1_000);
        let payload = question(3);
        let source = SocketAddr::from(([192, 0, 2, 1], 4_242));
        for ms in 0..1_000 {
            answers
                .asked(at(ms), &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload });
        }
        assert_eq!(core::iter::from_fn(|| answers.poll_transmit(&mut [0; 64])).count(), WAITING_MAX);
    }

    const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

    fn prober(seed: u64) -> Prober {
        let mut prober = Prober::new(ProberConfig::new(Seed(seed)));
        prober.heard(at(100), SENDER.into());
        prober
    }

    /// When the next question is asked, and its nonce.
    fn ask_next(prober: &mut Prober) -> Option<(Instant, u64)> {
        let now = prober.poll_timeout()?;
        let mut buffer = [0; 64];
        let transmit = prober.poll_transmit(now, &mut buffer).expect("due");
        assert_eq!(transmit.destination, Destination::Unicast(SENDER.into()));
        assert_eq!(prober.poll_transmit(now, &mut buffer), None, "once");
        match Message::parse(&buffer[..transmit.bytes]) {
            Ok(Message::Question { nonce }) => Some((now, nonce)),
            other => panic!("{other:?}"),
        }
    }

    fn answer(prober: &mut Prober, now: Instant, source: SocketAddr, nonce: u64) {
        let payload = Message::Answer { nonce, pause_s: 20 }.emit();
        let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
        assert!(prober.answered(now, &datagram, 0.002));
    }

    #[test]
    fn an_answer_gives_the_round_trip_and_the_pause() {
        let mut prober = prober(1);
        let (asked, nonce) = ask_next(&mut prober).unwrap();
        assert!(asked <= at(4_100), "within the spread");
        let now = asked + Duration::from_millis(44);
        answer(&mut prober, now, SENDER.into(), nonce);
        assert!((prober.rtt().unwrap() - 0.042).abs() < 1e-9);
        let next = prober.poll_timeout().unwrap().since(now);
        assert!((Duration::from_secs(10)..=Duration::from_secs(30)).contains(&next));
    }

    #[test]
    fn what_was_not_asked_for_is_not_believed() {
        let mut prober = prober(2);
        let (asked, nonce) = ask_next(&mut prober).unwrap();
        let now = asked + Duration::from_millis(1);
        answer(&mut prober, now, SENDER.into(), nonce ^ 1);
        answer(&mut prober, now, ([192, 0, 2, 9], 4_242).into(), nonce);
        answer(&mut prober, asked + Duration::from_secs(4), SENDER.into(), nonce);
        assert_eq!(prober.rtt(), None);
        answer(&mut prober, now, SENDER.into(), nonce);
        answer(&mut prober, now + Duration::from_millis(1), SENDER.into(), nonce);
        assert_eq!(prober.samples.len(), 1, "an answer counts once");
    }

    #[test]
    fn a_sender_that_does_not_answer_is_left_in_peace() {
        let mut prober = prober(3);
        let asked: Vec<Instant> = core::iter::from_fn(|| ask_next(&mut prober)).map(|(at, _)| at).collect();
        assert_eq!(asked.len(), 6);
        assert!(asked[5] < at(4_000 * (1 + 2 + 4 + 8 + 16 + 32) + 20_000));
        prober.heard(at(600_000), SENDER.into());
        assert_eq!(ask_next(&mut prober), None, "and it stays so");
    }

    #[test]
    fn ten_thousand_receivers_ask_a_quarter_as_often_a_second() {
        let mut second = vec![0_u32; 400];
        for seed in 0..10_000 {
            let mut prober = prober(seed);
            while let Some((at, _)) = ask_next(&mut prober) {
                second[usize::try_from(at.as_nanos() / 1_000_000_000).unwrap()] += 1;
            }
        }
        assert!(second.iter().all(|questions| *questions < 4_200), "{:?}", &second[..20]);
        assert!(second[20..].iter().all(|questions| *questions < 1_000), "{:?}", &second[20..40]);
        assert!(second[120..].iter().all(|questions| *questions < 250));
    }
}
