//! Options of a receiving session, also from a description.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use headwater_proto::delivery::Preserve;
use headwater_wire::sdp::RequestSource;

use super::description::FetchedDescription;
use super::http::AddressRule;
use super::listener::ListenOptions;
use super::repair::{HttpPath, RepairOptions};
use super::serving::ServingOptions;
use super::tunnel::NamedRelay;
use crate::store::{Selection, Target};

/// Options of a receiving session.
#[derive(Debug)]
pub struct ReceiveOptions {
    /// Group, source, interface and limits. For a session on request, only TSI, timeout, loss and trace
    /// apply, and a source to receive from must be the address of the asked source.
    pub listen: ListenOptions,
    /// Folder for the files, created if missing.
    pub out: PathBuf,
    /// Device or stream that takes the content of a session of one file; the folder then holds working files
    /// alone. Default: none.
    pub target: Option<Target>,
    /// Files to receive, by name; of a bundle, the members to put in place. Default: all.
    pub selection: Selection,
    /// Folder for the directories of bundles, by which a receiver that runs again finds the members of a
    /// bundle in place. At most 64 MiB; other receivers may use the folder. Default: bundles are received
    /// again.
    pub bundle_cache: Option<PathBuf>,
    /// Metadata that is applied, as far as the sender sends the metadata. Default: modes within the umask,
    /// times, folders without files.
    pub preserve: Preserve,
    /// Whether symbolic links that the sender keeps are made, if the target is relative and inside of the
    /// folder. Default: no.
    pub keeps_links: bool,
    /// File, or folder of files with the same names, to take blocks from whose digests are equal. Default: an
    /// older file under the same name, at the same offsets.
    pub base: Option<PathBuf>,
    /// Whether unfinished files of the folder may be continued with another sender than the signer of the
    /// session that they came from. Default: no.
    pub takes_other_senders: bool,
    /// Repair of missing symbols from HTTP servers.
    pub repair: RepairOptions,
    /// Repair of other receivers, once everything is whole. Only content in the clear may be served, and no
    /// target has files. Default: none.
    pub serving: Option<ServingOptions>,
    /// AMT relay through which groups are received, without multicast on this network. No effect on a session
    /// on request. Default: groups are received natively.
    pub amt: Option<SocketAddr>,
    pub(super) ask: Option<PullOptions>,
    pub(super) paths: Option<PathOptions>,
}

/// Paths of a session beside each other.
#[derive(Clone, Debug)]
pub(super) struct PathOptions {
    pub(super) has_groups: bool,
    /// AMT relay, and the addresses that the relay may have.
    pub(super) amt: Option<(NamedRelay, AddressRule)>,
    pub(super) rainbow: Option<RequestSource>,
    pub(super) has_http: bool,
}

/// Path of requests to a source. The source's address takes the place of the group.
#[derive(Clone, Debug)]
pub(super) struct PullOptions {
    /// Address that requests are sent to.
    pub(super) upstream: SocketAddr,
    /// Group for replies and the interface to join the group on.
    pub(super) group: Option<(SocketAddr, Option<String>)>,
}

/// Deliberate random drop of arriving datagrams, to test the effect of loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Probability that a datagram is dropped, from 0 to 1.
    pub probability: f64,
    /// Seed of the selection: the same seed drops the same datagrams.
    pub seed: u64,
}

impl ReceiveOptions {
    /// Receives the first session heard on a group (the base channel) into the folder `out`, which is
    /// created if missing.
    pub fn new(listen: impl Into<ListenOptions>, out: impl Into<PathBuf>) -> Self {
        Self {
            listen: listen.into(),
            out: out.into(),
            target: None,
            selection: Selection::default(),
            bundle_cache: None,
            preserve: Preserve::default(),
            keeps_links: false,
            base: None,
            takes_other_senders: false,
            repair: RepairOptions::default(),
            serving: None,
            amt: None,
            ask: None,
            paths: None,
        }
    }

