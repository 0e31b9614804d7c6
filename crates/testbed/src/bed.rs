//! A bed: the namespaces of one topology, from up to down.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use headwater_netsim::plan::Scenario;
use headwater_proto::Seed;

use crate::error::{Error, Tried};
use crate::network::Network;
use crate::program::{must, which};
use crate::routing::{Router, Routing};
use crate::shape::Shape;
use crate::sys;
use crate::wire::{Report, Wire};

/// Where beds are told of: a folder each.
pub const ROOT: &str = "/run/headwater-testbed";
/// What the names of all our namespaces begin with.
const PREFIX: &str = "hwtb";
/// Held as long as somebody is at work with the bed.
const LOCK: &str = "lock";
/// There for a bed that stands by itself, until it is taken down.
const STANDING: &str = "standing";

/// A topology made real. It goes with this, unless it was left standing.
#[derive(Debug)]
pub struct Bed {
    pub(crate) network: Network,
    pub(crate) shape: Shape,
    pub(crate) routing: Routing,
    /// There as long as it is not left standing: then its programs stay.
    router: Option<Router>,
    wire: Option<Wire>,
    /// Its own: files of programs.
    pub(crate) folder: PathBuf,
    _lock: File,
    is_left: bool,
}

impl Bed {
    /// Builds the topology of a scenario.
    ///
    /// # Errors
    /// When the plan asks for what a testbed does not do, or the machine lacks something. Nothing is left then.
    pub fn up(scenario: &Scenario, routing: Option<Routing>) -> Result<Self, Error> {
        let mut bed = Self::prepared(scenario, routing)?;
        bed.build(scenario)?;
        bed.start_wire(scenario)?;
        bed.settle()?;
        Ok(bed)
    }

    fn prepared(scenario: &Scenario, routing: Option<Routing>) -> Result<Self, Error> {
        if !scenario.timetable.is_empty() {
            return Err(Error::plan(
                "[[at]] changes links while a run is under way, which the testbed does not do; the simulator does",
            ));
        }
        let shape = Shape::of(&scenario.topology, &scenario.flows, scenario.graft_delay)?;
        let routing = routing.unwrap_or_else(Routing::best);
        require(routing)?;
        remove_abandoned()?;
        let (folder, lock) = claim()?;
        let id = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let network = Network::new(id, &scenario.topology.nodes);
        let router = Router::new(routing);
        Ok(Self {
            network,
            shape,
            routing,
            router: Some(router),
            wire: None,
            folder,
            _lock: lock,
            is_left: false,
        })
    }

    fn build(&mut self, scenario: &Scenario) -> Result<(), Error> {
        self.network.make(&self.shape, scenario)?;
        if let Some(router) = &mut self.router {
            router.make(&self.network, &self.shape, scenario, &self.folder)?;
        }
        self.network.limit(&self.shape)
    }

    fn start_wire(&mut self, scenario: &Scenario) -> Result<(), Error> {
        if self.shape.cables.iter().any(|cable| cable.is_wired) {
            let seed = Seed(scenario.seed.0 ^ (scenario.run << 32));
            let wire = Wire::start(&self.network.wire(), &scenario.topology.links, &self.shape.cables, seed)?;
            self.wire = Some(wire);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.router.as_ref().map_or(Ok(()), |router| router.settle(&self.network, &self.shape))
    }

    /// The bed's name: what its namespaces begin with.
    pub fn name(&self) -> &str {
        &self.network.id
    }

    /// Ends the wire; what it did, if there was one.
    pub(crate) fn end_wire(&mut self) -> Result<Option<Report>, Error> {
        self.wire.take().map(Wire::end).transpose()
    }

    /// Goes on with the wire until `is_over`, and says how late it was, if there is a wire.
    ///
    /// # Errors
    /// When the wire failed.
    pub fn hold(mut self, is_over: &mut dyn FnMut() -> bool) -> Result<Option<crate::Lateness>, Error> {
        while !is_over() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(self.end_wire()?.map(|report| report.lateness))
    }

    /// Whether a link goes through the wire, which lives as long as this process.
    pub fn is_wired(&self) -> bool {
        self.wire.is_some()
    }

    /// Leaves it standing until [`Standing::remove`], with a mark of whose it is. One with a wire cannot stand without this process: see
    /// [`Self::hold`].
    ///
    /// # Errors
    /// When that cannot be noted down.
    pub fn leave(mut self, of: &str) -> Result<Standing, Error> {
        let mark = self.folder.join(STANDING);
        fs::write(&mark, of).tried(|| format!("write '{}'", mark.display()))?;
        self.is_left = true;
        // Its programs end when they are dropped.
        std::mem::forget(self.router.take());
        Ok(Standing { name: self.network.id.clone(), folder: self.folder.clone() })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.is_left {
            self.wire.take().map(Wire::end);
            // What is still there is an abandoned bed, which the next one removes.
            remove(&self.network.id, &self.folder).ok();
        }
    }
}

/// A bed that stands by itself, or is held by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub name: String,
    folder: PathBuf,
}

