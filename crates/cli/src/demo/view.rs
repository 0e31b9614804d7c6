//! Live view of the demo: a bar for the sender and for each receiver.

use headwater::{ReceiveProgress, ReceiveUpdate, SendStarted, SendUpdate};
use headwater_proto::Size;

use super::cast::{Cast, LATE, LOSSY, LateAt, RECEIVERS};
use crate::receive::parts;
use crate::screen::{Bar, Screen, rate, time};

/// Steps of the sender's bar.
const STEPS: f64 = 10_000.0;

/// Bars, or a few lines without a terminal.
pub struct View<'a> {
    screen: &'a Screen,
    sender: Bar,
    receivers: Vec<Bar>,
    names: [&'static str; RECEIVERS],
}

impl<'a> View<'a> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive constant")]
    pub fn new(screen: &'a Screen, cast: &Cast) -> Self {
        let sender = screen.bar("sender", STEPS as u64);
        let receivers: Vec<_> = cast.names.iter().map(|name| screen.bar(name, 1)).collect();
        receivers[LATE].set_message(match cast.late_at {
            LateAt::Pass(part) => format!("joins when {:.0} % of a pass is sent", 100.0 * part),
            LateAt::Time(wait) => format!("joins after {}", time(wait)),
        });
        receivers[LOSSY].set_message(format!("drops {:.0} % of its packets", 100.0 * cast.loss));
        Self { screen, sender, receivers, names: cast.names }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bar from 0 to 10 000")]
    pub fn sender(&self, update: &SendUpdate) {
        match update {
            SendUpdate::Hashing { bytes_done, .. } => {
                self.sender.set_message(format!("reading, {}", Size(*bytes_done)));
            }
            SendUpdate::Started(started) => {
                let SendStarted { group, interface, symbols, .. } = &**started;
                let on = interface.as_ref().map_or_else(String::new, |interface| format!(" on {interface}"));
                self.screen.say(&format!("sender: to {group}{on}, packets per pass: {symbols}"));
            }
            SendUpdate::Progress(progress) => {
                self.sender.set_position((progress.passes.fract() * STEPS) as u64);
                let passes = progress.passes.trunc() as usize;
                let done =
                    if passes == 0 { String::new() } else { format!(", after {}", passes_done(passes)) };
                self.sender.set_message(format!("{}{done}", rate(progress.rate_bits)));
            }
            _ => {}
        }
    }

    pub fn receiver(&self, receiver: usize, update: &ReceiveUpdate) {
        match update {
            ReceiveUpdate::Joined(_) => self.receivers[receiver].set_message("joined"),
            ReceiveUpdate::Progress(progress) => self.progress(receiver, progress),
            ReceiveUpdate::FileRefused { location, reason } => {
                tracing::error!("{}: {location:?} was refused: {reason}", self.names[receiver]);
            }
            _ => {}
        }
    }

    fn progress(&self, receiver: usize, progress: &ReceiveProgress) {
        let bar = &self.receivers[receiver];
        bar.set_length(progress.symbols.max(1));
        bar.set_position(progress.symbols_held.min(progress.symbols));
        bar.show(&parts(progress));
    }

    pub fn ended(&self, receiver: usize, progress: &ReceiveProgress) {
        let bar = &self.receivers[receiver];
        bar.set_position(bar.length().unwrap_or(1));
        let done = format!("whole after {}", time(progress.elapsed));
        if !self.screen.is_live() {
            self.screen.say(&format!("{}: {done}", self.names[receiver]));
        }
        bar.set_message(done);
    }

    pub fn joins(&self, receiver: usize) {
        if !self.screen.is_live() {
            self.screen.say(&format!("{}: joins", self.names[receiver]));
        }
    }
}

fn passes_done(passes: usize) -> String {
    if passes == 1 { "1 pass".into() } else { format!("{passes} passes") }
}
