//! One test binary: literal packets, round trips, and bytes that are wrong on purpose.
mod alc;
mod auth;
mod bcfs;
mod cci;
mod crypt;
mod fdt;
mod fti;
mod hex;
mod lct;
mod pgm;
mod probe;
mod properties;
mod roster;
mod rtt;
mod sdp;
mod sim;
