//! The wire formats of Headwater: bytes to values and back. No time, no state, no unsafe.
//!
//! | module | format | source |
//! |---|---|---|
//! | [`lct`] | LCT header as a checked view | RFC 5651 |
//! | [`alc`] | one ALC packet as a value: header, extensions, FEC Payload ID | RFC 5775, RFC 6726 |
//! | [`extensions`] | EXT_TIME, _FTI, _FDT, _CENC; EXT_SEQ, _LEVELS, _MEMBERS | RFC 5651, 5775, 6726 |
//! | [`auth`] | EXT_AUTH, EXT_MANIFEST, EXT_KEY | ours, `docs/reference/wire/auth.md` |
//! | [`crypt`] | EXT_CRYPT: encrypted payloads | ours, `docs/reference/wire/crypt.md` |
//! | [`cci`] | the congestion control field in WEBRC's, RLC's and FLID-SL's shapes | RFC 3738, MCL library |
//! | [`fti`] | FEC object transmission information | RFC 5052, 5445, 5170, 5510, 6330 |
//! | [`fti::PayloadId`] | FEC Payload ID: source block number and encoding symbol ID | as above |
//! | [`fdt`] | FLUTE's file delivery table, in XML | RFC 6726 |
//! | [`sdp`] | session description in SDP, signed FDT document | RFC 8866, 4570, TS 26.346 |
//! | [`pgm`] | PGM packets and their options, encapsulated in UDP | RFC 3208 |
//! | [`amt`] | AMT messages, the IGMPv3 and MLDv2 messages and IP packets within | RFC 7450, 3376, 3810 |
//! | [`dns`] | queries for AMT relays | RFC 8777 |
//! | [`exchange`] | common header of the next five | ours |
//! | [`probe`] | probes of `headwater doctor` and their answers | ours, `docs/reference/wire/doctor.md` |
//! | [`rtt`] | round-trip questions of receivers to their sender | ours, `docs/reference/wire/rtt.md` |
//! | [`roster`] | reports of receivers to their sender, and replies | ours, `docs/reference/wire/roster.md` |
//! | [`sim`] | SIM's requests for feedback, and feedback | ours, `docs/reference/wire/sim.md` |
//! | [`bcfs`] | Breadcrumb Forwarding Service | ours, `docs/reference/wire/bcfs.md` |
//!
//! [`lct::Packet`] views bytes and keeps unknown codes; [`alc::Repr`] holds the fields that Headwater
//! understands, and can be written again. Reading or writing a packet allocates nothing. [`alc::parse`] is
//! the entry for the hot path.
//!
//! Bytes come from the network: no input panics, and each declaration states its bound.
#![forbid(unsafe_code)]

pub mod alc;
pub mod amt;
pub mod auth;
pub mod bcfs;
pub mod bytes;
pub mod cci;
pub mod crypt;
pub mod dns;
pub mod exchange;
pub mod extensions;
pub mod fdt;
pub mod fti;
pub mod lct;
pub mod pgm;
pub mod probe;
pub mod roster;
pub mod rtt;
pub mod sdp;
pub mod sim;

pub use cci::Cci;
pub use extensions::Extensions;
pub use fti::{EncodingId, Fti, PayloadId};
