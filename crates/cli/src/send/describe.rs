//! Description of a sending session (SDP) for the server of `--http` and for the file of `--sdp`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater::{PublishedFiles, RequestSource, SendSession, SessionDescription};
use headwater_web::FileServerSocket;

use crate::args::SendArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Names of the files and of the FDT relative to the description of `--http`.
const FILES: &str = "files/";
const FDT: &str = "session.fdt";

/// FDT of a session in a file beside the description, kept up to date.
pub struct FdtFile {
    path: PathBuf,
    files: PublishedFiles,
    /// Content that the file has.
    written: Option<Arc<str>>,
}

/// Publishes the description, if anybody can read it. Returns the file of the FDT.
pub fn publish(
    args: &SendArgs,
    session: &SendSession,
    socket: Option<&FileServerSocket>,
) -> Result<Option<FdtFile>, Failure> {
    if args.dry_run || (socket.is_none() && args.repair.sdp.is_none()) {
        return Ok(None);
    }
    let files = session.published();
    let description = describe(args, session, socket);
    let with_urls = |http: Option<String>, fdt: Option<String>| {
        SessionDescription { http, fdt, ..description.clone() }.to_text()
    };
    files.describe(&with_urls(Some(FILES.to_owned()), Some(FDT.to_owned())));
    let Some(path) = &args.repair.sdp else { return Ok(None) };
    let fdt_path = path.with_extension("fdt");
    // Content in the clear is not described with --group-key.
    let may_describe = args.keys.group_key.is_none();
    let fdt_name = fdt_path.file_name().map(|name| name.to_string_lossy().into_owned());
    let own = session.started().source.ip();
    let http = args.repair.repair_url.clone().or_else(|| socket.map(|socket| socket.base_url(own)));
    let text = with_urls(http.filter(|_| may_describe), fdt_name.filter(|_| may_describe));
    write(path, &text)?;
    Ok(may_describe.then_some(FdtFile { path: fdt_path, files, written: None }))
}

/// Returns the description without URLs.
fn describe(args: &SendArgs, session: &SendSession, socket: Option<&FileServerSocket>) -> SessionDescription {
    let mut description = session.description();
    if let Some(source) = args.repair.sdp_rainbow {
        description.rainbow = Some(RequestSource { source, via: args.repair.sdp_relay });
    }
    description.amt.clone_from(&args.repair.sdp_amt);
    if description.groups.is_none() && description.rainbow.is_none() {
        // Requests are accepted at all addresses; the address of the server is one that receivers reach.
        let own = socket.map(|socket| socket.address().ip()).filter(|ip| !ip.is_unspecified());
        let port = session.started().listen.first().map_or(0, SocketAddr::port);
        description.rainbow = own.map(|ip| RequestSource { source: (ip, port).into(), via: None });
        if own.is_none() {
            tracing::warn!(
                "the description names no address for requests: name one by --listen or --sdp-rainbow"
            );
        }
    }
    description
}

impl FdtFile {
    /// Writes the FDT if it has changed.
    pub fn update(&mut self) {
        let Some(fdt) = self.files.fdt() else { return };
        if self.written.as_ref().is_none_or(|written| !Arc::ptr_eq(written, &fdt)) {
            if let Err(failure) = write(&self.path, &fdt) {
                tracing::warn!("{}", failure.chain());
            }
            self.written = Some(fdt);
        }
    }
}

/// Replaces a file, which no reader sees in part.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.or_exit(Exit::Disk, format!("cannot write '{}'", path.display()))
}
