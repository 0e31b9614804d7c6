//! M2C and FLID beside TCP, beside themselves, and before many receivers at once.

mod bed;
mod fairness;
mod flid;
mod receivers;
