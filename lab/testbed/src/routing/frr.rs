//! FRR's routers: zebra and pimd in each, PIM-SSM between them, IGMPv3 towards hosts.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::network::{Network, without};
use crate::program::{Program, must};
use crate::shape::{Role, Shape};
use crate::{Error, Tried};

/// Required programs of FRR.
pub(super) const PROGRAMS: [&str; 3] = ["/usr/lib/frr/zebra", "/usr/lib/frr/pimd", "/usr/bin/vtysh"];
/// User and group of the daemons after giving up root.
const USER: &str = "frr:frr";
/// Time for daemons to discover neighbours and hosts.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for daemons to end before SIGKILL.
const ENDING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// IGMPv3 towards hosts, in tenths of a second but the count: a leave is asked about once, and holds after a
/// tenth.
const MEMBERS: &str = " ip igmp\n ip igmp version 3\n ip igmp query-interval 10\n ip igmp query-max-response-time 10\n \
                       ip igmp last-member-query-count 1\n ip igmp last-member-query-interval 1\n";

/// The daemons of a bed; dropping the value ends all daemons.
#[derive(Debug)]
pub(super) struct Daemons {
    folder: PathBuf,
    programs: Vec<Program>,
}

/// Addresses, routes and daemons.
pub(super) fn make(network: &Network, shape: &Shape, folder: &Path) -> Result<Daemons, Error> {
    for host in shape.hosts() {
        let Some((link, _)) = shape.neighbours(host).first() else { continue };
        let end = shape.end(*link, host);
        let gateway = Shape::link_address(*link, 1 - end);
        network.address(host, Shape::link_address(*link, end), 24, Some(gateway))?;
    }
    for router in shape.routers() {
        network.forward(router)?;
        network.ip(router, &ways(shape, router))?;
    }
    let mut daemons = Daemons { folder: folder.to_owned(), programs: Vec::new() };
    for router in shape.routers() {
        daemons.start(network, shape, router)?;
    }
    Ok(daemons)
}

/// A router's addresses, and its routes to the subnets of all other links.
fn ways(shape: &Shape, router: usize) -> Vec<String> {
    let mut commands = Vec::new();
    for (link, _) in shape.neighbours(router) {
        let port = Network::port(shape, router, *link);
        let address = Shape::link_address(*link, shape.end(*link, router));
        commands.push(format!("address add {address}/24 dev {port}"));
    }
    for (link, cable) in shape.cables.iter().enumerate() {
        if cable.ends.contains(&router) {
            continue;
        }
        let Some(way) = shape.way(router, cable.ends[0]) else { continue };
        let gateway = Shape::link_address(way, 1 - shape.end(way, router));
        commands.push(format!("route add {}/24 via {gateway}", subnet(link)));
    }
    commands
}

fn subnet(link: usize) -> std::net::Ipv4Addr {
    let mut octets = Shape::link_address(link, 0).octets();
    octets[3] = 0;
    octets.into()
}

impl Drop for Daemons {
    fn drop(&mut self) {
        // The daemons remove their files below /var/tmp/frr only on SIGTERM.
        self.programs.iter_mut().for_each(|program| program.signal(libc::SIGTERM));
        let until = Instant::now() + ENDING;
        while !self.programs.iter_mut().all(Program::has_ended) && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }
}

impl Daemons {
    fn start(&mut self, network: &Network, shape: &Shape, router: usize) -> Result<(), Error> {
        let folder = self.home(router);
        fs::create_dir(&folder).tried(|| format!("make the folder '{}'", folder.display()))?;
        let mut pim = String::new();
        for (link, other) in shape.neighbours(router) {
            let port = Network::port(shape, router, *link);
            // Writing to a string cannot fail.
            writeln!(pim, "interface {port}\n ip pim").ok();
            pim.push_str(if shape.roles[*other] == Role::Host { MEMBERS } else { " ip pim hello 1 30\n" });
        }
        for (name, text) in [("zebra", ""), ("pimd", pim.as_str())] {
            let file = folder.join(format!("{name}.conf"));
            fs::write(&file, text).tried(|| format!("write '{}'", file.display()))?;
        }
        must(Command::new("chown").args(["-R", USER]).arg(&folder))?;
        for name in ["zebra", "pimd"] {
            let at = |file: &str| folder.join(file).display().to_string();
            let words = [
                format!("/usr/lib/frr/{name}"),
                "-z".into(),
                at("zserv"),
                "--vty_socket".into(),
                at(""),
                "-f".into(),
                at(&format!("{name}.conf")),
                "-i".into(),
                at(&format!("{name}.pid")),
                "-P".into(),
                "0".into(),
            ];
            let title = format!("{name}-{router}");
            let mut program =
                Program::start(&network.namespace(router), &title, &self.folder, &words, false)?;
            let socket = folder.join(format!("{name}.vty"));
            let waited = wait(&format!("answer of {name}"), || {
                if program.has_ended() {
                    return Err(Error::failed(format!("{name} ended: {}", program.complaint())));
                }
                Ok(socket.exists())
            });
            self.programs.push(program);
            waited.map_err(|error| {
                without(error, "multicast routing with PIM (CONFIG_IP_MROUTE, CONFIG_IP_PIMSM_V2)")
            })?;
        }
        Ok(())
    }

    fn home(&self, router: usize) -> PathBuf {
        self.folder.join(format!("frr-{router}"))
    }

    /// Waits until routers are neighbours and query their hosts for members.
    pub fn settle(&self, network: &Network, shape: &Shape) -> Result<(), Error> {
        for router in shape.routers() {
            let port = |link: usize| Network::port(shape, router, link);
            let is_of = |role: Role| move |(_, other): &&(usize, usize)| shape.roles[*other] == role;
            let links = shape.neighbours(router).iter();
            let routers: Vec<String> =
                links.clone().filter(is_of(Role::Router)).map(|(link, _)| port(*link)).collect();
            let hosts: Vec<String> = links.filter(is_of(Role::Host)).map(|(link, _)| port(*link)).collect();
            wait("neighbour among the routers", || {
                let known = self.ask(network, router, "show ip pim neighbor json")?;
                Ok(routers.iter().all(|port| {
                    known.get(port).is_some_and(|of| of.as_object().is_some_and(|of| !of.is_empty()))
                }))
            })?;
            wait("querier", || {
                let known = self.ask(network, router, "show ip igmp interface json")?;
                let asks =
                    |port: &String| known.get(port).and_then(|of| of.get("querier")).and_then(Value::as_bool);
                Ok(hosts.iter().all(|port| asks(port) == Some(true)))
            })?;
        }
        Ok(())
    }

    fn ask(&self, network: &Network, router: usize, question: &str) -> Result<Value, Error> {
        let home = self.home(router);
        let mut vtysh = Command::new("ip");
        vtysh.args(["netns", "exec", &network.namespace(router), "vtysh", "--vty_socket"]).arg(home);
        let answer = must(vtysh.args(["-d", "pimd", "-c", question]))?;
        Ok(serde_json::from_str(&answer).unwrap_or_default())
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let until = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > until {
            return Err(Error::failed(format!("FRR: no {what} after {} s", PATIENCE.as_secs())));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
