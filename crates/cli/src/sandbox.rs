//! Confinement of commands that read packets of strangers: the process opens files in its own folders alone
//! (Landlock), starts no program and uses no system call of administrators (seccomp), and gains no
//! privileges. Linux only: other systems give a warning.
//!
//! A confinement holds for the calling thread and for threads started later: a command confines itself before
//! the session starts threads, and after the log and the capture are open.

use std::path::{Path, PathBuf};

use crate::args::ConfineArgs;
use crate::exit::Failure;
pub use crate::system::become_user;
#[cfg(target_os = "linux")]
use crate::system::confinement;

/// Files that finding the address of a host reads.
pub const RESOLVER_FILES: [&str; 5] =
    ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];
/// Folders and files of a command.
#[derive(Default)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux confines processes"))]
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

    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux confines processes"))]
    pub fn written(&self) -> impl Iterator<Item = &Path> {
        let needed = self.write.iter().chain(&self.folders).chain(&self.file).map(|path| existing(path));
        needed.chain(self.optional.iter().map(PathBuf::as_path).filter(|path| path.exists()))
    }
}

/// Confines the process, unless the command line says otherwise. A kernel without Landlock, or another
/// system, causes a warning.
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
    #[cfg(target_os = "linux")]
    {
        if !confinement::restrict_files(paths) {
            tracing::warn!(
                "this kernel has no Landlock of version 2 (Linux 5.19): the process may open any file; {hint}"
            );
        }
        if let Err(error) = confinement::restrict_calls(paths.listens) {
            tracing::warn!("the process may start programs: {error}; {hint}");
        }
    }
    #[cfg(not(target_os = "linux"))]
    tracing::warn!("this system has no confinement: the process may open any file; {hint}");
    Ok(())
}

/// Returns a path, or the nearest folder above if the path is missing: the session reports why.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
}

#[cfg(all(test, target_os = "linux"))]
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
        let has_landlock =
            Path::new("/sys/kernel/security/landlock").exists() || confinement::restrict_files(&paths);
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
        // Landlock would say EACCES: the call itself is forbidden.
        let forbidden = |result: std::io::Result<()>| {
            assert_eq!(result.expect_err("forbidden").raw_os_error(), Some(libc::EPERM));
        };
        forbidden(Command::new("/bin/true").status().map(drop));
        forbidden(std::thread::spawn(|| Command::new("/bin/true").status().map(drop)).join().unwrap());
        // AF_VSOCK.
        let vsock = socket2::Socket::new(socket2::Domain::from(40), socket2::Type::DGRAM, None);
        forbidden(vsock.map(drop));
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        forbidden(std::net::TcpListener::bind("127.0.0.1:0").map(drop));
        forbidden(listener.accept().map(drop));
    }

    #[test]
    fn an_unknown_user_is_named() {
        let args = ConfineArgs { user: Some("no such user".into()), no_sandbox: true };
        let failure = confine(&args, &Paths::default()).expect_err("refused");
        assert!(failure.chain().contains("'no such user'"), "{}", failure.chain());
    }
}
