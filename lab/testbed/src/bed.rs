//! A bed: the namespaces of a topology, from creation to removal.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use headwater_netsim::plan::Scenario;
use headwater_proto::Seed;

use crate::network::{NAMESPACES, Network, WIRE};
use crate::program::{must, which};
use crate::routing::{Router, Routing};
use crate::shape::Shape;
use crate::sys;
use crate::wire::{Lateness, Lines, Wire};
use crate::{Error, Tried};

/// Folder of all beds, with a subfolder for each bed.
pub const ROOT: &str = "/run/headwater-testbed";
/// Prefix of the names of all testbed namespaces.
const PREFIX: &str = "hwtb";
/// Locked as long as a process uses the bed.
const LOCK: &str = "lock";
/// Present for a bed left standing, until removal.
const STANDING: &str = "standing";
/// Process id of the process that runs the wire of a standing bed. The process lives as long as the lock is
/// held.
const HOLDER: &str = "holder";
/// Report of that process at its end.
const REPORT: &str = "report";
/// Locked while a bed is claimed or removed, so that only a single process on this machine does so at a time.
const TURN: &str = "turn";
/// Time for processes in a bed to end after a signal, before the next, stronger signal.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// A topology built from namespaces. Dropping the value removes the bed, unless the bed was left standing.
#[derive(Debug)]
pub struct Bed {
    pub(crate) network: Network,
    pub(crate) shape: Shape,
    pub(crate) routing: Routing,
    /// Present unless the bed is left standing, whose routing programs keep running.
    router: Option<Router>,
    wire: Option<Wire>,
    /// Folder of the bed, for files of programs.
    pub(crate) folder: PathBuf,
    _lock: File,
    is_left: bool,
}

impl Bed {
    /// Builds the topology of a scenario.
    ///
    /// # Errors
    ///
    /// If the plan asks for a feature that the testbed lacks, or if the machine lacks a requirement. Nothing
    /// is left behind.
    pub fn up(scenario: &Scenario, routing: Option<Routing>) -> Result<Self, Error> {
        let mut bed = Self::prepared(scenario, routing)?;
        bed.build(scenario)?;
        bed.start_wire(scenario)?;
        bed.settle()?;
        Ok(bed)
    }

    /// Checks that this machine can build the topology of a scenario: builds and removes the topology.
    pub(crate) fn probe(scenario: &Scenario, routing: Option<Routing>) -> Result<(), Error> {
        Self::prepared(scenario, routing)?.build(scenario)
    }

