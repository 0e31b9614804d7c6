//! Checks of reasons why multicast does not start: this machine, the network, the group, and peers that
//! answer. Each check has a verdict, an observation and advice.
//!
//! A pure function derives each [`Check`] from facts; the remaining code collects the facts. No check needs
//! root; a check that would show more as root says so.
//!
//! | file | subject |
//! |---|---|
//! | `check` | verdicts |
//! | `host` | interface, route, MTU, scope, reverse path filter |
//! | `limits` | memberships and buffers |
//! | `firewall` | rules of the packet filter |
//! | `querier` | IGMP and MLD queriers: the verdict, the raw socket |
//! | `version` | version of IGMP or MLD, and its consequences |
//! | `wireless` | wireless interfaces |
//! | `sessions` | current packets to the group |
//! | `groups` | groups of a session that is received: how many the path carries |
//! | `probes` | probes ([`headwater_wire::probe`]) and answers: reach, routers, ECN; a datagram to this
//! machine |

mod check;
mod firewall;
mod groups;
mod host;
mod limits;
mod probes;
mod querier;
mod sessions;
mod version;
mod wireless;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use headwater_proto::ChannelId;

use crate::congestion_control::CongestionControl;
use crate::net::{
    Channels, ChannelsError, Interface, InterfaceError, ReceiverOptions, ReceiverSocket, SenderOptions,
    SenderSocket, SocketLayer,
};
use crate::system::{self, InputLosses};

pub use check::{Check, Report, Verdict};
pub use headwater_wire::probe::{ProbeArrival, Request};
pub use probes::{Answerer, EcnPath, Peer, ReceivedProbe};
pub use sessions::FoundSession;

/// Options of the checks.
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// Group to check for receivers and senders.
    pub group: SocketAddr,
    /// Interface, by name or address. Default: the interface of the kernel's route to the group, but never
    /// loopback.
    pub interface: Option<String>,
    /// Expected sender. Default: any sender.
    pub source: Option<IpAddr>,
    /// TTL of the probes, equal to the TTL of the sender. Default: 1.
    pub ttl: u8,
    /// Time to listen for sessions and queries. Default: 3 s, in which a querier repeats a query.
    pub wait: Duration,
    /// Receive buffer in bytes. Default: the buffer of a receiver.
    pub receive_buffer_bytes: usize,
}

impl DoctorOptions {
    /// Creates default options for a group.
    pub fn new(group: SocketAddr) -> Self {
        Self {
            group,
            interface: None,
            source: None,
            ttl: 1,
            wait: Duration::from_secs(3),
            receive_buffer_bytes: ReceiverOptions::default().receive_buffer_bytes,
        }
    }

    fn find_interface(&self) -> Result<Interface, InterfaceError> {
        match &self.interface {
            Some(wanted) => Interface::find(wanted),
            None => Interface::default_for(self.group.ip()),
        }
    }

    fn receiver_options(&self, interface: &Interface) -> ReceiverOptions {
        ReceiverOptions {
            interface: Some(interface.clone()),
            source: self.source,
            receive_buffer_bytes: self.receive_buffer_bytes,
        }
    }
}

/// Runs all checks, and passes each check to `observe`. Takes the time to listen plus a second; if that
/// time is 3 s or longer and a session of M2C or WEBRC is received, 6 to 25 s more for its groups.
///
/// # Errors
/// [`ChannelsError`] if the group is no multicast address.
pub fn examine(options: &DoctorOptions, observe: &mut dyn FnMut(&Check)) -> Result<Report, ChannelsError> {
    let channels = Channels::new(options.group, 1)?;
    let mut examination = Examination { options, channels, observe, report: Report::default() };
    examination.all();
    Ok(examination.report)
}

struct Examination<'a> {
    options: &'a DoctorOptions,
    channels: Channels,
    observe: &'a mut dyn FnMut(&Check),
    report: Report,
}

