//! Other file tools: UFTP, udpcast, NORM and OpenPGM, with options that let each tool coexist with other
//! traffic where possible.
//!
//! A receiver is complete when its file exists with full length; each tick checks the length. The contents
//! are compared at the end of the run. Bytes on the link are counted at the receiver's host, so no other flow
//! should end there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use headwater_netsim::plan::flow::{Flow, Member, Receivers, Transfer};
use headwater_netsim::plan::run::{Criteria, FlowOutcome, MemberOutcome, SessionOutcome};

use super::content;
use super::{Site, Traffic, Window, blank, port};
use crate::program::{Program, which};
use crate::results::Samples;
use crate::routing::Routing;
use crate::{Error, Tried};

/// Any-source groups, the only kind that these tools support.
const GROUPS: [&str; 3] = ["239.255.72.90", "239.255.72.91", "239.255.72.92"];
const TTL: &str = "8";
/// Bytes of content in a packet, for all.
const BLOCK_BYTES: &str = "1400";
/// OpenPGM is a library that comes with ZeroMQ. Its ends are a script for the distribution's Python, whose
/// ZeroMQ module contains OpenPGM.
const OPENPGM: &str = include_str!("openpgm.py");
const OPENPGM_FILE: &str = "openpgm.py";
const PYTHON: &str = "/usr/bin/python3";
/// Interval between readings of a host's byte counter.
const READING: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Receiver {
    member: Member,
    program: Option<Program>,
    file: PathBuf,
    /// Bytes that the host had received when the receiver started.
    before: u64,
    bytes: Samples,
    came: Duration,
    /// Instant at which the file was complete, and the bytes that the host had received by then.
    whole: Option<(Duration, u64)>,
}

/// A file transfer by a tool.
#[derive(Debug)]
pub(super) struct ToolFlow {
    flow: Flow,
    number: usize,
    transfer: Transfer,
    content: PathBuf,
    sender: Option<Program>,
    receivers: Vec<Receiver>,
    read: Duration,
}

impl ToolFlow {
    pub fn new(site: &Site<'_>, number: usize, flow: &Flow, transfer: Transfer) -> Result<Self, Error> {
        if site.bed.routing == Routing::Frr {
            return Err(Error::plan(format!(
                "flow '{}': {} knows any-source groups only, and the testbed's FRR routers source-specific ones: choose --routing bridge",
                flow.name, transfer.by
            )));
        }
        let (program, package) = match transfer.by {
            "uftp" => ("uftpd", "uftp"),
            "udpcast" => ("udp-receiver", "udpcast"),
            _ => ("", ""),
        };
        if !program.is_empty() && which(program).is_none() {
            return Err(Error::missing(format!(
                "'{program}' is not installed: install the package {package}, or leave {package} out"
            )));
        }
        if transfer.by == "norm" && site.norm.is_none() {
            return Err(Error::missing(
                "NORM is a library: build tests/speed/norm.cc with libnorm-dev, and say --norm PROGRAM",
            ));
        }
        if transfer.by == "openpgm" {
            openpgm(site)?;
        }
        let Receivers::Group(members) = &flow.to else { return Err(Error::plan("a transfer has receivers")) };
        let content = content::file(site, number);
        let receiver = |(place, member): (usize, &Member)| {
            let folder = site.folder(&format!("out-{number}-{place}"))?;
            Ok(Receiver {
                member: *member,
                program: None,
                file: folder.join(format!("content-{number}")),
                before: 0,
                bytes: Samples::default(),
                came: Duration::ZERO,
                whole: None,
            })
        };
        let receivers = members.iter().enumerate().map(receiver).collect::<Result<_, Error>>()?;
        let flow = flow.clone();
        Ok(Self { flow, number, transfer, content, sender: None, receivers, read: Duration::ZERO })
    }

    fn port(&self) -> String {
        port(self.number).to_string()
    }