impl Standing {
    /// Its nodes.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn nodes(&self) -> Result<Vec<String>, Error> {
        let prefix = format!("{}-", self.name);
        Ok(namespaces()?.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    /// Whether it was left standing, and is not of a run.
    pub fn is_left(&self) -> bool {
        self.mark().is_some()
    }

    /// The mark with which it was left.
    pub fn mark(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(STANDING)).ok()
    }

    /// The namespace of one of its nodes.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Takes it down; programs in it are killed.
    ///
    /// # Errors
    /// When something of it stays.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.name, &self.folder)
    }
}

/// All beds of this machine, those of runs under way among them.
///
/// # Errors
/// When the folder of beds cannot be read.
pub fn standing() -> Result<Vec<Standing>, Error> {
    let entries = match fs::read_dir(ROOT) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::failed(format!("cannot read '{ROOT}': {error}"))),
    };
    let bed = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.starts_with(PREFIX))?;
        Some(Standing { name, folder: entry.path() })
    };
    let mut beds: Vec<Standing> = entries.flatten().filter_map(bed).collect();
    beds.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(beds)
}

/// Removes what runs that were killed have left: beds that nobody holds and that were not left standing. How many there were.
///
/// # Errors
/// When something of them stays.
pub fn remove_abandoned() -> Result<usize, Error> {
    let mut removed = 0;
    for bed in standing()? {
        let lock = File::open(bed.folder.join(LOCK));
        // Without a lock it is being made right now, or is no bed.
        let is_free = lock.is_ok_and(|lock| lock.try_lock().is_ok());
        if is_free && !bed.is_left() {
            bed.remove()?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Kills what runs in a bed's namespaces, removes them, and then the bed's folder.
fn remove(id: &str, folder: &Path) -> Result<(), Error> {
    let prefix = format!("{id}-");
    for namespace in namespaces()?.iter().filter(|name| name.starts_with(&prefix)) {
        let own = std::process::id();
        let pids = must(Command::new("ip").args(["netns", "pids", namespace])).unwrap_or_default();
        for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != own) {
            sys::signal(pid, libc::SIGKILL);
        }
        must(Command::new("ip").args(["netns", "delete", namespace]))?;
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::failed(format!("cannot remove '{}': {error}", folder.display())))
        }
        _ => Ok(()),
    }
}

fn namespaces() -> Result<Vec<String>, Error> {
    let list = must(Command::new("ip").args(["netns", "list"]))?;
    Ok(list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// What has to be there before anything is made.
pub(crate) fn require(routing: Routing) -> Result<(), Error> {
    if !sys::is_root() {
        return Err(Error::missing(
            "the testbed makes network namespaces, which needs root: run it with sudo, or inside `unshare -Urnm --map-root-user` with a \
             tmpfs on /run",
        ));
    }
    for (tool, package) in [("ip", "iproute2"), ("tc", "iproute2"), ("ethtool", "ethtool")] {
        if which(tool).is_none() {
            return Err(Error::missing(format!(
                "'{tool}' is not installed, and the testbed is made with it: install the package {package}"
            )));
        }
    }
    match routing.missing() {
        Some(program) => Err(Error::missing(format!(
            "routing by {routing} needs '{program}': install the package frr, or choose --routing bridge"
        ))),
        None => Ok(()),
    }
}

/// A name that nobody has, its folder, and its lock: the folder has its name only once the lock is held, so that nobody takes it for
/// abandoned.
fn claim() -> Result<(PathBuf, File), Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(ROOT).tried(|| format!("make the folder '{ROOT}'"))?;
    let number = || NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut id = format!("{PREFIX}{}x{}", std::process::id(), number());
    let draft = Path::new(ROOT).join(format!("new-{id}"));
    fs::create_dir_all(&draft).tried(|| format!("make '{}'", draft.display()))?;
    let path = draft.join(LOCK);
    let lock = File::create(&path).tried(|| format!("make '{}'", path.display()))?;
    lock.try_lock().tried(|| format!("lock '{}'", path.display()))?;
    loop {
        let folder = Path::new(ROOT).join(&id);
        match fs::rename(&draft, &folder) {
            Ok(()) => return Ok((folder, lock)),
            // Of a process of this number in another namespace of processes, or in another time.
            Err(_) if folder.exists() => {
                id = format!("{PREFIX}{}x{}", std::process::id(), number());
            }
            Err(error) => return Err(Error::failed(format!("cannot make '{}': {error}", folder.display()))),
        }
    }
}
