//! Gateways of a relay and their memberships.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_wire::amt::membership::{Record, RecordKind};

use super::{Channels, Natives};
use crate::amt::{
    GATEWAYS_MAX, GATEWAYS_PER_ADDRESS, GROUPS_MAX, MEMBERSHIP_TIME, MEMBERSHIPS_MAX, Membership, is_routed,
    is_source,
};
use crate::egress::overload::{Overload, PRUNED, carried};
use crate::machine::{ChannelId, InterfaceId};
use crate::time::Instant;

/// Change of a group that the relay receives natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeMembership {
    /// Channel of the group's packets. All memberships of a group have the same channel.
    pub channel: ChannelId,
    /// Group.
    pub group: IpAddr,
    /// Only source; `None`: any source.
    pub source: Option<IpAddr>,
    /// Whether the group is joined, instead of left.
    pub is_join: bool,
}

/// Counters of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableCounters {
    pub(super) crowded: u64,
    pub(super) pruned: u64,
}

/// Gateway by its slot.
#[derive(Debug)]
struct GatewayState {
    address: SocketAddr,
    /// Interface of the last update.
    tunnel: InterfaceId,
    joined: BTreeSet<Membership>,
    overload: Overload,
}

/// A gateway's membership.
#[derive(Clone, Copy, Debug)]
struct Member {
    until: Instant,
    /// Number of the join: later joins have higher numbers.
    order: u64,
    /// Packets offered since the last look.
    offered: u64,
    /// End of the time for which the membership is pruned.
    pruned: Instant,
}

/// Gateways and memberships.
#[derive(Debug, Default)]
pub(super) struct GatewayTable {
    slots: Vec<Option<GatewayState>>,
    free: Vec<u32>,
    by_address: BTreeMap<SocketAddr, u32>,
    /// Gateways by membership.
    members: BTreeMap<Membership, BTreeMap<u32, Member>>,
    channels: Channels,
    /// Groups by channel.
    groups: BTreeMap<ChannelId, IpAddr>,
    natives: Natives,
    gone: VecDeque<InterfaceId>,
    joins: u64,
    /// Whether groups are received on a loopback interface.
    is_loopback: bool,
    /// Channel of the next new group. A number is used again as late as possible: packets of a group that was
    /// left may still arrive.
    next_channel: ChannelId,
    counters: TableCounters,
}

impl GatewayTable {
    pub(super) fn new(is_loopback: bool) -> Self {
        Self { is_loopback, ..Self::default() }
    }

    pub(super) const fn counters(&self) -> TableCounters {
        self.counters
    }

    pub(super) fn gateways(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn memberships(&self) -> usize {
        self.members.len()
    }

    pub(super) fn poll_native(&mut self) -> Option<NativeMembership> {
        self.natives.pop_front()
    }

    /// Returns the next gateway that is gone.
    pub(super) fn poll_gone(&mut self) -> Option<InterfaceId> {
        self.gone.pop_front()
    }

    pub(super) fn group(&self, channel: ChannelId) -> Option<IpAddr> {
        self.groups.get(&channel).copied()
    }

    /// Returns the address of a gateway, and the interface that leads to the gateway.
    pub(super) fn address(&self, gateway: InterfaceId) -> Option<(SocketAddr, InterfaceId)> {
        self.slots.get(gateway.0 as usize)?.as_ref().map(|state| (state.address, state.tunnel))
    }

    /// Whether an address is a gateway that receives a group from a source.
    pub(super) fn receives(&self, address: SocketAddr, source: IpAddr) -> bool {
        let state = self.by_address.get(&address).and_then(|slot| self.slots[*slot as usize].as_ref());
        state.is_some_and(|state| {
            state.joined.iter().any(|(group, from)| match from {
                Some(from) => *from == source,
                None => group.is_ipv4() == source.is_ipv4(),
            })
        })
    }

    /// Whether an address is a gateway, or can become a gateway.
    pub(super) fn has_room(&self, address: SocketAddr) -> bool {
        let [first, last] = [0, u16::MAX].map(|port| SocketAddr::new(address.ip(), port));
        let at_address = || self.by_address.range(first..=last).take(GATEWAYS_PER_ADDRESS).count();
        self.by_address.contains_key(&address)
            || (self.gateways() < GATEWAYS_MAX && at_address() < GATEWAYS_PER_ADDRESS)
    }

    /// Applies the records of a gateway's report.
    pub(super) fn update<'a>(
        &mut self,
        now: Instant,
        (address, tunnel): (SocketAddr, InterfaceId),
        records: impl Iterator<Item = Record<'a>>,
    ) {
        let Some(slot) = self.slot(address, tunnel) else {
            self.counters.crowded += 1;
            return;
        };
        for record in records.filter(|record| is_routed(record.group)) {
            self.apply(now, slot, &record);
        }
        if self.state(slot).is_none_or(|state| state.joined.is_empty()) {
            self.remove(address);
        }
    }

