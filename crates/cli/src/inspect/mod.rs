//! `headwater inspect FILE`: the packets of a capture, field by field.

mod capture;
mod controls;
mod fdt;
mod fields;
mod json;
mod packet;
mod pgm;
mod text;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::args::InspectArgs;
use crate::exit::{Exit, Failure, OrExit};
use capture::{Datagram, Frame};
use controls::Controls;
use fdt::FdtAssembly;
use packet::Content;

/// Shows a capture on standard output. Succeeds, too, if the reader closes the output.
pub fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    let tried = || format!("cannot read the capture '{}'", args.file.display());
    let mut capture = capture::open(open(&args.file).or_exit(Exit::Disk, tried())?)
        .or_exit(Exit::Disk, format!("{}; is it in pcap or pcapng format?", tried()))?;
    let mut inspection = Inspection::new(args);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = inspection.begin(&mut out);
    while written.is_ok() {
        let Some(frame) = capture.next_frame() else { break };
        match frame {
            Ok(frame) => written = inspection.show(&frame, &mut out),
            Err(error) => {
                let shown = inspection.frames;
                out.flush().or_exit(Exit::Other, "cannot write to standard output")?;
                return Err(error)
                    .or_exit(Exit::Disk, format!("{} beyond frame {shown}; is it cut short?", tried()));
            }
        }
    }
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).or_exit(Exit::Other, "cannot write to standard output")
        }
        _ => {
            inspection.report(&args.file);
            Ok(Exit::Ok)
        }
    }
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") { Ok(Box::new(io::stdin().lock())) } else { Ok(Box::new(File::open(path)?)) }
}

/// Iteration over a capture.
struct Inspection<'a> {
    args: &'a InspectArgs,
    start: Option<Duration>,
    frames: u64,
    packets: u64,
    fdt: FdtAssembly,
    controls: Controls,
}

impl<'a> Inspection<'a> {
    fn new(args: &'a InspectArgs) -> Self {
        Self {
            args,
            start: None,
            frames: 0,
            packets: 0,
            fdt: FdtAssembly::default(),
            controls: Controls::default(),
        }
    }

    fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        match self.args.fields {
            Some(_) => writeln!(out, "{}", fields::header()),
            None => Ok(()),
        }
    }

    fn show(&mut self, frame: &Frame, out: &mut impl Write) -> io::Result<()> {
        self.frames += 1;
        let start = *self.start.get_or_insert(frame.time);
        let wanted =
            |datagram: &Datagram<'_>| self.args.port.is_none_or(|port| datagram.destination.port() == port);
        let datagram = frame.link.datagram(&frame.bytes).filter(wanted);
        let content = datagram.as_ref().map(|datagram| {
            let ports = [datagram.source.port(), datagram.destination.port()];
            Content::new(datagram.payload, ports, self.args.port.is_some())
        });
        if let Some(Ok(_)) = content {
            self.packets += 1;
        }
        if self.args.fields.is_some() {
            let packet = content.as_ref().and_then(|content| content.as_ref().ok()?.packet.as_ref());
            let length = datagram.map(|datagram| datagram.udp_length);
            return writeln!(out, "{}", fields::row(self.frames, length, packet));
        }
        let (Some(datagram), Some(content)) = (datagram, content) else { return Ok(()) };
        let time = frame.time.saturating_sub(start).as_secs_f64();
        match content {
            Ok(content) => self.packet(time, &datagram, &content, out),
            // Without a port, packets of other protocols are not shown.
            Err(_) if self.args.port.is_none() => Ok(()),
            Err(error) => self.no_packet(time, &datagram, error, out),
        }
    }

    fn packet(
        &mut self,
        time: f64,
        datagram: &Datagram<'_>,
        content: &Content<'_>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Content { envelope, packet } = content;
        let fdt = packet.as_ref().and_then(|packet| {
            let fdt = self.fdt.take(datagram.source, packet.alc.as_ref().ok()?, packet.symbols)?;
            self.controls.learn(datagram.source, packet.lct.tsi()?, &fdt);
            Some(fdt)
        });
        let packet = packet.as_ref();
        let is_flid = packet.is_some_and(|packet| self.controls.is_flid(datagram.source, packet.lct.tsi()));
        if self.args.json {
            let line = self.line(time, datagram).with_envelope(envelope.as_ref());
            return Self::json(
                &match packet {
                    Some(packet) => line.with_packet(packet, is_flid, fdt.as_deref()),
                    None => line,
                },
                out,
            );
        }
        let parts =
            [envelope.as_ref().map(pgm::Fields::line), packet.map(|packet| text::line(packet, is_flid))];
        let line = parts.into_iter().flatten().collect::<Vec<_>>().join(" | ");
        writeln!(out, "{} {line}", self.prefix(time, datagram))?;
        if let Some(xml) = fdt {
            for line in xml.lines() {
                writeln!(out, "        | {}", harmless(line))?;
            }
        }
        Ok(())
    }

    fn no_packet(
        &self,
        time: f64,
        datagram: &Datagram<'_>,
        error: String,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if self.args.json {
            return Self::json(&self.line(time, datagram).with_error(error), out);
        }
        writeln!(out, "{} neither ALC nor PGM: {error}", self.prefix(time, datagram))
    }

    fn prefix(&self, time: f64, datagram: &Datagram<'_>) -> String {
        format!("{:>6} {time:>11.6} {} > {}", self.frames, datagram.source, datagram.destination)
    }

    fn line<'b>(&self, time: f64, datagram: &Datagram<'_>) -> json::Line<'b> {
        json::Line::new(self.frames, time, datagram.source.to_string(), datagram.destination.to_string())
    }

    fn json(line: &json::Line<'_>, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, line)?;
        out.write_all(b"\n")
    }

    /// Reports on standard error that no packet was found, with possible reasons.
    fn report(&self, path: &Path) {
        if self.packets > 0 {
            return;
        }
        let hint = match self.args.port {
            Some(port) => format!(" to UDP port {port}; leave out --port to look at all ports"),
            None => "; was it taken on the session's interface?".into(),
        };
        eprintln!(
            "headwater: no packet of ALC or PGM in the {} frames of '{}'{hint}",
            self.frames,
            path.display()
        );
    }
}

/// Escapes text of a sender for the terminal: control characters could rewrite the screen.
fn harmless(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
