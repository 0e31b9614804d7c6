//! The command `headwater`.
fn main() {}