    /// Receives a described session into the folder `out`, by the paths that the description names: multicast
    /// first, and after three seconds of silence an AMT relay, a source on request and HTTP. Hosts on this
    /// machine or this link are left out unless the description is from the same host.
    pub fn described(found: &FetchedDescription, out: impl Into<PathBuf>) -> Self {
        let description = &found.description;
        let own = |url: &Option<String>| url.as_ref().is_none_or(|url| found.is_same_host(url));
        let at = description.groups.map(|groups| groups.base);
        let at = at.or(description.rainbow.map(|rainbow| rainbow.source));
        let mut options = Self::new(at.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()), out);
        options.listen.tsi = description.tsi;
        options.listen.source = description.source.filter(|_| description.groups.is_some());
        options.repair.url.clone_from(&description.http);
        options.repair.beside = Some(HttpPath {
            fdt: description.fdt.clone(),
            is_named_by_user: own(&description.http) && own(&description.fdt),
        });
        options.paths = Some(PathOptions {
            has_groups: description.groups.is_some(),
            amt: described_relay(found),
            rainbow: described_source(found),
            has_http: description.http.is_some(),
        });
        options
    }

    /// Receives through the AMT relay of a description while the groups are silent for three seconds, if the
    /// description names a relay. Returns the name.
    pub fn set_described_relay<'d>(&mut self, found: &'d FetchedDescription) -> Option<&'d str> {
        let amt = described_relay(found)?;
        let (amt, has_groups) = (Some(amt), true);
        self.paths = Some(PathOptions { has_groups, amt, rainbow: None, has_http: false });
        found.description.amt.as_deref()
    }

    /// Whether a text names an AMT relay in a description: an address or a name, perhaps with a port, or
    /// `auto`.
    pub fn is_amt_relay(text: &str) -> bool {
        NamedRelay::parse(text).is_some()
    }

    /// Requests a session from `source` packet by packet, through a relay or directly, and receives the
    /// session into the folder `out`.
    pub fn asking(source: SocketAddr, via: Option<SocketAddr>, out: impl Into<PathBuf>) -> Self {
        let ask = PullOptions { upstream: via.unwrap_or(source), group: None };
        Self { ask: Some(ask), ..Self::new(source, out) }
    }

    /// Group by which the relay replies to all receivers on this network, if the relay does so
    /// ([`RelayGroup`](crate::relay::RelayGroup)), and the interface to join the group on. By default the
    /// kernel's route to the group selects the interface. Has no effect on a session without requests.
    #[must_use]
    pub fn with_replies_to(mut self, group: SocketAddr, interface: Option<String>) -> Self {
        if let Some(ask) = &mut self.ask {
            ask.group = Some((group, interface));
        }
        self
    }
}

/// Returns the AMT relay of a description.
fn described_relay(found: &FetchedDescription) -> Option<(NamedRelay, AddressRule)> {
    let text = found.description.amt.as_ref()?;
    let relay = NamedRelay::parse(text);
    if relay.is_none() {
        tracing::warn!("the description's AMT relay '{text}' is no address or name, and is not tried");
    }
    relay.map(|relay| (relay.clone(), found.rule_of_host(relay.host())))
}

/// Returns the source on request of a description, if receivers may ask its address.
fn described_source(found: &FetchedDescription) -> Option<RequestSource> {
    let rainbow = found.description.rainbow?;
    let is_allowed = |at: SocketAddr| found.rule_of_host(&at.ip().to_string()).allows(at.ip());
    let refused = [Some(rainbow.source), rainbow.via].into_iter().flatten().find(|at| !is_allowed(*at));
    if let Some(refused) = refused {
        tracing::warn!(
            "{refused} is on this machine or this link, which a description from elsewhere may not name: \
             nothing is requested there"
        );
    }
    refused.is_none().then_some(rainbow)
}
