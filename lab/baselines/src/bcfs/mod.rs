//! Two services over BCFS (Yano, McCanne 1999, section 2.4): [`express`] channels, and [`repair`] as in PGM.

pub mod express;
pub mod repair;
#[cfg(test)]
mod tests;
