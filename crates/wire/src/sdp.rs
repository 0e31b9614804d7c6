//! Session description in SDP (RFC 8866) with the attributes of FLUTE (3GPP TS 26.346, section 7.3): group,
//! source, transport session identifier, and paths to a session beside multicast.
//!
//! | attribute | meaning | source |
//! |---|---|---|
//! | `flute-tsi`, `flute-ch` | session identifier; number of channels, counted up from the base | TS 26.346 |
//! | `source-filter` | address of the sender | RFC 4570 |
//! | `FEC-declaration` | FEC encoding ID of the content | TS 26.346 |
//! | `x-hw-key` | the sender's public key, in OpenSSH's form | ours |
//! | `x-hw-http`, `x-hw-fdt` | base URL of the files, URL of the FDT; relative to the description | ours |
//! | `x-hw-rainbow` | source that answers requests, and perhaps a relay on the way | ours |
//! | `x-hw-amt` | AMT relay (RFC 7450); empty: to be discovered | ours |
//!
//! Unknown lines and attributes are skipped. A text has at most [`SDP_BYTES_MAX`] bytes.

use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Longest description in bytes.
pub const SDP_BYTES_MAX: usize = 16 << 10;
/// Largest transport session identifier, of 48 bits, and number of channels.
const TSI_MAX: u64 = (1 << 48) - 1;
const CHANNELS_MAX: u64 = 256;
/// Longest URL or name in bytes.
const VALUE_BYTES_MAX: usize = 2 << 10;
/// Time to live in an IPv4 connection line that states none.
const TTL_DEFAULT: u8 = 127;
/// OpenSSH's binary form of an Ed25519 key, in front of the key's 32 bytes.
const KEY_HEAD: [u8; 19] = *b"\0\0\0\x0bssh-ed25519\0\0\0\x20";
const KEY_KIND: &str = "ssh-ed25519";

/// Description of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionDescription {
    /// Version of the description, which grows with each change.
    pub version: u64,
    /// Groups of the session's channels; `None` for a session without multicast.
    pub groups: Option<Groups>,
    /// Address of the sender.
    pub source: Option<IpAddr>,
    /// Transport session identifier.
    pub tsi: Option<u64>,
    /// FEC encoding ID of the content.
    pub encoding_id: Option<u8>,
    /// Public key of the sender.
    pub key: Option<[u8; 32]>,
    /// Base URL of the files on an HTTP server.
    pub http: Option<String>,
    /// URL of the session's FDT.
    pub fdt: Option<String>,
    /// Source that answers requests for packets.
    pub rainbow: Option<RequestSource>,
    /// AMT relay by address or name; empty if the relay is to be discovered.
    pub amt: Option<String>,
}

/// Multicast groups of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Group and port of the base channel.
    pub base: SocketAddr,
    /// Number of channels, whose groups count up from the base.
    pub count: u16,
    /// Time to live of IPv4 packets.
    pub ttl: u8,
}

/// Source of a session on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSource {
    /// Address of the source.
    pub source: SocketAddr,
    /// Relay that requests go to, if not the source.
    pub via: Option<SocketAddr>,
}

/// Reason for which a text is no session description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// The text is too long.
    #[error("the text has more than {SDP_BYTES_MAX} bytes")]
    Length,
    /// The text is not UTF-8, or does not begin as SDP does.
    #[error("the text does not begin with v=0")]
    Version,
    /// A line has no usable value.
    #[error("line {line} has no usable value: {text:?}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The line's beginning.
        text: String,
    },
    /// The description has neither a FLUTE medium nor a path of ours.
    #[error("it describes no FLUTE session (m=application PORT FLUTE/UDP 0) and names no other path")]
    NoSession,
}

/// Part of the description that a line belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Session,
    /// The first FLUTE medium: the base channel.
    Flute,
    /// Any other medium, which is skipped.
    Other,
}

/// Fields of several lines, until the end of the text.
#[derive(Default)]
struct Fields {
    description: SessionDescription,
    port: Option<u16>,
    channels: Option<u16>,
    /// Address, time to live and number of addresses.
    connection: Option<(IpAddr, u8, u16)>,
}

