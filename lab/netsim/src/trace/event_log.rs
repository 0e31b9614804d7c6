//! The event log of the real driver, by the simulator's clock: joins, leaves, drops and marks.

use std::fmt;
use std::io::{self, Write};

use headwater_proto::Instant;
use headwater_proto::eventlog::{Event, write_header, write_record};
use headwater_proto::queue::DropReason;

use super::{AgentEvent, LinkEvent, Observer, OnLink};
use crate::engine::Run;
use crate::network::{AgentId, Drop, GroupId, Names};

/// Writes JSON text sequences in qlog's main schema, see [`headwater_proto::eventlog`]. The end of a join or
/// leave is the agent; a drop or mark has no end. A failed write ends the log; see [`EventLog::finish`].
pub struct EventLog<W: Write> {
    names: Names,
    buffer: Vec<u8>,
    out: io::Result<W>,
}

impl<W: Write> fmt::Debug for EventLog<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").finish_non_exhaustive()
    }
}

impl<W: Write> EventLog<W> {
    /// Creates a log of `run` called `title`; the header is written at once.
    pub fn new(run: &Run, title: &str, out: W) -> Self {
        let mut log = Self { names: run.names().clone(), buffer: Vec::new(), out: Ok(out) };
        write_header(&mut log.buffer, title, None);
        log.flush();
        log
    }

    /// Ends the log and returns the writer.
    ///
    /// # Errors
    ///
    /// The first write that failed.
    pub fn finish(self) -> io::Result<W> {
        self.out
    }

    fn flush(&mut self) {
        if let Ok(out) = &mut self.out
            && let Err(error) = out.write_all(&self.buffer)
        {
            self.out = Err(error);
        }
        self.buffer.clear();
    }

    /// Returns a session's name and channel, from `<session>/<channel>`.
    fn group(&self, group: GroupId) -> (String, u16) {
        let name = &*self.names.groups[group.index()];
        let (session, channel) = name.rsplit_once('/').unwrap_or((name, "0"));
        (session.to_owned(), channel.parse().unwrap_or_default())
    }
}

const fn reason(drop: Drop) -> &'static str {
    match drop {
        Drop::Queue(DropReason::Full) => "full",
        Drop::Queue(DropReason::Early) => "early",
        Drop::Queue(DropReason::Forced) => "forced",
        Drop::Lost => "lost",
        Drop::Corrupted => "corrupted",
        Drop::Down => "down",
    }
}

impl<W: Write + 'static> Observer for EventLog<W> {
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>) {
        let OnLink { link, event, packet, .. } = *what;
        let (link, flow) = (&*self.names.links[link.index()], &*self.names.flows[packet.flow.index()]);
        let sequence = packet.sequence;
        let event = match event {
            LinkEvent::Dropped(drop) => Event::PacketDropped { link, flow, sequence, reason: reason(drop) },
            LinkEvent::Marked => Event::PacketMarked { link, flow, sequence },
            LinkEvent::Taken | LinkEvent::Delivered => return,
        };
        write_record(&mut self.buffer, at, None, &event);
        self.flush();
    }

    fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>) {
        let event = match event {
            AgentEvent::Joined(group) => {
                let (group, channel) = self.group(group);
                Event::ChannelJoined { channel, group }
            }
            AgentEvent::Left(group) => Event::ChannelLeft { channel: self.group(group).1 },
            AgentEvent::Received(..) => return,
        };
        write_record(&mut self.buffer, at, Some(&self.names.agents[agent.index()]), &event);
        self.flush();
    }
}
