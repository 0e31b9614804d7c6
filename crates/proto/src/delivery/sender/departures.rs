//! Departures of a sender: packets by the control's schedule, signed or not.

use super::header::{Header, SessionHeader};
use super::{DeliverySender, Next, Phase, SenderEvent};
use crate::auth::AuthPacket;
use crate::control::{Departure, SenderControl};
use crate::delivery::store::Source;
use crate::machine::{ChannelId, Destination, Output, Transmit};
use crate::time::Instant;

/// Result of a step of the sender.
enum Step {
    Output(Output<SenderEvent>),
    /// A packet waits for the departure.
    Planned,
}

impl<C: SenderControl, S: Source> DeliverySender<C, S> {
    /// Returns the next output. A control with a lead runs ahead of `now`, and the packets wait.
    pub(super) fn next_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SenderEvent>> {
        loop {
            let time = self.control_time(now);
            match self.produce(time, buffer) {
                Some(Step::Output(output)) => return Some(output),
                Some(Step::Planned) => continue,
                None => {}
            }
            let next = self.control.next_departure();
            if !self.signing.as_mut().is_some_and(|line| line.step(now, next)) {
                break;
            }
        }
        let transmit = self.signing.as_mut()?.depart(now, buffer)?;
        self.count(transmit.bytes);
        Some(Output::Transmit(transmit))
    }

    /// Returns the time of the control at `now`.
    pub(super) fn control_time(&mut self, now: Instant) -> Instant {
        let Some(line) = self.signing.as_mut() else { return now };
        if line.begins_turn(now) {
            line.begin_turn(now, self.control.lead());
        }
        line.control_time(now)
    }

    /// Returns when the sender must be polled, if the phase and the control need a poll at `at`.
    pub(super) fn real_timeout(&self, at: Option<Instant>) -> Option<Instant> {
        let Some(line) = &self.signing else { return at };
        let at = at.filter(|_| line.has_room()).map(|at| line.real_time(at));
        at.into_iter().chain(line.poll_timeout()).min()
    }

    fn count(&mut self, bytes: usize) {
        self.stats.packets += 1;
        self.stats.bytes += bytes as u64;
    }

    fn produce(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Step> {
        self.settle(now);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Step::Output(Output::Event(event)));
            }
            if self.has_finished && self.is_finished() {
                self.has_finished = false;
                return Some(Step::Output(Output::Event(SenderEvent::Finished)));
            }
            if let Some(transmit) = self.control.poll_transmit(now, buffer) {
                return Some(Step::Output(Output::Transmit(transmit)));
            }
            let roster = self.roster.as_mut();
            if let Some(transmit) = roster.and_then(|roster| roster.sender.poll_transmit(buffer)) {
                return Some(Step::Output(Output::Transmit(transmit)));
            }
            if self.signing.as_ref().is_some_and(|line| !line.has_room()) {
                return None;
            }
            if self.is_without_content() {
                self.control.paused(now);
            }
            let due = self.control.next_departure();
            let departure = self.held(self.control.departure(now)?);
            let next = match self.auth_packet(now, departure.channel) {
                Some(packet) => {
                    let _place = self.turn(&departure);
                    Next::Auth(packet)
                }
                None => self.next(now, &departure),
            };
            match next {
                Next::Wait => return None,
                Next::Pass => {
                    self.control.departed(now, 0);
                    continue;
                }
                _ => {}
            }
            // If the content fails, an event is queued, and the departure serves other content or the end of
            // the session.
            let envelope = self.control.envelope().map_or(0, |envelope| envelope.bytes());
            let Some(bytes) = self.write(now, &next, &departure, &mut buffer[envelope..]) else { continue };
            let Some(bytes) = self.encrypt(&mut buffer[envelope..], bytes) else {
                self.control.departed(now, 0);
                continue;
            };
            let (channel, ecn) = (departure.channel, departure.ecn);
            let bytes = self.insert_key(&next, &mut buffer[envelope..], bytes);
            let destination =
                self.request().map_or(Destination::Channel(channel), |request| request.destination);
            let queues = self.signing.as_ref().is_some_and(|line| line.queues());
            let signed =
                if queues { Some(bytes) } else { self.sign(channel, &mut buffer[envelope..], bytes) };
            let Some(bytes) = signed.map(|bytes| envelope + bytes) else {
                self.control.departed(now, 0);
                continue;
            };
            if envelope > 0
                && let Some(envelope) = self.control.envelope()
            {
                envelope.seal(now, &mut buffer[..bytes]);
            }
            if let Some(line) = self.signing.as_mut().filter(|line| line.queues()) {
                let at = due.filter(|_| line.plans()).map_or(now, |due| due.min(now));
                let scheduled = departure.lateness.map(|_| departure.at);
                let (envelope, packet) = buffer[..bytes].split_at(envelope);
                let bytes = line.plan(channel, destination, ecn, (at, scheduled), envelope, packet);
                self.control.departed(now, bytes);
                return Some(Step::Planned);
            }
            self.control.departed(now, bytes);
            self.count(bytes);
            return Some(Step::Output(Output::Transmit(Transmit { destination, bytes, ecn })));
        }
    }

    /// Returns the packet of authentication that takes the place of a packet of content.
    fn auth_packet(&mut self, now: Instant, channel: ChannelId) -> Option<AuthPacket> {
        let line = self.signing.as_mut().filter(|_| self.phase == Phase::Sending)?;
        line.next_auth_packet(now, channel)
    }

    /// Writes a packet of authentication: a header, and the key if the packet carries the key.
    pub(super) fn write_auth(
        &self,
        packet: AuthPacket,
        session: SessionHeader,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> usize {
        let bytes = Header::new(session, None, 0, departure).emit(buffer);
        match (packet, &self.signing) {
            (AuthPacket::Key, Some(line)) => line.insert_key(buffer, bytes),
            _ => bytes,
        }
    }

    /// Encrypts the payload of a packet, if the session is encrypted. Returns the packet's length; `None` if
    /// the packet cannot be encrypted.
    fn encrypt(&mut self, buffer: &mut [u8], bytes: usize) -> Option<usize> {
        self.encryption.as_mut().map_or(Some(bytes), |encryption| encryption.seal(buffer, bytes))
    }

    /// Signs a packet that leaves now, if the session is signed. Returns the packet's length; `None` if the
    /// packet cannot be signed.
    fn sign(&mut self, channel: ChannelId, buffer: &mut [u8], bytes: usize) -> Option<usize> {
        match &mut self.signing {
            Some(line) => line.sign(channel, buffer, bytes),
            None => Some(bytes),
        }
    }

    /// Inserts the public key into a description of the content, if descriptions carry the key. Returns the
    /// packet's length.
    fn insert_key(&self, next: &Next, buffer: &mut [u8], bytes: usize) -> usize {
        let describes = matches!(next, Next::Fdt | Next::Description(_));
        match &self.signing {
            Some(line) if describes && line.describes_key() => line.insert_key(buffer, bytes),
            _ => bytes,
        }
    }
}
