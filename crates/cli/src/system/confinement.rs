//! Confinement on Linux: Landlock for files, seccomp for system calls.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::sandbox::Paths;

/// Files of the kernel that sessions read: interfaces, counters, limits.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev/urandom"];
/// Newest version of Landlock whose rights are handled; older kernels handle fewer. Version 1 forbids all
/// renames between folders, which the store needs, and is not used.
const LANDLOCK: ABI = ABI::V5;

/// Lets the process open the files of `paths` alone. Returns false if the kernel cannot.
pub fn restrict_files(paths: &Paths) -> bool {
    !matches!(apply_ruleset(paths), Ok(RulesetStatus::NotEnforced) | Err(_))
}

fn apply_ruleset(paths: &Paths) -> Result<RulesetStatus, RulesetError> {
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
pub fn restrict_calls(listens: bool) -> Result<(), Box<dyn std::error::Error>> {
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
