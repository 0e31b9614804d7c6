//! Roster of a sending session: reports of receivers, the content that receivers are to have, and the wait
//! for receivers before the content is sent.

use headwater_wire::extensions::Levels;
use headwater_wire::roster::{ReportKind, is_roster};

use super::header::SessionHeader;
use super::{DeliverySender, SenderEvent};
use crate::control::{Departure, ReceptionReport, SenderControl};
use crate::delivery::name::RelativePath;
use crate::delivery::object::{Digest, content_digest};
use crate::delivery::plan::SessionPlan;
use crate::delivery::store::Source;
use crate::machine::{ChannelId, Datagram};
use crate::roster::RosterSender;
use crate::time::Instant;

/// Roster, and the names and lengths of the files.
#[derive(Debug)]
pub(super) struct SessionRoster {
    pub(super) sender: RosterSender,
    files: Vec<(RelativePath, u64)>,
    digest: Option<Digest>,
}

impl<C: SenderControl, S: Source> DeliverySender<C, S> {
    /// Keeps a roster of the receivers of `plan`, which is the plan of this sender. Default: no roster.
    #[must_use]
    pub fn with_roster(mut self, roster: Option<RosterSender>, plan: &SessionPlan) -> Self {
        let files = || plan.files().iter().map(|file| (file.path.clone(), file.bytes)).collect();
        self.roster = roster.map(|sender| Box::new(SessionRoster { sender, files: files(), digest: None }));
        self.update_content();
        self
    }

    /// Adds the files of a plan from `first` on to the content.
    pub(super) fn extend_content(&mut self, plan: &SessionPlan, first: usize) {
        if let Some(roster) = &mut self.roster {
            let files = plan.files()[first..].iter().map(|file| (file.path.clone(), file.bytes));
            roster.files.extend(files);
        }
        self.update_content();
    }

    /// Returns the roster, if the sender keeps one.
    pub fn roster(&self) -> Option<&RosterSender> {
        self.roster.as_ref().map(|roster| &roster.sender)
    }

    /// Returns the digest over names, lengths and digests of the files that are sent; `None` while a digest
    /// is unknown, or without a roster.
    pub fn content_digest(&self) -> Option<Digest> {
        self.roster.as_ref()?.digest
    }

    /// Sets whether the content waits: meanwhile only the base channel is sent, with the FDT. Default: no.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Returns a departure with the levels of a sender whose content waits: the base alone.
    pub(super) fn held(&self, departure: Departure) -> Departure {
        let is_layered = self.is_held && self.control.layering().is_some();
        let base = Levels { ceiling: 0, demand: None };
        Departure { levels: if is_layered { Some(base) } else { departure.levels }, ..departure }
    }

    /// Computes the digest of the content, after a change of the inventory.
    pub(super) fn update_content(&mut self) {
        let Some(roster) = &mut self.roster else { return };
        let inventory = &self.inventory;
        roster.digest = inventory.is_complete().then(|| {
            let live =
                roster.files.iter().enumerate().filter(|(file, _)| !inventory.is_file_withdrawn(*file));
            content_digest(live.map(|(file, (path, bytes))| (path.as_str(), *bytes, inventory.digest(file))))
        });
        roster.sender.set_content(roster.digest.as_ref().map(content_id));
    }

    /// Takes a datagram for the roster at `now`, which the control calls `control_time`. Returns whether the
    /// datagram is for the roster.
    pub(super) fn on_report(&mut self, now: Instant, control_time: Instant, datagram: &Datagram<'_>) -> bool {
        let Some(roster) = &mut self.roster else { return false };
        if !is_roster(datagram.payload) {
            return false;
        }
        if let Some(update) = roster.sender.on_datagram(now, datagram) {
            let is_under_way = update.row.kind == ReportKind::Progress;
            let report = ReceptionReport {
                receiver: update.row.receiver,
                is_under_way,
                packets: update.row.state.packets.filter(|_| is_under_way),
                interval: roster.sender.interval(),
            };
            // Of receivers that share a row, some reports are lost to the limit of the row.
            if !update.row.is_shared {
                self.control.reported(control_time, &report);
            }
            self.events.push_back(SenderEvent::Reported(Box::new(update)));
        }
        true
    }

    /// Returns the fields common to the packets of the session, for a packet that leaves at `time`.
    pub(super) fn session_header(&mut self, time: Instant, departure: &Departure) -> SessionHeader {
        let is_base = departure.channel == ChannelId::BASE;
        let roster = self.roster.as_mut().filter(|_| is_base);
        let members = roster.and_then(|roster| roster.sender.announcement(time));
        SessionHeader { tsi: self.config.tsi, members }
    }
}

/// Returns the part of a content's digest that reports carry.
pub(in crate::delivery) fn content_id(digest: &Digest) -> u32 {
    u32::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}