    fn apply(&mut self, now: Instant, slot: u32, record: &Record<'_>) {
        let (group, is_loopback) = (record.group, self.is_loopback);
        let sources = || record.sources().filter(|source| is_source(*source, group, is_loopback)).map(Some);
        match record.kind {
            RecordKind::IsInclude | RecordKind::Allow => {
                sources().for_each(|source| self.join(now, slot, (group, source)));
            }
            RecordKind::IsExclude => self.join(now, slot, (group, None)),
            RecordKind::ToExclude => {
                self.leave_except(slot, group, |source| source.is_none());
                self.join(now, slot, (group, None));
            }
            RecordKind::ToInclude => {
                let kept: BTreeSet<_> = sources().take(GROUPS_MAX).collect();
                self.leave_except(slot, group, |source| kept.contains(&source));
                kept.into_iter().for_each(|source| self.join(now, slot, (group, source)));
            }
            RecordKind::Block => sources().for_each(|source| self.leave(slot, (group, source))),
            RecordKind::Unknown(_) => {}
        }
    }

    /// Passes each gateway that has joined a packet's group from the packet's source.
    pub(super) fn forward(
        &mut self,
        now: Instant,
        group: IpAddr,
        source: IpAddr,
        mut send: impl FnMut(InterfaceId),
    ) {
        let mut pass = |slot: &u32, member: &mut Member| {
            if member.pruned <= now {
                member.offered += 1;
                send(InterfaceId(*slot));
            }
        };
        let any = (group, None);
        for (slot, member) in self.members.get_mut(&any).into_iter().flatten() {
            pass(slot, member);
        }
        // A gateway with both memberships gets one copy.
        let slots = &self.slots;
        let has_any = |slot: u32| slots[slot as usize].as_ref().is_some_and(|of| of.joined.contains(&any));
        for (slot, member) in self.members.get_mut(&(group, Some(source))).into_iter().flatten() {
            if !has_any(*slot) {
                pass(slot, member);
            }
        }
    }

    /// Forgets memberships that no update has repeated.
    pub(super) fn sweep(&mut self, now: Instant) {
        let expired = self.members.iter().flat_map(|(membership, members)| {
            let expired = members.iter().filter(|(_, member)| member.until <= now);
            expired.map(|(slot, _)| (*slot, *membership))
        });
        for (slot, membership) in expired.collect::<Vec<_>>() {
            self.leave(slot, membership);
            if let Some(address) = self.state(slot).filter(|of| of.joined.is_empty()).map(|of| of.address) {
                self.remove(address);
            }
        }
    }

    /// Looks at the queues of all gateways: `drops` returns the packets offered and dropped since the last
    /// look. Prunes the latest memberships of a gateway whose queue has dropped too much.
    pub(super) fn look(&mut self, now: Instant, mut drops: impl FnMut(InterfaceId) -> (u64, u64)) {
        for slot in self.by_address.values().copied().collect::<Vec<_>>() {
            let (offered, dropped) = drops(InterfaceId(slot));
            let Some(state) = self.slots[slot as usize].as_mut() else { continue };
            let is_due = state.overload.look(offered, dropped);
            if offered == 0 {
                continue;
            }
            let mut latest = Vec::new();
            for membership in &state.joined {
                if let Some(member) = self.members.get_mut(membership).and_then(|of| of.get_mut(&slot)) {
                    latest.push((member.order, member.offered, *membership));
                    member.offered = 0;
                }
            }
            if !is_due {
                continue;
            }
            latest.sort_unstable();
            // The first group is never pruned: receivers learn from it that the session continues.
            let kept = carried(latest.iter().map(|(_, count, _)| *count), offered - dropped, offered).max(1);
            for (_, _, membership) in latest.split_off(kept.min(latest.len())) {
                if let Some(member) = self.members.get_mut(&membership).and_then(|of| of.get_mut(&slot)) {
                    member.pruned = now + PRUNED;
                    self.counters.pruned += 1;
                }
            }
        }
    }

