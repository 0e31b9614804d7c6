//! Outcome of a receiving session.

use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{DeliveryReceiver, Drops, StoreError};

use super::{EndReason, Watch};
use crate::receive::update::{IncompleteReason, ReceiveOutcome};
use crate::store::DiskStore;

impl Watch<'_> {
    /// Returns the outcome at the end of the run.
    pub(super) fn final_outcome<C: ReceiverControl>(
        &self,
        machine: &DeliveryReceiver<C, DiskStore>,
    ) -> ReceiveOutcome {
        let stats = machine.stats();
        let Drops { forged, unlisted, replayed, untrusted, over_budget, .. } = stats.dropped;
        let unverified = forged + unlisted + replayed + untrusted + over_budget + stats.waiting;
        let is_described = stats.fdt_packets > 0 || machine.files().next().is_some();
        let unopened = self.unopened.filter(|_| !is_described);
        match self.outcome(machine.store().out_of_space()) {
            ReceiveOutcome::Incomplete(incomplete) => {
                unopened.map_or(ReceiveOutcome::Incomplete(incomplete), ReceiveOutcome::NothingOpened)
            }
            ReceiveOutcome::NothingReceived if unverified > 0 => ReceiveOutcome::NothingTrusted,
            outcome => outcome,
        }
    }

    fn outcome(&self, out_of_space: Option<&StoreError>) -> ReceiveOutcome {
        match (&self.end, out_of_space) {
            (Some(EndReason::ControlRefused(reason)), _) => ReceiveOutcome::ControlRefused(reason.clone()),
            (Some(EndReason::StoreFailed(error)), _) => ReceiveOutcome::StoreFailed(error.clone()),
            (Some(EndReason::Stopped | EndReason::Superseded) | None, _) => ReceiveOutcome::Interrupted,
            _ if self.mismatch => ReceiveOutcome::VerificationFailed,
            (_, Some(error)) => ReceiveOutcome::StoreFailed(error.clone()),
            (Some(EndReason::TimedOut), _) if !self.session_found => ReceiveOutcome::NothingReceived,
            (Some(EndReason::TimedOut), _) => ReceiveOutcome::Incomplete(IncompleteReason::TimedOut),
            (Some(EndReason::NothingNeeded), _) => {
                ReceiveOutcome::Incomplete(IncompleteReason::NothingNeeded)
            }
            (Some(EndReason::Closed), _) => ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed),
            (Some(EndReason::Completed | EndReason::PartMissed), _) => match self.missed {
                Some((bytes, is_beginning)) => {
                    ReceiveOutcome::Incomplete(IncompleteReason::PartsMissed { bytes, is_beginning })
                }
                None if self.files_refused > 0 => ReceiveOutcome::Incomplete(IncompleteReason::Refused),
                None if self.files_unwanted > 0 && self.files_completed + self.links_made == 0 => {
                    ReceiveOutcome::NothingWanted
                }
                None => ReceiveOutcome::Completed,
            },
        }
    }
}
