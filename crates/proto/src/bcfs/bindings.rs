//! Labels that an application listens to.

use headwater_wire::bcfs::Label;

/// Maximum number of bindings of a client or a source.
pub const BINDINGS_MAX: usize = 16;

/// Error: more than [`BINDINGS_MAX`] bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {BINDINGS_MAX} bindings")]
pub struct TooManyBindings;

#[derive(Debug, Default)]
pub(super) struct Bindings(Vec<(Label, u32)>);

impl Bindings {
    pub(super) fn bind(&mut self, label: Label, mask: u32) -> Result<(), TooManyBindings> {
        if self.0.len() == BINDINGS_MAX {
            return Err(TooManyBindings);
        }
        self.0.push((label, mask));
        Ok(())
    }

    pub(super) fn matches(&self, label: Label) -> bool {
        self.0.iter().any(|(bound, mask)| label.0 & mask == bound.0 & mask)
    }
}