impl Examination<'_> {
    /// Runs the checks in the order of the path of a packet. Checks that a problem makes impossible are left
    /// out.
    fn all(&mut self) {
        let interface = match self.options.find_interface() {
            Ok(interface) => interface,
            Err(error) => return self.add(host::no_interface(&error)),
        };
        let is_ipv4 = self.channels.is_ipv4();
        self.add(host::interface(&interface, is_ipv4, carrier(&interface)));
        if self.report.verdict() == Verdict::Problem {
            return;
        }
        if interface.is_wireless() {
            self.add(wireless::judge(&interface.name));
        }
        self.paths(&interface);
        let Some(mut receiver) = self.sockets(&interface) else { return };
        let outcome = probes::probe_loopback(&self.channels, &interface, system::random_u64());
        self.add(probes::judge_loopback(&outcome, &self.channels, &interface));
        self.add(firewall::judge(&firewall::read(is_ipv4), self.channels.port(), is_ipv4));
        self.network(&interface, &mut receiver);
    }

    /// Checks routes, reverse path, MTU and reach.
    fn paths(&mut self, interface: &Interface) {
        let group = self.options.group.ip();
        let is_named = self.options.interface.is_some();
        self.add(host::route(group, interface, is_named, &host::route_to(group)));
        let facts = host::ReversePathFacts {
            filter: if group.is_ipv4() { host::reverse_path_filter(interface) } else { None },
            dropped: host::reverse_path_drops(),
            source: self.options.source.map(|source| (source, host::route_to(source))),
            interfaces: networks(group.is_ipv4()),
        };
        if let Some(check) = host::judge_reverse_path(interface, &facts) {
            self.add(check);
        }
        self.add(host::mtu(interface, interface.mtu(), group.is_ipv4()));
        self.add(host::reach(group, self.options.ttl));
    }

    /// Opens the sockets of a sender and a receiver, and joins. Returns the receiver; `None` on failure.
    fn sockets(&mut self, interface: &Interface) -> Option<ReceiverSocket> {
        let opened = ReceiverSocket::open(&self.channels, &self.options.receiver_options(interface));
        let sending = SenderOptions { interface: Some(interface.clone()), ..SenderOptions::default() };
        let sender = SenderSocket::open(&self.channels, &sending);
        let (mut receiver, sender) = match (opened, sender) {
            (Ok(receiver), Ok(sender)) => (receiver, sender),
            (Err(error), _) | (_, Err(error)) => {
                let port = self.channels.port();
                let advice =
                    format!("who holds the port: ss -lunp 'sport = {port}'; or choose another --group");
                self.add(Check::problem("sockets", error_chain(&error), advice));
                return None;
            }
        };
        if let Err(error) = receiver.join(ChannelId::BASE) {
            let advice =
                "the limits: sysctl net.ipv4.igmp_max_memberships net.ipv4.igmp_max_msf net.core.optmem_max";
            self.add(Check::problem("memberships", error_chain(&error), advice));
            return None;
        }
        self.add(limits::memberships(&interface.name, &membership_facts(&self.channels, interface)));
        self.add(limits::buffers(receiver.receive_buffer(), sender.send_buffer()));
        self.add(limits::layer(SocketLayer::current()));
        Some(receiver)
    }

    /// Listens and sends probes at the same time.
    fn network(&mut self, interface: &Interface, receiver: &mut ReceiverSocket) {
        let (channels, options) = (self.channels, self.options);
        let is_ipv4 = channels.is_ipv4();
        let deadline = Instant::now() + options.wait;
        let before = membership_facts(&channels, interface);
        let dropped_before = host::reverse_path_drops();
        let losses_before = InputLosses::read(&interface.name, is_ipv4);
        let (listening, asking, heard) = thread::scope(|scope| {
            let queries = scope.spawn(|| querier::listen(interface, is_ipv4, deadline));
            let peers = scope
                .spawn(|| probes::ask(&channels, interface, options.ttl, system::random_u64(), addresses()));
            // A membership of the named sender excludes all other senders.
            let of_others =
                options.source.map(|_| scope.spawn(|| listen_to_all(&channels, interface, deadline)));
            let heard = sessions::listen(receiver, deadline).map(|heard| {
                let of_others = of_others.and_then(|thread| thread.join().ok()).unwrap_or_default();
                sessions::SessionSurvey { of_others, ..heard }
            });
            let listening = queries.join().unwrap_or(querier::QuerierSurvey::Failed);
            let asking = peers.join().unwrap_or_else(|_| Err("asking failed".to_owned()));
            (listening, asking, heard)
        });
        if interface.loopback {
            self.add(Check::ok("querier", "not needed on loopback"));
        } else {
            let bridge = querier::bridge_of(&interface.name);
            let is_source_specific = channels.is_source_specific();
            self.add(querier::judge(listening, bridge.as_ref(), is_ipv4, is_source_specific));
            let after = membership_facts(&channels, interface);
            self.add(version::judge(&version::VersionFacts {
                interface: &interface.name,
                is_ipv4,
                forced: after.forced_version,
                before: before.joined.version,
                now: after.joined.version,
                querier: listening.version(),
            }));
        }
        match heard {
            Ok(mut heard) => {
                let dropped = |before| Some(host::reverse_path_drops()?.saturating_sub(before));
                heard.filter_drops = dropped_before.and_then(dropped).unwrap_or(0);
                heard.losses = InputLosses::read(&interface.name, is_ipv4).since(losses_before);
                let place = sessions::SurveyPlace {
                    group: channels.base(),
                    source: options.source,
                    interface: interface.name.clone(),
                    mtu: interface.mtu(),
                };
                let waves = heard.waves;
                self.add(sessions::judge(&place, heard));
                if let Some(waves) = waves {
                    let receiver = options.receiver_options(interface);
                    self.add(groups::check(&channels, &receiver, waves, options.wait));
                }
            }
            Err(error) => {
                self.add(Check::problem("sessions", error.to_string(), "is the interface still up?"));
            }
        }
        let own = if is_ipv4 { interface.ipv4.map(IpAddr::V4) } else { interface.ipv6.map(IpAddr::V6) };
        let named = own.filter(|_| channels.is_source_specific());
        self.add(probes::judge(&asking, channels.base(), named));
        if let Some(check) = asking.ok().and_then(|asking| probes::judge_ecn(&asking.peers)) {
            self.add(check);
        }
    }

    fn add(&mut self, check: Check) {
        (self.observe)(&check);
        self.report.checks.push(check);
    }
}

