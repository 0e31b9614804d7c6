//! Breadcrumb Forwarding Service (Yano, McCanne 1999, section 2): requests towards a source leave breadcrumbs
//! in routers, and replies follow the breadcrumbs back.
//!
//! A label names the requested content; each source has a label space of its own. A router forwards the first
//! request for a label and suppresses later requests of the same level or below, so that the requests of many
//! receivers reach the source as a single request. A reply is forwarded on all links that requested the
//! label, and removes the breadcrumbs of its level and below. There is no hop-by-hop acknowledgement: a
//! receiver repeats a lost request with a higher level.
//!
//! | the paper's call | here |
//! |---|---|
//! | `bcf_bind(label, mask)` | [`Client::bind`], [`Source::bind`] |
//! | `bcf_request(src, label, level, msg)` | [`Client::request`] |
//! | `bcf_reply(label, level, msg)` | [`Source::reply`] |
//! | `bcf_rcv(src, label, level, msg)` | [`Client::receive`], [`Source::receive`] |
//!
//! [`Client`] and [`Source`] are not machines: the application's machine embeds a client or a source, passes
//! datagrams in, and sends the returned datagrams. Both have no queues, and allocate only on construction.
//! [`BreadcrumbRouter`] is the router between source and clients, and [`relay`] runs that router on any host.
//! [`express`] and [`repair`] are two services on top.

mod bindings;
mod client;
pub mod express;
pub mod relay;
pub mod repair;
mod router;
mod source;
#[cfg(test)]
mod tests;

pub use bindings::{BINDINGS_MAX, TooManyBindings};
pub use client::{Client, Reply};
pub use headwater_wire::bcfs::{HEADER_BYTES_MAX, Label, Level};
pub use router::{
    BreadcrumbRouter, Counters, Dropped, ENTRIES, ENTRIES_MAX, RECENT_MAX, RouterConfig, Routes,
};
pub use source::{Asked, ReplyTo, ReturnPath, Source};

pub(crate) use router::table::{Key, address_words, hash};

use crate::time::Duration;

/// `T_refresh`: interval for which a router suppresses requests before a null reports to the source that the
/// requests still wait. A source also ignores a null for this long after a reply that answers the null.
pub const REFRESH: Duration = Duration::from_secs(1);

/// `T_expire`: lifetime of unused breadcrumbs.
pub const EXPIRY: Duration = Duration::from_secs(10);

/// Maximum length of a request's body, in bytes; routers drop requests with longer bodies.
pub const REQUEST_BODY_BYTES_MAX: usize = 512;
