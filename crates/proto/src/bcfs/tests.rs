//! The service's ends.

mod ends;
