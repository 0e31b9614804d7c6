//! Sender side: answers to round-trip questions, at a limited rate.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::rtt::Message;

use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::time::{Duration, Instant};

/// Maximum number of queued answers; further questions stay unanswered.
const WAITING_MAX: usize = 32;
/// Interval at which the pause adapts to the rate of questions.
const PERIOD: Duration = Duration::from_secs(10);
/// Minimum and maximum of the pause announced in answers, in seconds.
const PAUSE_MIN: u16 = 15;
const PAUSE_MAX: u16 = 3_600;

/// Answers to round-trip questions, at a limited rate.
///
/// No state about receivers is kept. Memory: 32 queued answers.
#[derive(Clone, Debug)]
pub struct Answers {
    per_second: u32,
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
            waiting: VecDeque::new(),
            credit: f64::from(per_second),
            credited: Instant::ZERO,
            pause_s: PAUSE_MIN,
            asked: 0,
            period_began: Instant::ZERO,
        }
    }

    /// Processes a datagram sent to the sender; anything but a question is ignored.
    pub fn asked(&mut self, now: Instant, datagram: &Datagram<'_>) {
        if datagram.channel.is_some() || self.per_second == 0 {
            return;
        }
        let Ok(Message::Question { nonce }) = Message::parse(datagram.payload) else { return };
        self.turn(now);
        self.asked = self.asked.saturating_add(1);
        let earned = now.since(self.credited).as_secs_f64() * f64::from(self.per_second);
        self.credit = (self.credit + earned).min(f64::from(self.per_second));
        self.credited = now;
        if self.credit >= 1.0 && self.waiting.len() < WAITING_MAX {
            self.credit -= 1.0;
            self.waiting.push_back((datagram.source, nonce));
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
}
