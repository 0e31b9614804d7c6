//! A bed: the namespaces of one topology, from up to down.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use headwater_netsim::plan::Scenario;
use headwater_proto::Seed;

use crate::error::{Error, Tried};
use crate::network::{NAMESPACES, Network, WIRE};
use crate::program::{must, which};
use crate::routing::{Router, Routing};
use crate::shape::Shape;
use crate::sys;
use crate::wire::{Lateness, Lines, Wire};

/// Where beds are told of: a folder each.
pub const ROOT: &str = "/run/headwater-testbed";
/// What the names of all our namespaces begin with.
const PREFIX: &str = "hwtb";
/// Held as long as somebody is at work with the bed.
const LOCK: &str = "lock";
/// There for a bed that stands by itself, until it is taken down.
const STANDING: &str = "standing";
/// The number of the process that is the wire of a bed that stands. It is there as long as the lock is held.
const HOLDER: &str = "holder";
/// What that process had to say at its end.
const REPORT: &str = "report";
/// Held while a bed is claimed or removed: by one on this machine at a time.
const TURN: &str = "turn";
/// How long what runs in a bed may take to end, asked and then killed.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

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
    /// When the plan asks for what a testbed does not do, or the machine lacks something. Nothing is left
    /// then.
    pub fn up(scenario: &Scenario, routing: Option<Routing>) -> Result<Self, Error> {
        let mut bed = Self::prepared(scenario, routing)?;
        bed.build(scenario)?;
        bed.start_wire(scenario)?;
        bed.settle()?;
        Ok(bed)
    }

    /// Whether this machine can build the topology of a scenario: it is built and removed.
    pub(crate) fn probe(scenario: &Scenario, routing: Option<Routing>) -> Result<(), Error> {
        Self::prepared(scenario, routing)?.build(scenario)
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

    /// What the wire has counted so far; nothing without one.
    pub(crate) fn lines(&self) -> Result<Lines, Error> {
        self.wire.as_ref().map_or_else(|| Ok(Lines::new()), Wire::lines)
    }

    /// Ends the wire; how late it was, if there was one.
    pub(crate) fn end_wire(&mut self) -> Result<Option<Lateness>, Error> {
        self.wire.take().map(Wire::end).transpose()
    }

    /// Whether a scenario has links that go through the wire: a bed of such a scenario lives as long as the
    /// process that built it.
    ///
    /// # Errors
    /// When the plan asks for what a testbed does not do.
    pub fn needs_wire(scenario: &Scenario) -> Result<bool, Error> {
        let shape = Shape::of(&scenario.topology, &scenario.flows, scenario.graft_delay)?;
        Ok(shape.cables.iter().any(|cable| cable.is_wired))
    }

    /// Lets it stand until [`Standing::remove`], with a mark of whose it is. One with a wire stands as long
    /// as this process goes on with [`Self::hold`].
    ///
    /// # Errors
    /// When that cannot be noted down.
    pub fn stand(&mut self, of: &str) -> Result<(), Error> {
        if self.wire.is_some() {
            self.note(HOLDER, &std::process::id().to_string())?;
        }
        self.note(STANDING, of)?;
        self.is_left = true;
        // Its programs end when they are dropped.
        std::mem::forget(self.router.take());
        Ok(())
    }

    /// Goes on with the wire until `is_over`, and leaves for [`Standing::remove`] what `report` makes of how
    /// late the wire was.
    ///
    /// # Errors
    /// When the wire failed, or the report cannot be written.
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
            // Its daemons end by themselves, in whatever state they are.
            drop(self.router.take());
            // What is still there is an abandoned bed, which the next one removes. Its lock keeps others off
            // until then.
            let cleared = clear(&self.network.id);
            cleared.and_then(|()| turn()).and_then(|_turn| remove_folder(&self.folder)).ok();
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
        let names = namespaces()?;
        let nodes = names.iter().filter_map(|name| name.strip_prefix(&prefix)).filter(|node| *node != WIRE);
        Ok(nodes.map(str::to_owned).collect())
    }

    /// Whether it was left standing, and is not of a run; one with a wire stands no more once that has ended.
    pub fn is_left(&self) -> bool {
        self.mark().is_some() && (self.holder().is_none() || self.is_held())
    }

    fn holder(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join(HOLDER)).ok()?.parse().ok()
    }

    /// Whether a process is at work with it.
    fn is_held(&self) -> bool {
        File::open(self.folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
    }

    /// The mark with which it was left.
    pub fn mark(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(STANDING)).ok()
    }

    /// The namespace of one of its nodes.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Takes it down; programs in it are killed. What its wire reported, if it had one.
    ///
    /// # Errors
    /// When something of it stays.
    pub fn remove(&self) -> Result<Option<String>, Error> {
        require_root()?;
        self.end_holder();
        let _turn = turn()?;
        let report = fs::read_to_string(self.folder.join(REPORT)).ok();
        self.remove_in_turn()?;
        Ok(report)
    }

    /// Ends the process that is its wire: asked, then killed.
    fn end_holder(&self) {
        let Some(holder) = self.holder() else { return };
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            // While the lock is held, the number is that process's own.
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

/// Removes what runs that were killed have left: beds that nobody holds and that were not left standing. How
/// many there were.
///
/// # Errors
/// When something of them stays.
pub fn remove_abandoned() -> Result<usize, Error> {
    let _turn = turn()?;
    let mut removed = 0;
    for bed in standing()? {
        let is_free = match File::open(bed.folder.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_ok(),
            // Whoever was about to make one was killed: nobody claims while we have the turn.
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if is_free && !bed.is_left() {
            bed.remove_in_turn()?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Waits for the turn to claim or to remove beds, which lasts as long as what this returns.
fn turn() -> Result<File, Error> {
    require_root()?;
    fs::create_dir_all(ROOT).tried(|| format!("make the folder '{ROOT}'"))?;
    let path = Path::new(ROOT).join(TURN);
    let file = File::create(&path).tried(|| format!("make '{}'", path.display()))?;
    file.lock().tried(|| format!("lock '{}'", path.display()))?;
    Ok(file)
}

/// Ends what runs in a bed's namespaces, and removes them.
fn clear(id: &str) -> Result<(), Error> {
    let prefix = format!("{id}-");
    let ours: Vec<String> = namespaces()?.into_iter().filter(|name| name.starts_with(&prefix)).collect();
    // FRR's daemons remove what they have outside of the bed when they are asked to end.
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let until = Instant::now() + PATIENCE;
        let mut left = running(&ours);
        left.iter().for_each(|pid| sys::signal(*pid, signal));
        while !left.is_empty() && Instant::now() < until {
            std::thread::sleep(LOOK);
            left = running(&ours);
            if signal == libc::SIGKILL {
                // What was started meanwhile.
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

/// Processes in namespaces, other than this one.
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

/// Whether this process may make and enter namespaces.
///
/// # Errors
/// When it is not root, with what to do.
pub fn require_root() -> Result<(), Error> {
    if sys::is_root() {
        return Ok(());
    }
    Err(Error::missing(
        "the testbed makes network namespaces, which needs root: run it with sudo, or inside `unshare -Urnm --map-root-user` with a \
         tmpfs on /run",
    ))
}

/// What has to be there before anything is made.
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

/// A name that nobody has, its folder, and its lock.
fn claim() -> Result<(PathBuf, File), Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Nobody takes the folder for abandoned before it has its lock.
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
