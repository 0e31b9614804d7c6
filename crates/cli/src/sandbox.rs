//! Confinement of commands that read packets of strangers: the process opens files in its own folders alone
//! (Landlock), starts no program and uses no system call of administrators (seccomp), and gains no
//! privileges.
//!
//! A confinement holds for the calling thread and for threads started later: a command confines itself before
//! the session starts threads, and after the log and the capture are open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};
use nix::unistd::{User, setgid, setgroups, setuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::args::ConfineArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Files of the kernel that sessions read: interfaces, counters, limits.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev/urandom"];
/// Files that finding the address of a host reads.
pub const RESOLVER_FILES: [&str; 5] =
    ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];
/// Newest version of Landlock whose rights are handled; older kernels handle fewer. Version 1 forbids all
/// renames between folders, which the store needs, and is not used.
const LANDLOCK: ABI = ABI::V5;

/// Folders and files of a command.
#[derive(Default)]
pub struct Paths {
    /// Files, and folders with all below.
    pub read: Vec<PathBuf>,
    /// Folders in which files are made.
    pub write: Vec<PathBuf>,
    /// Folders of the same kind, made if they are missing.
    pub folders: Vec<PathBuf>,
    /// Folder of the same kind that the session can do without.
    pub optional: Option<PathBuf>,
    /// File that is written, made if it is missing.
    pub file: Option<PathBuf>,
    /// Whether the command accepts connections, at sockets that listen already.
    pub listens: bool,
}

impl Paths {
    /// Makes what is missing, as the user that the process has become. The session reports why it cannot be
    /// made.
    fn make(&self) {
        for folder in self.folders.iter().chain(&self.optional) {
            std::fs::create_dir_all(folder).ok();
        }
        if let Some(file) = self.file.as_ref().filter(|file| !file.exists()) {
            std::fs::File::create(file).ok();
        }
    }

    fn written(&self) -> impl Iterator<Item = &Path> {
        let needed = self.write.iter().chain(&self.folders).chain(&self.file).map(|path| existing(path));
        needed.chain(self.optional.iter().map(PathBuf::as_path).filter(|path| path.exists()))
    }
}

/// Confines the process, unless the command line says otherwise. A kernel without Landlock causes a warning.
///
/// # Errors
/// If the process cannot become the user of `--user`.
pub fn confine(args: &ConfineArgs, paths: &Paths) -> Result<(), Failure> {
    if let Some(name) = &args.user {
        become_user(name)?;
    }
    paths.make();
    if args.no_sandbox {
        return Ok(());
    }
    let hint = "--no-sandbox leaves this out";
    match restrict_files(paths) {
        Ok(RulesetStatus::NotEnforced) | Err(_) => {
            tracing::warn!(
                "this kernel has no Landlock of version 2 (Linux 5.19): the process may open any file; {hint}"
            );
        }
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
    }
    if let Err(error) = restrict_calls(paths.listens) {
        tracing::warn!("the process may start programs: {error}; {hint}");
    }
    Ok(())
}

/// Takes the identity of a user, for good.
pub fn become_user(name: &str) -> Result<(), Failure> {
    let attempt = || format!("cannot become the user '{name}'");
    let user = User::from_name(name)
        .or_exit(Exit::Usage, attempt())?
        .ok_or_else(|| Failure::new(Exit::Usage, format!("{}: there is no such user", attempt())))?;
    setgroups(&[user.gid]).or_exit(Exit::Other, attempt())?;
    setgid(user.gid).or_exit(Exit::Other, attempt())?;
    setuid(user.uid).or_exit(Exit::Other, attempt())?;
    // The change of the user has ended the tie to the supervisor.
    crate::serve::follow_supervisor();
    Ok(())
}

