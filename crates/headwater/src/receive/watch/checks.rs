//! Checks of a running session: silence, other sessions on the group, packets that are too long, sizes of
//! symbols.

use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{DeliveryReceiver, OTHERS_MAX};

use super::Watch;
use crate::receive::long_packets::{Facts, judge_long_packets};
use crate::receive::repair::Repairer;
use crate::receive::session::ContentPort;
use crate::receive::update::{HeardSession, ReceiveUpdate, SILENCE_TOLD};
use crate::store::DiskStore;

impl Watch<'_> {
    /// Reports a long silence, and the end of a reported silence.
    pub(super) fn watch_silence<C: ReceiverControl>(
        &mut self,
        machine: &DeliveryReceiver<C, DiskStore>,
        socket: &impl ContentPort,
        now: Instant,
    ) {
        let last = machine.last_heard();
        let since = machine.quiet_since();
        match self.silent_since {
            None if Duration::from(now.since(since)) >= SILENCE_TOLD && !machine.store().is_busy() => {
                self.silent_since = Some((since, last.is_some()));
                let lasted = now.since(since).into();
                (self.observer)(ReceiveUpdate::Silent { lasted, is_found: last.is_some() });
                if self.names_source && !self.session_found {
                    self.listen_to_others(socket);
                }
            }
            Some((before, is_found)) if since > before => {
                self.silent_since = None;
                // The session's first packet has an update of its own.
                if is_found {
                    let lasted = since.since(before).into();
                    (self.observer)(ReceiveUpdate::HeardAgain { lasted });
                }
            }
            _ => {}
        }
    }

    /// Reports sessions of other sources than the named source, whose membership excludes all other sources.
    /// Blocks the receiver meanwhile, which is harmless because no packet arrives.
    pub(super) fn listen_to_others(&mut self, socket: &impl ContentPort) {
        for other in socket.others() {
            if self.add_other(other) {
                let HeardSession { tsi, source } = other;
                (self.observer)(ReceiveUpdate::OtherSession { tsi, source });
            }
        }
    }

    /// Records a session that is not received. Returns whether the session is new and within the limit.
    pub(super) fn add_other(&mut self, other: HeardSession) -> bool {
        let is_new = self.others.len() < OTHERS_MAX && !self.others.contains(&other);
        if is_new {
            self.others.push(other);
        }
        is_new
    }

    /// Reports once that packets are too long for the path, if the losses suggest so.
    pub(super) fn watch_length<C: ReceiverControl>(
        &mut self,
        machine: &DeliveryReceiver<C, DiskStore>,
        socket: &impl ContentPort,
    ) {
        let reception = machine.reception();
        let Some(before) = self.losses_before.filter(|_| reception.lost > 0) else { return };
        let Some((source, _)) = machine.session() else { return };
        let facts = Facts {
            symbol_size: machine.symbol_size(),
            longest: machine.stats().longest,
            packets: reception.packets,
            lost: reception.lost,
            is_ipv4: source.is_ipv4(),
        };
        let losses = || socket.input_losses().since(before);
        if let Some(missing) = judge_long_packets(facts, socket.interface(), losses) {
            self.losses_before = None;
            (self.observer)(ReceiveUpdate::LongPacketsMissing(missing));
        }
    }

    /// Reports that symbols of this path do not continue the symbols of the path before.
    pub(super) fn watch_symbol_size<C: ReceiverControl>(&mut self, machine: &DeliveryReceiver<C, DiskStore>) {
        let Some((before, now)) = self.symbol_size_before.zip(machine.symbol_size()) else { return };
        self.symbol_size_before = None;
        if before != now {
            (self.observer)(ReceiveUpdate::SymbolSizeDiffers { before, now });
        }
    }

    /// Returns the time at which the timeout expires; `None` without a timeout or while the store is busy.
    pub(super) fn gives_up<C: ReceiverControl>(
        &self,
        machine: &DeliveryReceiver<C, DiskStore>,
    ) -> Option<Instant> {
        // Decoding and writing take time that is no silence of the sender.
        let is_repairing = self.repairer.as_ref().is_some_and(Repairer::is_active);
        let idle = !machine.store().is_busy() && !is_repairing;
        self.timeout.filter(|_| idle).map(|timeout| machine.stats().last_progress + timeout)
    }
}
