//! Limits on the memory and ports of all flows of a plan together.

use super::{Content, Flow, FlowKind, Receivers, Session};
use crate::engine::core::Core;
use crate::plan::topology::Topology;

/// Maximum content of all sessions plus windows of all remaining flows in bytes, counted once for the sender
/// and once for each receiver with a copy.
const CONTENT_BYTES_MAX: u64 = 4 << 30;

/// Resources used by the flows so far.
pub(super) struct Room<'a> {
    topology: &'a Topology,
    /// By node: the ends of flows there.
    ends: Vec<usize>,
    content_bytes: u64,
}

impl<'a> Room<'a> {
    pub fn new(topology: &'a Topology) -> Self {
        Self { topology, ends: vec![0; topology.nodes.len()], content_bytes: 0 }
    }

    /// Adds a flow's resources, or returns a message if a limit is exceeded.
    pub fn take(&mut self, flow: &Flow) -> Result<(), String> {
        self.end(flow.from)?;
        match &flow.to {
            Receivers::Node(node) => self.end(*node)?,
            Receivers::Group(members) => members.iter().try_for_each(|member| self.end(member.node))?,
        }
        self.content_bytes = self.content_bytes.saturating_add(content_bytes(flow));
        if self.content_bytes > CONTENT_BYTES_MAX {
            return Err(match flow.kind {
                FlowKind::LeSbcc(_) => format!(
                    "windows take at most {CONTENT_BYTES_MAX} bytes together, once at the source and once at each receiver; \
                     write a smaller 'window' or 'payload-bytes'"
                ),
                _ => format!(
                    "sessions hold at most {CONTENT_BYTES_MAX} bytes of content together, once at the sender and, with \
                     decode = true, once at each receiver"
                ),
            });
        }
        Ok(())
    }

    fn end(&mut self, node: usize) -> Result<(), String> {
        self.ends[node] += 1;
        if self.ends[node] > Core::PORTS {
            let name = &self.topology.nodes[node];
            return Err(format!("more than {} flows begin or end at '{name}'; use more nodes", Core::PORTS));
        }
        Ok(())
    }
}

fn content_bytes(flow: &Flow) -> u64 {
    let receivers = match &flow.to {
        Receivers::Group(members) => members.len() as u64,
        Receivers::Node(_) => 1,
    };
    match &flow.kind {
        FlowKind::Session(Session { file: Some(file), .. }) => {
            let sender = u64::from(file.content == Content::Random);
            file.size.saturating_mul(sender + if file.decodes { receivers } else { 0 })
        }
        FlowKind::LeSbcc(flow) => flow.window_bytes(receivers),
        _ => 0,
    }
}
