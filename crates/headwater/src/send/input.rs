//! Session of an input of unknown length: adds parts to the machine and releases old parts.

use std::collections::VecDeque;

use headwater_proto::Instant;
use headwater_proto::control::SenderControl;
use headwater_proto::delivery::{DeliverySender, Digest, SessionPlan, Source, SourceError};

use super::source::FileSource;
use super::spool::{PartsSource, Spool, SpoolConfig, SpooledPart};
use super::update::SendUpdate;

/// Maximum number of parts that wait for their first pass. Until then nothing more is read, so that no input
/// is lost, however slow the network is.
const UNSENT_MAX: usize = 2;
/// Maximum number of parts of the FDT.
const PARTS_MAX: usize = 1_024;

/// Content of a session: files, or parts of an input.
#[derive(Debug)]
pub(super) enum ContentSource {
    Files(Box<FileSource>),
    Parts(PartsSource),
}

impl Source for ContentSource {
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        match self {
            Self::Files(source) => source.read_symbol(object, sbn, esi, symbol),
            Self::Parts(source) => source.read_symbol(object, sbn, esi, symbol),
        }
    }

    fn encoding_symbols(&self, object: usize, sbn: u32) -> Option<u32> {
        match self {
            Self::Files(source) => source.encoding_symbols(object, sbn),
            Self::Parts(source) => source.encoding_symbols(object, sbn),
        }
    }

    fn is_hole(&self, object: usize, sbn: u32) -> bool {
        match self {
            Self::Files(source) => source.is_hole(object, sbn),
            Self::Parts(_) => false,
        }
    }

    fn is_ready(&mut self, object: usize, sbn: u32, esi: u32) -> Result<bool, SourceError> {
        match self {
            Self::Files(source) => source.is_ready(object, sbn, esi),
            Self::Parts(source) => source.is_ready(object, sbn, esi),
        }
    }
}

/// Parts of an input that are sent.
///
/// Disk: `keep`, [`UNSENT_MAX`] parts and the parts of the [`Spool`], and for repair symbols as much again.
#[derive(Debug)]
pub(super) struct InputFeed {
    spool: Spool,
    config: SpoolConfig,
    plan: SessionPlan,
    /// Lengths of the parts that are kept, the oldest first.
    kept: VecDeque<u64>,
    kept_bytes: u64,
    released: u64,
    bytes: u64,
    is_ended: bool,
}

impl InputFeed {
    /// Begins with the first part. Returns the plan, the digests and the source of that part, too.
    ///
    /// # Errors
    /// If the part cannot be planned.
    pub(super) fn new(
        spool: Spool,
        config: SpoolConfig,
        plan: SessionPlan,
        first: SpooledPart,
    ) -> Result<(Self, Vec<Vec<Digest>>, PartsSource), SourceError> {
        let (kept, is_ended) = (VecDeque::new(), false);
        let mut feed = Self { spool, config, plan, kept, kept_bytes: 0, released: 0, bytes: 0, is_ended };
        let mut source = PartsSource::default();
        let digests = feed.push(&mut source, first)?;
        Ok((feed, digests, source))
    }

    /// Returns the plan of all parts so far.
    pub(super) fn plan(&self) -> &SessionPlan {
        &self.plan
    }

    /// Adds a part to the plan and to the source.
    fn push(&mut self, source: &mut PartsSource, part: SpooledPart) -> Result<Vec<Vec<Digest>>, SourceError> {
        let (file, part, digests) = source.push(part);
        let bytes = file.bytes;
        let SpoolConfig { plan: config, memory_limit, .. } = self.config;
        self.is_ended = part.end.is_some();
        self.plan
            .push_part(file, part, config, memory_limit)
            .map_err(|error| SourceError::Session(error.to_string()))?;
        self.kept.push_back(bytes);
        self.kept_bytes += bytes;
        self.bytes += bytes;
        Ok(digests)
    }

    /// Takes parts from the spool while few parts wait, and releases old parts for them.
    pub(super) fn steer<C: SenderControl>(
        &mut self,
        machine: &mut DeliverySender<C, ContentSource>,
        now: Instant,
        observer: &mut dyn FnMut(SendUpdate),
    ) {
        while !self.is_ended && machine.unsent_parts() < UNSENT_MAX {
            let Some(part) = self.spool.poll() else { return };
            let added = part.and_then(|part| self.add(machine, part, now, observer));
            if let Err(error) = added {
                self.is_ended = true;
                machine.fail(error);
            }
        }
    }

    fn add<C: SenderControl>(
        &mut self,
        machine: &mut DeliverySender<C, ContentSource>,
        part: SpooledPart,
        now: Instant,
        observer: &mut dyn FnMut(SendUpdate),
    ) -> Result<(), SourceError> {
        let needed = part.file.bytes;
        let released = self.released;
        while (self.kept_bytes + needed > self.config.keep || self.kept.len() >= PARTS_MAX)
            && machine.release_part().is_some()
        {
            if let ContentSource::Parts(source) = machine.source_mut() {
                source.release();
            }
            let bytes = self.kept.pop_front().unwrap_or(0);
            self.kept_bytes -= bytes;
            self.released += bytes;
        }
        if self.released > released {
            observer(SendUpdate::PartsReleased { bytes: self.released });
        }
        let ContentSource::Parts(source) = machine.source_mut() else { return Ok(()) };
        let digests = self.push(source, part)?;
        machine
            .add_parts(now, &self.plan, &digests)
            .map_err(|error| SourceError::Session(error.to_string()))?;
        if self.is_ended {
            observer(SendUpdate::InputEnded { bytes: self.bytes });
        }
        Ok(())
    }
}
