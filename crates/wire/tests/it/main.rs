//! One test binary: literal packets, round trips, and bytes that are wrong on purpose.
mod alc;
mod amt;
mod auth;
mod bcfs;
mod cci;
mod crypt;
mod dns;
mod fdt;
mod fti;
mod hex;
mod lct;
mod pgm;
mod probe;
mod properties;
mod roster;
mod rtt;
mod sim;