    fn receive(&self, site: &Site<'_>, place: usize) -> Result<Vec<String>, Error> {
        let (one, port) = (&self.receivers[place], self.port());
        let folder = one.file.parent().unwrap_or(&one.file).display().to_string();
        let file = one.file.display().to_string();
        let number = place + 1;
        let words = match self.transfer.by {
            "uftp" => format!("uftpd -d -t -I eth0 -M {} -p {port} -U 0x{number:08X} -D {folder}", GROUPS[0]),
            "udpcast" => format!(
                "udp-receiver --mcast-rdv-address {} --portbase {port} --interface eth0 --ttl {TTL} --nokbd --no-progress --exit-wait 0 \
                 --file {file}",
                GROUPS[0]
            ),
            "openpgm" => self.openpgm(site, "receive", one.member.node, &file),
            _ => {
                let cache = site.folder(&format!("cache-{}-{place}", self.number))?;
                format!("receive {} {port} eth0 {number} {}/ {file}", GROUPS[0], cache.display())
            }
        };
        Ok(self.words(site, &words))
    }

    /// Splits a command line into words. For NORM, the program's path, which may contain blanks, comes first.
    fn words(&self, site: &Site<'_>, words: &str) -> Vec<String> {
        let norm = site.norm.iter().filter(|_| self.transfer.by == "norm");
        norm.map(|norm| norm.display().to_string()).chain(words.split(' ').map(str::to_owned)).collect()
    }

    /// Command line of an end of OpenPGM, which identifies its interface by the address.
    fn openpgm(&self, site: &Site<'_>, end: &str, host: usize, file: &str) -> String {
        let (script, own) = (site.bed.folder.join(OPENPGM_FILE), site.address(host));
        let rate = self.transfer.max_rate.as_bits() / 1_000;
        format!(
            "{PYTHON} -B {} {end} epgm://{own};{}:{} {rate} {file}",
            script.display(),
            GROUPS[0],
            self.port()
        )
    }

    fn send(&self, site: &Site<'_>) -> Vec<String> {
        let (port, file, count) = (self.port(), self.content.display(), self.receivers.len());
        let rate = self.transfer.max_rate.as_bits();
        let words = match self.transfer.by {
            // TFMCC, bounded by the rate in kbit/s.
            "uftp" => format!(
                "uftp -M {} -P {} -p {port} -I eth0 -t {TTL} -b {BLOCK_BYTES} -C tfmcc:max={} -R {} {file}",
                GROUPS[0],
                GROUPS[1],
                rate / 1_000,
                rate / 1_000
            ),
            // Slices, each acknowledged by all; no rate.
            "udpcast" => format!(
                "udp-sender --mcast-rdv-address {} --mcast-data-address {} --portbase {port} --interface eth0 --ttl {TTL} --nopointopoint \
                 --nokbd --no-progress --min-receivers {count} --blocksize {BLOCK_BYTES} --file {file}",
                GROUPS[0], GROUPS[2]
            ),
            // No congestion control: a rate in kbit/s.
            "openpgm" => self.openpgm(site, "send", self.flow.from, &file.to_string()),
            // Rate 0: NORM's own congestion control.
            _ => format!("send {} {port} eth0 0 {file} {count}", GROUPS[0]),
        };
        self.words(site, &words)
    }

    /// Returns the positions of receivers that had already ended before this look.
    fn ended(&mut self) -> Vec<usize> {
        let has_ended = |one: &mut Receiver| one.program.as_mut().is_some_and(Program::has_ended);
        let all = self.receivers.iter_mut().enumerate();
        all.filter_map(|(place, one)| has_ended(one).then_some(place)).collect()
    }

    /// Checks that a receiver that ended has the file, and that the sender, until all receivers are complete,
    /// either runs or has succeeded.
    fn check(&mut self, ended: &[usize]) -> Result<(), Error> {
        let is_complete = self.is_complete();
        let short = ended.iter().map(|place| &self.receivers[*place]).filter(|one| one.whole.is_none());
        let short = short.filter_map(|one| one.program.as_ref()).next();
        let failed = self.sender.as_mut().and_then(|sender| {
            (!is_complete && sender.has_ended() && sender.code() != Some(0)).then_some(&*sender)
        });
        match short.or(failed) {
            Some(program) => Err(Error::failed(format!(
                "{} ended before the file was there: {}",
                program.name,
                program.complaint()
            ))),
            None => Ok(()),
        }
    }