impl SessionDescription {
    /// Parses a description.
    ///
    /// # Errors
    /// If the text is no description of a session.
    pub fn parse(bytes: &[u8]) -> Result<Self, SdpError> {
        if bytes.len() > SDP_BYTES_MAX {
            return Err(SdpError::Length);
        }
        let text = core::str::from_utf8(bytes).map_err(|_| SdpError::Version)?;
        let mut lines = text.lines().map(str::trim_end).enumerate();
        if lines.next().is_none_or(|(_, line)| line != "v=0") {
            return Err(SdpError::Version);
        }
        let (mut fields, mut section) = (Fields::default(), Section::Session);
        for (index, line) in lines {
            let Some((kind, value)) = line.split_once('=') else { continue };
            let taken = match (kind, section) {
                ("m", _) if fields.port.is_none() && value.contains(" FLUTE/UDP") => {
                    section = Section::Flute;
                    fields.take_media(value)
                }
                ("m", _) => {
                    section = Section::Other;
                    Some(())
                }
                (_, Section::Other) => Some(()),
                ("c", _) => fields.take_connection(value),
                ("o", Section::Session) => fields.take_origin(value),
                ("a", _) => fields.take_attribute(value),
                _ => Some(()),
            };
            if taken.is_none() {
                let text = line.chars().take(60).collect();
                return Err(SdpError::Line { line: index + 1, text });
            }
        }
        fields.finish()
    }

    /// Returns the description as text.
    pub fn to_text(&self) -> String {
        let address = self.source.unwrap_or(IpAddr::V4([0, 0, 0, 0].into()));
        let (tsi, version) = (self.tsi.unwrap_or_default(), self.version);
        let mut text =
            format!("v=0\r\no=- {tsi} {version} IN {} {address}\r\ns=Headwater\r\n", family(address));
        let mut line = |arguments: core::fmt::Arguments<'_>| {
            text.write_fmt(arguments).and_then(|()| text.write_str("\r\n")).expect("a String takes all text");
        };
        line(format_args!("t=0 0"));
        if let Some(source) = self.source {
            line(format_args!("a=source-filter: incl IN {} * {source}", family(source)));
        }
        if let Some(tsi) = self.tsi {
            line(format_args!("a=flute-tsi:{tsi}"));
        }
        if let Some(id) = self.encoding_id {
            line(format_args!("a=FEC-declaration:0 encoding-id={id}"));
        }
        if let Some(key) = &self.key {
            line(format_args!("a=x-hw-key:{KEY_KIND} {}", STANDARD.encode([&KEY_HEAD[..], key].concat())));
        }
        if let Some(RequestSource { source, via }) = self.rainbow {
            let via = via.map_or_else(String::new, |via| format!(" {via}"));
            line(format_args!("a=x-hw-rainbow:{source}{via}"));
        }
        for (name, value) in [("http", &self.http), ("fdt", &self.fdt), ("amt", &self.amt)] {
            if let Some(value) = value {
                line(format_args!("a=x-hw-{name}:{value}"));
            }
        }
        if let Some(Groups { base, count, ttl }) = self.groups {
            line(format_args!("a=flute-ch:{count}"));
            line(format_args!("m=application {} FLUTE/UDP 0", base.port()));
            match base.ip() {
                IpAddr::V4(group) => line(format_args!("c=IN IP4 {group}/{ttl}/{count}")),
                IpAddr::V6(group) => line(format_args!("c=IN IP6 {group}/{count}")),
            }
            if self.encoding_id.is_some() {
                line(format_args!("a=FEC:0"));
            }
        }
        text
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IP4" } else { "IP6" }
}

impl Fields {
    /// Takes `application 7287 FLUTE/UDP 0`.
    fn take_media(&mut self, value: &str) -> Option<()> {
        let port = value.split(' ').nth(1)?.split('/').next()?.parse().ok().filter(|port| *port > 0)?;
        self.port = Some(port);
        Some(())
    }

    /// Takes `- 5 1 IN IP4 192.0.2.1`. Other senders write anything as a version.
    fn take_origin(&mut self, value: &str) -> Option<()> {
        let version = value.split(' ').nth(2).and_then(|version| version.parse().ok());
        self.description.version = version.unwrap_or_default();
        Some(())
    }

    /// Takes `IN IP4 239.1.2.3/1/12`. A line of the medium replaces the line of the session.
    fn take_connection(&mut self, value: &str) -> Option<()> {
        let text = value.strip_prefix("IN IP4 ").or_else(|| value.strip_prefix("IN IP6 "))?;
        let mut parts = text.trim().split('/');
        let address: IpAddr = parts.next()?.parse().ok()?;
        let ttl = if address.is_ipv4() { parts.next().map(str::parse) } else { None };
        let ttl = ttl.transpose().ok()?.unwrap_or(TTL_DEFAULT);
        let count = parts.next().map(str::parse).transpose().ok()?.unwrap_or(1);
        self.connection = Some((address, ttl, count));
        Some(())
    }

