//! Network interfaces: look-up by name or address, and the kernel's choice for a group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::{fmt, io};

use headwater_proto::Rate;

use super::sys::{self, interface_towards};

/// A network interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// The kernel's index of the interface, from 1.
    pub index: u32,
    /// IPv4 address to send from: the address of the look-up, else the first.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address to send from: the address of the look-up, else the first that is not link-local, else the
    /// first.
    pub ipv6: Option<Ipv6Addr>,
    /// All addresses, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// Whether the interface is up.
    pub up: bool,
    /// Whether the interface has a link, as far as the driver knows.
    pub running: bool,
    /// Whether the interface claims to carry multicast. Loopback interfaces carry multicast without the
    /// claim.
    pub multicast: bool,
    /// Whether the interface reaches this machine only.
    pub loopback: bool,
}

#[cfg(test)]
impl Interface {
    /// One for tests that look at no kernel: connected, without an address.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            index: 2,
            ipv4: None,
            ipv6: None,
            addresses: Vec::new(),
            up: true,
            running: true,
            multicast: true,
            loopback: false,
        }
    }
}

/// Reasons why no interface could be chosen.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The kernel would not list its interfaces.
    #[error("the network interfaces could not be listed")]
    List(#[source] io::Error),
    /// No interface has that name or address.
    #[error("no interface has the name or address `{wanted}`; there are: {}", Candidates(.candidates))]
    Unknown {
        /// The requested name or address.
        wanted: String,
        /// The existing interfaces.
        candidates: Vec<Interface>,
    },
    /// The interface exists but is down.
    #[error("interface {name} is down; bring it up with `ip link set dev {name} up`")]
    Down {
        /// Name of the interface.
        name: String,
    },
    /// The interface has no address of the group's family to send from.
    #[error("interface {name} has no {family} address to send from; give it one, or choose among: {}", Candidates(.candidates))]
    NoAddress {
        /// Name of the interface.
        name: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// Interfaces with an address of the family.
        candidates: Vec<Interface>,
    },
    /// The routing table has no route to the group.
    #[error(
        "the routing table has no route to {group}; name an interface, or add a route to it. There are: {}",
        Candidates(.candidates)
    )]
    NoRoute {
        /// The group.
        group: IpAddr,
        /// The existing interfaces.
        candidates: Vec<Interface>,
        /// The kernel's error.
        source: io::Error,
    },
    /// The route to the group leads to loopback, which reaches no other machine.
    #[error(
        "the route to {group} leads to {name}, which reaches this machine only; name an interface: {}",
        Candidates(.candidates)
    )]
    OnlyLoopback {
        /// The group.
        group: IpAddr,
        /// The loopback interface.
        name: String,
        /// The existing interfaces.
        candidates: Vec<Interface>,
    },
}

impl Interface {
    /// Returns the length of the longest IP packet that leaves the interface unfragmented, in bytes; `None`
    /// if the system does not tell.
    pub fn mtu(&self) -> Option<u32> {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/mtu", self.name)).ok()?;
        text.trim().parse().ok()
    }

    /// Returns the speed of the link; `None` if the driver does not tell, as of loopback and most wireless
    /// interfaces.
    pub fn speed(&self) -> Option<Rate> {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/speed", self.name)).ok()?;
        let megabits: u64 = text.trim().parse().ok()?;
        Rate::from_bits(megabits.saturating_mul(1_000_000))
    }

    /// Whether the interface is wireless, or a bridge with a wireless port.
    pub fn is_wireless(&self) -> bool {
        is_wireless(Path::new("/sys"), &self.name)
    }

    /// Returns all interfaces, in the kernel's order.
    ///
    /// # Errors
    /// [`InterfaceError::List`].
    pub fn list() -> Result<Vec<Self>, InterfaceError> {
        sys::list().map_err(InterfaceError::List)
    }

    /// Returns the interface with this name or address, such as `eth0` or `192.0.2.1`. An address also
    /// becomes the address to send from.
    ///
    /// # Errors
    /// [`InterfaceError::Unknown`] with all existing interfaces, [`InterfaceError::Down`],
    /// [`InterfaceError::List`].
    pub fn find(wanted: &str) -> Result<Self, InterfaceError> {
        let interfaces = Self::list()?;
        let address = wanted.parse::<IpAddr>().ok();
        let found = interfaces.iter().find(|interface| match address {
            Some(address) => interface.addresses.contains(&address),
            None => interface.name == wanted,
        });
        let Some(mut interface) = found.cloned() else {
            return Err(InterfaceError::Unknown { wanted: wanted.to_owned(), candidates: interfaces });
        };
        if !interface.up {
            return Err(InterfaceError::Down { name: interface.name });
        }
        if let Some(address) = address {
            interface.prefer(address);
        }
        Ok(interface)
    }