    fn look(&mut self, site: &Site<'_>) {
        let now = site.now();
        let reads = now.saturating_sub(self.read) >= READING;
        if reads {
            self.read = now;
        }
        for one in self.receivers.iter_mut().filter(|one| one.program.is_some() && one.whole.is_none()) {
            let is_whole = fs::metadata(&one.file).is_ok_and(|data| data.len() == self.transfer.size);
            if reads || is_whole {
                let bytes = site.bed.network.received_bytes(one.member.node).saturating_sub(one.before);
                one.bytes.push(now, bytes);
                if is_whole {
                    one.whole = Some((now, bytes));
                }
            }
        }
    }
}

/// Writes OpenPGM's script into the bed's folder, if the machine can run the script.
fn openpgm(site: &Site<'_>) -> Result<(), Error> {
    let asked = Command::new(PYTHON).args(["-c", "import sys, zmq; sys.exit(not zmq.has('pgm'))"]).output();
    if !asked.is_ok_and(|asked| asked.status.success()) {
        return Err(Error::missing(
            "OpenPGM comes with ZeroMQ: install the package python3-zmq, or leave openpgm out",
        ));
    }
    fs::write(site.bed.folder.join(OPENPGM_FILE), OPENPGM).tried(|| "write OpenPGM's script".into())
}

impl Traffic for ToolFlow {
    fn tick(&mut self, site: &Site<'_>) -> Result<(), Error> {
        let now = site.now();
        let is_due = |at: headwater_proto::Duration| Duration::from(at) <= now;
        for place in 0..self.receivers.len() {
            if self.receivers[place].program.is_none() && is_due(self.receivers[place].member.join) {
                let words = self.receive(site, place)?;
                let node = self.receivers[place].member.node;
                let name = format!("{}-receive-{place}", self.flow.name);
                let before = site.bed.network.received_bytes(node);
                let program = site.start(node, &name, words, false)?;
                let one = &mut self.receivers[place];
                (one.before, one.came, one.program) = (before, now, Some(program));
            }
        }
        if self.sender.is_none() && is_due(self.flow.start) {
            self.sender = Some(site.start(
                self.flow.from,
                &format!("{}-send", self.flow.name),
                self.send(site),
                false,
            )?);
        }
        let ended = self.ended();
        self.look(site);
        self.check(&ended)
    }

    fn is_complete(&self) -> bool {
        self.receivers.iter().all(|one| one.whole.is_some())
    }

    fn stop(&mut self, _: &Site<'_>) {
        let receivers = self.receivers.iter_mut().filter_map(|one| one.program.as_mut());
        for program in receivers.chain(self.sender.as_mut()) {
            program.end(libc::SIGTERM);
        }
    }

    fn outcome(&mut self, site: &Site<'_>, window: Window) -> Result<FlowOutcome, Error> {
        let content = fs::read(&self.content).tried(|| "read the content again".into())?;
        let (mut each, mut members, mut completions) = (Vec::new(), Vec::new(), Vec::new());
        for one in &self.receivers {
            if one.whole.is_some() && !fs::read(&one.file).is_ok_and(|copy| copy == content) {
                return Err(Error::failed(format!("{} wrote another file than was sent", self.transfer.by)));
            }
            let completion = one.whole.map(|(at, _)| at.saturating_sub(one.came).as_secs_f64());
            if let (Some(time), Some((_, bytes))) = (completion, one.whole) {
                completions.push(time);
                each.push(Criteria::of_transfer(time, self.transfer.size, bytes, (0, 0)));
            }
            let throughput = one.bytes.bits_per_second(window.from, window.to);
            members.push(MemberOutcome {
                node: site.node_name(one.member.node).to_owned(),
                throughput,
                goodput: completion.map_or(0.0, |time| 8.0 * self.transfer.size as f64 / time),
                loss: None,
                joins: 0,
                leaves: 0,
                join_latency: None,
                completion,
                duplicates: 0,
                rainbow: None,
            });
        }
        let mean =
            |of: fn(&MemberOutcome) -> f64| members.iter().map(of).sum::<f64>() / members.len().max(1) as f64;
        Ok(FlowOutcome {
            throughput: mean(|member| member.throughput),
            goodput: mean(|member| member.goodput),
            session: Some(SessionOutcome::of_completions(self.receivers.len(), &completions)),
            criteria: Criteria::mean(&each),
            members,
            ..blank(&self.flow)
        })
    }

    fn programs(&mut self) -> Vec<&mut Program> {
        self.receivers.iter_mut().filter_map(|one| one.program.as_mut()).chain(self.sender.as_mut()).collect()
    }
}