    fn prepared(scenario: &Scenario, routing: Option<Routing>) -> Result<Self, Error> {
        if !scenario.timetable.is_empty() {
            return Err(Error::plan(
                "[[at]] changes links while a run is under way, which the testbed does not do; the simulator does",
            ));
        }
        if !scenario.hosts.is_empty() {
            return Err(Error::plan(
                "[hosts] makes hosts late, and the testbed's are as late as this machine is; leave it out",
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
        self.network.make(&self.shape, scenario, self.routing.protocol())?;
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

    /// Name of the bed, which is the prefix of its namespaces.
    pub fn name(&self) -> &str {
        &self.network.id
    }

    /// Current counters of the wire; empty without a wire.
    pub(crate) fn lines(&self) -> Result<Lines, Error> {
        self.wire.as_ref().map_or_else(|| Ok(Lines::new()), Wire::lines)
    }

    /// Ends the wire. Returns the wire's lateness, if the bed has a wire.
    pub(crate) fn end_wire(&mut self) -> Result<Option<Lateness>, Error> {
        self.wire.take().map(Wire::end).transpose()
    }

    /// Whether a scenario has links that go through the wire: a bed of such a scenario lives as long as the
    /// process that built the bed.
    ///
    /// # Errors
    ///
    /// If the plan asks for a feature that the testbed lacks.
    pub fn needs_wire(scenario: &Scenario) -> Result<bool, Error> {
        let shape = Shape::of(&scenario.topology, &scenario.flows, scenario.graft_delay)?;
        Ok(shape.cables.iter().any(|cable| cable.is_wired))
    }

    /// Leaves the bed standing until [`Standing::remove`], and records `of` as its mark. A bed with a wire
    /// stands only while this process runs [`Self::hold`].
    ///
    /// # Errors
    ///
    /// If the files cannot be written.
    pub fn stand(&mut self, of: &str) -> Result<(), Error> {
        if self.wire.is_some() {
            self.note(HOLDER, &std::process::id().to_string())?;
        }
        self.note(STANDING, of)?;
        self.is_left = true;
        // Dropping the router would end its programs.
        std::mem::forget(self.router.take());
        Ok(())
    }

    /// Runs the wire until `is_over`, and stores `report` of the wire's lateness for [`Standing::remove`].
    ///
    /// # Errors
    ///
    /// If the wire failed, or the report cannot be written.
    pub fn hold(
        &mut self,
        is_over: &mut dyn FnMut() -> bool,
        report: &dyn Fn(&Lateness) -> String,
    ) -> Result<(), Error> {
        while !is_over() {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.end_wire()?.map_or(Ok(()), |lateness| self.note(REPORT, &report(&lateness)))
    }

    fn note(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        fs::write(&path, text).tried(|| format!("write '{}'", path.display()))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.is_left {
            self.wire.take().map(Wire::end);
            // The daemons end by themselves, whatever their state.
            drop(self.router.take());
            // If anything remains, the bed is abandoned and the next run removes the bed. Until then the lock
            // keeps other processes away.
            let cleared = clear(&self.network.id);
            cleared.and_then(|()| turn()).and_then(|_turn| remove_folder(&self.folder)).ok();
        }
    }
}

/// A bed left standing, or held by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Name of the bed.
    pub name: String,
    folder: PathBuf,
}

impl Standing {
    /// Names of the bed's nodes.
    ///
    /// # Errors
    ///
    /// If `ip` fails.
    pub fn nodes(&self) -> Result<Vec<String>, Error> {
        let prefix = format!("{}-", self.name);
        let names = namespaces()?;
        let nodes = names.iter().filter_map(|name| name.strip_prefix(&prefix)).filter(|node| *node != WIRE);
        Ok(nodes.map(str::to_owned).collect())
    }

    /// Whether the bed was left standing, and does not belong to a run. A bed with a wire no longer stands
    /// once the wire's process has ended.
    pub fn is_left(&self) -> bool {
        self.mark().is_some() && (self.holder().is_none() || self.is_held())
    }

    fn holder(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join(HOLDER)).ok()?.parse().ok()
    }

    /// Whether a process holds the bed's lock.
    fn is_held(&self) -> bool {
        File::open(self.folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
    }

    /// Mark with which the bed was left.
    pub fn mark(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(STANDING)).ok()
    }

    /// Namespace of a node of the bed.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Removes the bed and kills programs inside. Returns the report of the bed's wire, if any.
    ///
    /// # Errors
    ///
    /// If a part of the bed cannot be removed.
    pub fn remove(&self) -> Result<Option<String>, Error> {
        require_root()?;
        self.end_holder();
        let _turn = turn()?;
        let report = fs::read_to_string(self.folder.join(REPORT)).ok();
        self.remove_in_turn()?;
        Ok(report)
    }

    /// Ends the process that runs the wire: by SIGTERM, then by SIGKILL.
    fn end_holder(&self) {
        let Some(holder) = self.holder() else { return };
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            // While the lock is held, the number is the id of the wire's process.
            if !self.is_held() {
                return;
            }
            sys::signal(holder, signal);
            let until = Instant::now() + PATIENCE;
            while self.is_held() && Instant::now() < until {
                std::thread::sleep(LOOK);
            }
        }
    }

    fn remove_in_turn(&self) -> Result<(), Error> {
        clear(&self.name)?;
        remove_folder(&self.folder)
    }
}

/// All beds of this machine, including the beds of runs in progress.
///
/// # Errors
///
/// If the folder of beds cannot be read.
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

/// Removes beds left by killed runs: beds without a lock holder that were not left standing. Returns the
/// number of removed beds.
///
/// # Errors
///
/// If a part of a bed cannot be removed.
pub fn remove_abandoned() -> Result<usize, Error> {
    let _turn = turn()?;
    let mut removed = 0;
    for bed in standing()? {
        let is_free = match File::open(bed.folder.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_ok(),
            // A process was killed while claiming the bed. No process can be claiming now, because this
            // process holds the turn.
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if is_free && !bed.is_left() {
            bed.remove_in_turn()?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Waits for the exclusive right to claim or remove beds, which lasts as long as the returned file.
fn turn() -> Result<File, Error> {
    require_root()?;
    fs::create_dir_all(ROOT).tried(|| format!("make the folder '{ROOT}'"))?;
    let path = Path::new(ROOT).join(TURN);
    let file = File::create(&path).tried(|| format!("make '{}'", path.display()))?;
    file.lock().tried(|| format!("lock '{}'", path.display()))?;
    Ok(file)
}

/// Ends the processes in a bed's namespaces, and removes the namespaces.
fn clear(id: &str) -> Result<(), Error> {
    let prefix = format!("{id}-");
    let ours: Vec<String> = namespaces()?.into_iter().filter(|name| name.starts_with(&prefix)).collect();
    // FRR's daemons remove their files outside of the bed on SIGTERM.
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let until = Instant::now() + PATIENCE;
        let mut left = running(&ours);
        left.iter().for_each(|pid| sys::signal(*pid, signal));
        while !left.is_empty() && Instant::now() < until {
            std::thread::sleep(LOOK);
            left = running(&ours);
            if signal == libc::SIGKILL {
                // Processes started meanwhile.
                left.iter().for_each(|pid| sys::signal(*pid, signal));
            }
        }
        if left.is_empty() {
            break;
        }
    }
    for namespace in &ours {
        let deleted = must(Command::new("ip").args(["netns", "delete", namespace]));
        if deleted.is_err() && Path::new(NAMESPACES).join(namespace).exists() {
            deleted?;
        }
    }
    Ok(())
}

/// Processes in namespaces, except this process.
fn running(namespaces: &[String]) -> Vec<u32> {
    let own = std::process::id();
    let pids = |name: &String| must(Command::new("ip").args(["netns", "pids", name])).unwrap_or_default();
    let all: Vec<String> = namespaces.iter().map(pids).collect();
    let all = all.iter().flat_map(|pids| pids.split_whitespace()).filter_map(|pid| pid.parse().ok());
    all.filter(|pid| *pid != own).collect()
}

fn remove_folder(folder: &Path) -> Result<(), Error> {
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

/// Checks that this process may create and enter namespaces.
///
/// # Errors
///
/// If the process is not root; the message says what to do.
pub fn require_root() -> Result<(), Error> {
    if sys::is_root() {
        return Ok(());
    }
    Err(Error::missing(
        "the testbed makes network namespaces, which needs root: run it with sudo, or inside `unshare -Urnm --map-root-user` with a \
         tmpfs on /run",
    ))
}

/// Checks all requirements before anything is created.
fn require(routing: Routing) -> Result<(), Error> {
    require_root()?;
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

/// Claims an unused name, and creates its folder and lock.
fn claim() -> Result<(PathBuf, File), Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // The turn prevents removal of the folder as abandoned before the folder has its lock.
    let _turn = turn()?;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(ROOT).join(format!("{PREFIX}{}x{number}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => {
                let path = folder.join(LOCK);
                let lock = File::create(&path).tried(|| format!("make '{}'", path.display()))?;
                lock.try_lock().tried(|| format!("lock '{}'", path.display()))?;
                return Ok((folder, lock));
            }
            // Of a process of this number in another namespace of processes, or in another time.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::failed(format!("cannot make '{}': {error}", folder.display()))),
        }
    }
}