    /// Removes a gateway with its memberships.
    pub(super) fn remove(&mut self, address: SocketAddr) {
        let Some(slot) = self.by_address.remove(&address) else { return };
        let joined = self.state(slot).map(|state| state.joined.clone()).unwrap_or_default();
        joined.into_iter().for_each(|membership| self.leave(slot, membership));
        self.slots[slot as usize] = None;
        self.free.push(slot);
        self.gone.push_back(InterfaceId(slot));
    }

    fn state(&self, slot: u32) -> Option<&GatewayState> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Returns the slot of a gateway, which is made if there is room.
    fn slot(&mut self, address: SocketAddr, tunnel: InterfaceId) -> Option<u32> {
        if let Some(slot) = self.by_address.get(&address) {
            if let Some(state) = self.slots[*slot as usize].as_mut() {
                state.tunnel = tunnel;
            }
            return Some(*slot);
        }
        if !self.has_room(address) {
            return None;
        }
        let state = GatewayState { address, tunnel, joined: BTreeSet::new(), overload: Overload::default() };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        self.slots[slot as usize] = Some(state);
        self.by_address.insert(address, slot);
        Some(slot)
    }

    fn join(&mut self, now: Instant, slot: u32, membership: Membership) {
        let until = now + MEMBERSHIP_TIME;
        if let Some(member) = self.members.get_mut(&membership).and_then(|of| of.get_mut(&slot)) {
            member.until = until;
            return;
        }
        let is_new = !self.members.contains_key(&membership);
        let Some(state) = self.slots[slot as usize].as_mut() else { return };
        if state.joined.len() >= GROUPS_MAX || (is_new && self.members.len() >= MEMBERSHIPS_MAX) {
            self.counters.crowded += 1;
            return;
        }
        if is_new {
            self.join_native(membership);
        }
        let Some(state) = self.slots[slot as usize].as_mut() else { return };
        state.joined.insert(membership);
        self.joins += 1;
        let member = Member { until, order: self.joins, offered: 0, pruned: Instant::ZERO };
        self.members.entry(membership).or_default().insert(slot, member);
    }

    fn leave(&mut self, slot: u32, membership: Membership) {
        let Some(members) = self.members.get_mut(&membership) else { return };
        if members.remove(&slot).is_none() {
            return;
        }
        let is_last = members.is_empty();
        if let Some(state) = self.slots[slot as usize].as_mut() {
            state.joined.remove(&membership);
        }
        if is_last {
            self.members.remove(&membership);
            self.leave_native(membership);
        }
    }

    fn leave_except(&mut self, slot: u32, group: IpAddr, is_kept: impl Fn(Option<IpAddr>) -> bool) {
        let of_group = |membership: &&Membership| membership.0 == group && !is_kept(membership.1);
        let joined = self.state(slot).into_iter().flat_map(|state| &state.joined);
        let left: Vec<_> = joined.filter(of_group).copied().collect();
        left.into_iter().for_each(|membership| self.leave(slot, membership));
    }

    fn join_native(&mut self, (group, source): Membership) {
        // Fewer groups than numbers: at most `MEMBERSHIPS_MAX` groups are joined at a time.
        let (channel, count) = match self.channels.get(&group) {
            Some((channel, count)) => (*channel, *count),
            None => {
                while self.groups.contains_key(&self.next_channel) {
                    self.next_channel.0 = self.next_channel.0.wrapping_add(1);
                }
                let channel = self.next_channel;
                self.next_channel.0 = channel.0.wrapping_add(1);
                (channel, 0)
            }
        };
        self.channels.insert(group, (channel, count + 1));
        self.groups.insert(channel, group);
        self.natives.push_back(NativeMembership { channel, group, source, is_join: true });
    }

    fn leave_native(&mut self, (group, source): Membership) {
        let Some((channel, count)) = self.channels.get_mut(&group) else { return };
        let channel = *channel;
        *count -= 1;
        if *count == 0 {
            self.channels.remove(&group);
            self.groups.remove(&channel);
        }
        self.natives.push_back(NativeMembership { channel, group, source, is_join: false });
    }
}