fn restrict_files(paths: &Paths) -> Result<RulesetStatus, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let never = AccessFs::Execute
        | AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::IoctlDev;
    let write = AccessFs::from_all(LANDLOCK) & !never;
    let system: Vec<&Path> = SYSTEM.iter().map(Path::new).collect();
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(system, read))?
        .add_rules(path_beneath_rules(&paths.read, read))?
        .add_rules(path_beneath_rules(paths.written(), write))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// Returns a path, or the nearest folder above if the path is missing: the session reports why.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
}

/// System calls that no session needs: other programs, other processes, the machine's administration, and the
/// interfaces to the kernel in which most escapes were found.
const FORBIDDEN: [i64; 31] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_open_by_handle_at,
];

/// System calls of a server, which other commands do not need. A server listens before it is confined.
const SERVER: [i64; 2] = [libc::SYS_accept, libc::SYS_accept4];

/// Families of sockets that may be opened.
const FAMILIES: [i32; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];

/// Makes the forbidden system calls fail with EPERM.
fn restrict_calls(listens: bool) -> Result<(), Box<dyn std::error::Error>> {
    let server = SERVER.iter().filter(|_| !listens);
    let forbidden = FORBIDDEN.iter().chain([&libc::SYS_listen]).chain(server);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = forbidden.map(|number| (*number, Vec::new())).collect();
    let other = |family: &i32| {
        let family = u64::from(family.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    };
    let foreign = SeccompRule::new(FAMILIES.iter().map(other).collect::<Result<_, _>>()?)?;
    rules.insert(libc::SYS_socket, vec![foreign]);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;

    const FOLDER: &str = "HEADWATER_TEST_CONFINED_FOLDER";

    /// Runs in a process of its own: a confinement cannot be undone.
    #[test]
    fn a_confined_process_opens_its_folders_alone_and_starts_nothing() {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("read")).unwrap();
            fs::write(folder.path().join("read/file"), "content").unwrap();
            fs::write(folder.path().join("secret"), "content").unwrap();
            let name = "sandbox::tests::a_confined_process_opens_its_folders_alone_and_starts_nothing";
            let run = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(FOLDER, folder.path())
                .output()
                .unwrap();
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            return;
        };
        let paths = Paths {
            read: vec![folder.join("read")],
            folders: vec![folder.join("out/deep")],
            ..Paths::default()
        };
        paths.make();
        let has_landlock = Path::new("/sys/kernel/security/landlock").exists()
            || matches!(restrict_files(&paths), Ok(RulesetStatus::FullyEnforced));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        confine(&ConfineArgs::default(), &paths).unwrap();
        let refused = |result: std::io::Result<()>| {
            assert_eq!(result.expect_err("refused").kind(), ErrorKind::PermissionDenied);
        };
        assert_eq!(fs::read_to_string(folder.join("read/file")).unwrap(), "content");
        fs::write(folder.join("out/deep/file"), "content").unwrap();
        fs::create_dir(folder.join("out/deep/folder")).unwrap();
        fs::rename(folder.join("out/deep/file"), folder.join("out/deep/folder/file")).unwrap();
        File::open("/proc/net/dev").unwrap();
        if has_landlock {
            refused(File::open(folder.join("secret")).map(drop));
            refused(File::open("/etc/passwd").map(drop));
            refused(fs::write(folder.join("read/file"), "other"));
            refused(fs::write(folder.join("out/file"), "other"));
        }
        refused(Command::new("/bin/true").status().map(drop));
        refused(std::thread::spawn(|| Command::new("/bin/true").status().map(drop)).join().unwrap());
        // AF_VSOCK.
        let vsock = socket2::Socket::new(socket2::Domain::from(40), socket2::Type::DGRAM, None);
        refused(vsock.map(drop));
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        refused(std::net::TcpListener::bind("127.0.0.1:0").map(drop));
        refused(listener.accept().map(drop));
    }

    #[test]
    fn an_unknown_user_is_named() {
        let args = ConfineArgs { user: Some("no such user".into()), no_sandbox: true };
        let failure = confine(&args, &Paths::default()).expect_err("refused");
        assert!(failure.chain().contains("'no such user'"), "{}", failure.chain());
    }
}