    /// Returns the interface of the kernel's route to `group`. Never a loopback interface: loopback must be
    /// named.
    ///
    /// # Errors
    /// [`InterfaceError::NoRoute`], [`InterfaceError::OnlyLoopback`], [`InterfaceError::List`].
    pub fn default_for(group: IpAddr) -> Result<Self, InterfaceError> {
        let candidates = Self::list()?;
        let index = match interface_towards(group) {
            Ok(index) => index,
            Err(source) => return Err(InterfaceError::NoRoute { group, candidates, source }),
        };
        let found = candidates.iter().find(|interface| interface.index == index);
        match found.cloned() {
            Some(interface) if interface.loopback => {
                Err(InterfaceError::OnlyLoopback { group, name: interface.name, candidates })
            }
            Some(interface) => Ok(interface),
            None => Err(InterfaceError::Unknown { wanted: format!("index {index}"), candidates }),
        }
    }

    /// Returns the address to bind for groups of the given family, with its scope, and `port`.
    ///
    /// # Errors
    /// [`InterfaceError::NoAddress`] when the interface has no such address.
    pub fn bind_address(&self, ipv4: bool, port: u16) -> Result<SocketAddr, InterfaceError> {
        let address = if ipv4 {
            self.ipv4.map(|address| SocketAddr::from((address, port)))
        } else {
            self.ipv6.map(|address| {
                let scope = if address.is_unicast_link_local() { self.index } else { 0 };
                SocketAddrV6::new(address, port, 0, scope).into()
            })
        };
        match address {
            Some(address) => Ok(address),
            None => {
                let mut candidates = Self::list()?;
                candidates.retain(|other| other.addresses.iter().any(|a| a.is_ipv4() == ipv4));
                Err(InterfaceError::NoAddress {
                    name: self.name.clone(),
                    family: if ipv4 { "IPv4" } else { "IPv6" },
                    candidates,
                })
            }
        }
    }

    pub(super) fn add_address(&mut self, address: IpAddr) {
        self.addresses.push(address);
        match address {
            IpAddr::V4(address) => {
                self.ipv4.get_or_insert(address);
            }
            IpAddr::V6(address) => {
                let better = self
                    .ipv6
                    .is_none_or(|old| old.is_unicast_link_local() && !address.is_unicast_link_local());
                if better {
                    self.ipv6 = Some(address);
                }
            }
        }
    }

    fn prefer(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.ipv4 = Some(address),
            IpAddr::V6(address) => self.ipv6 = Some(address),
        }
    }
}

/// `eth0 (192.0.2.1, fe80::1)`.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut notes = self.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        if self.loopback {
            notes.push("this machine only".to_owned());
        }
        if !self.up {
            notes.push("down".to_owned());
        }
        if notes.is_empty() {
            notes.push("no address".to_owned());
        }
        write!(f, "{} ({})", self.name, notes.join(", "))
    }
}

/// Shows a list of interfaces within an error.
struct Candidates<'a>(&'a [Interface]);

impl fmt::Display for Candidates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (i, interface) in self.0.iter().enumerate() {
            write!(f, "{}{interface}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Whether an interface is wireless, or a bridge with a wireless port; `sysfs` is where sysfs is mounted.
fn is_wireless(sysfs: &Path, interface: &str) -> bool {
    let class = sysfs.join("class/net");
    let has_radio = |name: &Path| {
        let device = class.join(name);
        device.join("phy80211").exists() || device.join("wireless").exists()
    };
    let is_port_wireless = || {
        let ports = std::fs::read_dir(class.join(interface).join("brif"));
        ports.is_ok_and(|ports| ports.flatten().any(|port| has_radio(Path::new(&port.file_name()))))
    };
    has_radio(Path::new(interface)) || is_port_wireless()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radios_and_bridges_with_a_radio_are_wireless() {
        let sysfs = tempfile::tempdir().unwrap();
        let class = sysfs.path().join("class/net");
        for folder in ["eth0", "wlan0/phy80211", "wlan1/wireless", "br0/brif/eth0", "br1/brif/wlan0"] {
            std::fs::create_dir_all(class.join(folder)).unwrap();
        }
        let found =
            ["eth0", "wlan0", "wlan1", "br0", "br1", "nope"].map(|name| is_wireless(sysfs.path(), name));
        assert_eq!(found, [false, true, true, false, true, false]);
    }
}
