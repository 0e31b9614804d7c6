//! Receiver side: round-trip questions from time to time.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::rtt::Message;
use rand::Rng;

use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::rng::{Seed, Stream};
use crate::time::{Duration, Instant};

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
    spread: Duration,
}

impl ProberConfig {
    /// Creates a configuration; nonces and times are drawn from `seed`. If other hosts may forge answers, the
    /// seed must come from entropy.
    pub fn new(seed: Seed) -> Self {
        Self { seed, spread: Duration::from_secs(4) }
    }

    /// Sets the spread: the first question is sent at a random time within the spread, and the range doubles
    /// after each unanswered question. Default: 4 s; longer if tens of thousands of receivers start at once.
    #[must_use]
    pub fn with_spread(mut self, spread: Duration) -> Self {
        self.spread = spread;
        self
    }
}

/// Measures the round-trip time to a sender by questions.
///
/// Memory: eight samples.
#[derive(Clone, Debug)]
pub struct Prober {
    stream: Stream,
    spread: Duration,
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
            spread: config.spread.max(Duration::from_millis(1)),
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
        self.next = Some(now + self.part(self.spread, 0.0, 1.0));
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
        let window = self.spread.saturating_mul(1 << self.unanswered.min(UNANSWERED_MAX));
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

    const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn prober(seed: u64) -> Prober {
        let mut prober = Prober::new(ProberConfig::new(Seed(seed)));
        prober.heard(at(100), SENDER.into());
        prober
    }

    /// When the next question is asked, and its nonce.
    fn ask(prober: &mut Prober) -> Option<(Instant, u64)> {
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
        let (asked, nonce) = ask(&mut prober).unwrap();
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
        let (asked, nonce) = ask(&mut prober).unwrap();
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
        let asked: Vec<Instant> = core::iter::from_fn(|| ask(&mut prober)).map(|(at, _)| at).collect();
        assert_eq!(asked.len(), 6);
        assert!(asked[5] < at(4_000 * (1 + 2 + 4 + 8 + 16 + 32) + 20_000));
        prober.heard(at(600_000), SENDER.into());
        assert_eq!(ask(&mut prober), None, "and it stays so");
    }

    #[test]
    fn ten_thousand_receivers_ask_a_quarter_as_often_a_second() {
        let mut second = vec![0_u32; 400];
        for seed in 0..10_000 {
            let mut prober = prober(seed);
            while let Some((at, _)) = ask(&mut prober) {
                second[usize::try_from(at.as_nanos() / 1_000_000_000).unwrap()] += 1;
            }
        }
        assert!(second.iter().all(|questions| *questions < 4_200), "{:?}", &second[..20]);
        assert!(second[20..].iter().all(|questions| *questions < 1_000), "{:?}", &second[20..40]);
        assert!(second[120..].iter().all(|questions| *questions < 250));
    }
}