    fn take_attribute(&mut self, value: &str) -> Option<()> {
        let (name, value) = value.split_once(':').unwrap_or((value, ""));
        let value = value.trim();
        let description = &mut self.description;
        match name {
            "flute-tsi" => description.tsi = Some(number(value, TSI_MAX)?),
            "flute-ch" => self.channels = u16::try_from(number(value, CHANNELS_MAX)?).ok(),
            "source-filter" => description.source = source(value).or(description.source),
            "FEC-declaration" => {
                let id = value.split([' ', ';']).find_map(|word| word.strip_prefix("encoding-id="));
                description.encoding_id = id.and_then(|id| id.parse().ok()).or(description.encoding_id);
            }
            "x-hw-key" => description.key = Some(key(value)?),
            "x-hw-http" => description.http = Some(graphic(value)?),
            "x-hw-fdt" => description.fdt = Some(graphic(value)?),
            "x-hw-amt" => {
                description.amt = Some(graphic(value).or_else(|| value.is_empty().then(String::new))?);
            }
            "x-hw-rainbow" => {
                let mut words = value.split(' ').map(str::parse);
                let source = words.next()?.ok()?;
                description.rainbow = Some(RequestSource { source, via: words.next().transpose().ok()? });
            }
            _ => {}
        }
        Some(())
    }

    fn finish(self) -> Result<SessionDescription, SdpError> {
        let mut description = self.description;
        if let (Some(port), Some((address, ttl, count))) = (self.port, self.connection)
            && address.is_multicast()
        {
            let ttl = if address.is_ipv4() { ttl } else { TTL_DEFAULT };
            let count = self.channels.unwrap_or(count).clamp(1, 256);
            description.groups = Some(Groups { base: (address, port).into(), count, ttl });
        }
        let has_path = description.groups.is_some() || description.rainbow.is_some();
        let is_session = has_path || (description.http.is_some() && description.fdt.is_some());
        if is_session { Ok(description) } else { Err(SdpError::NoSession) }
    }
}

/// Parses a number from 1 to `most`.
fn number(text: &str, most: u64) -> Option<u64> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

/// Returns the first source of `incl IN IP4 * 192.0.2.1`; `None` for a list of excluded sources.
fn source(text: &str) -> Option<IpAddr> {
    let mut words = text.split_ascii_whitespace();
    let is_included = words.next() == Some("incl") && words.next() == Some("IN");
    words.nth(2).filter(|_| is_included)?.parse().ok()
}

/// Parses a key as OpenSSH writes it, perhaps with a comment behind.
fn key(text: &str) -> Option<[u8; 32]> {
    let blob = text.strip_prefix(KEY_KIND)?.trim_start().split(' ').next()?;
    let blob = STANDARD.decode(blob).ok()?;
    blob.strip_prefix(&KEY_HEAD)?.try_into().ok()
}

/// Returns a text of printable ASCII characters without spaces, of 1 to [`VALUE_BYTES_MAX`] bytes.
fn graphic(text: &str) -> Option<String> {
    let is_graphic =
        (1..=VALUE_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_graphic.then(|| text.to_owned())
}

/// Context of the signature of an FDT document.
const FDT_CONTEXT: &[u8] = b"headwater fdt 1\0";
const SIGNATURE_BEGIN: &str = "\n<!-- hw-signature ";
const SIGNATURE_END: &str = " -->\n";

/// FDT of a session as a document, in XML. A signed document ends with a comment of the session's identifier,
/// the session's start and the signature, so that XML parsers accept the document as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdtDocument<'a> {
    /// The FDT instance.
    pub xml: &'a str,
    /// Signature of the sender.
    pub signature: Option<FdtSignature>,
}

/// Signature of an FDT document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdtSignature {
    /// Transport session identifier.
    pub tsi: u64,
    /// Start of the session, in seconds of the NTP era.
    pub started: u32,
    /// Ed25519 signature of [`signed_fdt`].
    pub bytes: [u8; 64],
}

impl<'a> FdtDocument<'a> {
    /// Splits a document; a document without a signature is unsigned. `None` for bytes that are not UTF-8.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok()?;
        let signed = text.strip_suffix(SIGNATURE_END).and_then(|text| {
            let (xml, words) = text.rsplit_once(SIGNATURE_BEGIN)?;
            let mut words = words.split(' ');
            let (tsi, started) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let bytes = STANDARD.decode(words.next()?).ok()?.try_into().ok()?;
            Some(Self { xml, signature: Some(FdtSignature { tsi, started, bytes }) })
        });
        Some(signed.unwrap_or(Self { xml: text, signature: None }))
    }

    /// Returns the document as text.
    pub fn to_text(&self) -> String {
        let Some(FdtSignature { tsi, started, bytes }) = &self.signature else { return self.xml.to_owned() };
        format!("{}{SIGNATURE_BEGIN}{tsi} {started} {}{SIGNATURE_END}", self.xml, STANDARD.encode(bytes))
    }
}

/// Returns the bytes that the signature of an FDT document signs.
pub fn signed_fdt(tsi: u64, started: u32, xml: &str) -> Vec<u8> {
    [FDT_CONTEXT, &tsi.to_be_bytes(), &started.to_be_bytes(), xml.as_bytes()].concat()
}