/// Returns sessions of any sender on the base channel of `channels` until `deadline`; empty if listening is
/// impossible.
pub(crate) fn listen_to_all(
    channels: &Channels,
    interface: &Interface,
    deadline: Instant,
) -> Vec<FoundSession> {
    let options = ReceiverOptions { interface: Some(interface.clone()), ..ReceiverOptions::default() };
    let Ok(mut socket) = ReceiverSocket::open(channels, &options) else { return Vec::new() };
    let heard = socket.join(ChannelId::BASE).ok().and_then(|()| sessions::listen(&mut socket, deadline).ok());
    heard.map_or_else(Vec::new, |heard| heard.sessions)
}

fn membership_facts(channels: &Channels, interface: &Interface) -> limits::Facts {
    let is_ipv4 = channels.is_ipv4();
    let setting = |path: String| limits::read_number(&path);
    let per_interface = |what: &str| {
        let of = |name: &str| setting(format!("/proc/sys/net/{what}").replace('*', name));
        of("all").into_iter().chain(of(&interface.name)).max().unwrap_or(0)
    };
    let joined = if is_ipv4 {
        limits::text("/proc/net/igmp").map(|text| limits::igmp(&text, &interface.name))
    } else {
        let group = channels.base().ip();
        limits::text("/proc/net/igmp6").map(|text| limits::igmp6(&text, &interface.name, group))
    };
    let sources = if is_ipv4 { "ipv4/igmp_max_msf" } else { "ipv6/mld_max_msf" };
    limits::Facts {
        is_ipv4,
        is_source_specific: channels.is_source_specific(),
        memberships_max: if is_ipv4 {
            limits::read_number("/proc/sys/net/ipv4/igmp_max_memberships")
        } else {
            None
        },
        sources_max: setting(format!("/proc/sys/net/{sources}")),
        optmem_max: limits::read_number("/proc/sys/net/core/optmem_max"),
        forced_version: per_interface(if is_ipv4 {
            "ipv4/conf/*/force_igmp_version"
        } else {
            "ipv6/conf/*/force_mld_version"
        }),
        joined: joined.unwrap_or_default(),
        channels: (
            Channels::all_from(channels.base()).map_or(1, |all| all.count()),
            CongestionControl::default().channels().unwrap_or(1),
        ),
    }
}

/// Returns the state of the link, if known; reading fails while the interface is down.
fn carrier(interface: &Interface) -> Option<bool> {
    limits::read_number(&format!("/sys/class/net/{}/carrier", interface.name)).map(|carrier| carrier == 1)
}

/// Returns the number of interfaces other than loopback that are up and have an address of the family.
fn networks(is_ipv4: bool) -> usize {
    let counts = |interface: &&Interface| {
        interface.up
            && !interface.loopback
            && interface.addresses.iter().any(|address| address.is_ipv4() == is_ipv4)
    };
    Interface::list().map_or(0, |interfaces| interfaces.iter().filter(counts).count())
}

/// Returns all addresses of this machine.
fn addresses() -> Vec<IpAddr> {
    let interfaces = Interface::list().unwrap_or_default();
    interfaces.into_iter().flat_map(|interface| interface.addresses).collect()
}

/// Formats an error with all causes in one line.
fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let mut messages = Vec::<String>::new();
    for message in causes.map(ToString::to_string) {
        if messages.last().is_none_or(|last| !last.ends_with(&message)) {
            messages.push(message);
        }
    }
    messages.join(": ")
}
