//! The Breadcrumb Forwarding Service (Yano, McCanne 1999, section 2): requests towards a source leave
//! breadcrumbs in routers, replies follow them back.
//!
//! A label names what is asked for; each source has labels of its own. A router sends on the first request
//! for a label and holds back those of the same level or below, so that many receivers become one to the
//! source; a reply goes out by all links that asked, and takes away the breadcrumbs of its level and below.
//! Nothing is acknowledged hop by hop: what is lost is asked for again with a higher level.
//!
//! | the paper's call | here |
//! |---|---|
//! | `bcf_bind(label, mask)` | [`Client::bind`], [`Source::bind`] |
//! | `bcf_request(src, label, level, msg)` | [`Client::request`] |
//! | `bcf_reply(label, level, msg)` | [`Source::reply`] |
//! | `bcf_rcv(src, label, level, msg)` | [`Client::receive`], [`Source::receive`] |
//!
//! [`Client`] and [`Source`] are no machines: an application's machine embeds one, hands it datagrams and
//! puts out what it returns. They have no queues, and allocate nothing once made. [`BreadcrumbRouter`] is
//! what stands between. [`relay`] is that router on any host. [`express`] and [`repair`] are two services
//! over it.

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

pub(crate) use router::hash::{Key, address_words, hash};

use crate::time::Duration;

/// `T_refresh`: how long a router holds requests back before it tells the source's side that they are still
/// wanted; how long a source takes a reply of its own for the answer to a null.
pub const REFRESH: Duration = Duration::from_secs(1);

/// `T_expire`: how long breadcrumbs stay that nothing passes.
pub const EXPIRY: Duration = Duration::from_secs(10);

/// Bytes of a request's body that a router sends on at the most; requests with longer ones are dropped.
pub const REQUEST_BODY_BYTES_MAX: usize = 512;
