use crate::codec::{CodeShape, enough_distinct};
use crate::{BlockCodec, BlockEncoder, DecodeError, FecError, Repair, Scheme};

/// Compact No-Code (RFC 5445 section 3): a missing symbol comes with the next turn of the carousel, or never.
#[derive(Debug)]
pub(crate) struct NoCode {
    symbol_size: u16,
}

impl NoCode {
    /// ESIs have 16 bits on the wire.
    pub(crate) const K_MAX: u32 = 1 << 16;

    pub(crate) fn new(symbol_size: u16) -> Self {
        Self { symbol_size }
    }

    /// n = k: no ESI is that of a repair symbol.
    fn shape(&self, k: u32) -> Result<CodeShape, FecError> {
        CodeShape::new(self, k, k)
    }
}

impl BlockCodec for NoCode {
    fn scheme(&self) -> Scheme {
        Scheme::NoCode
    }

    fn symbol_size(&self) -> usize {
        self.symbol_size.into()
    }

    fn k_max(&self) -> u32 {
        Self::K_MAX
    }

    fn encoding_symbols(&self, k: u32) -> u32 {
        k
    }

    fn is_rateless(&self) -> bool {
        false
    }

    fn encoder_bytes(&self, _k: u32) -> u64 {
        0
    }

    fn encoder(&self, k: u32, source: &[u8]) -> Result<Box<dyn BlockEncoder>, FecError> {
        let shape = self.shape(k)?;
        shape.check_block(source)?;
        Ok(Box::new(NoRepair { shape }))
    }

    fn decode(
        &self,
        k: u32,
        block: &mut [u8],
        missing: &[u32],
        repairs: &[Repair<'_>],
    ) -> Result<(), DecodeError> {
        self.shape(k)?.check_decode(block, missing, repairs)?;
        enough_distinct(repairs, missing).map(|_| ())
    }
}

#[derive(Debug)]
struct NoRepair {
    shape: CodeShape,
}

impl BlockEncoder for NoRepair {
    fn symbol(&self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        // Refuses every ESI, as n = k.
        self.shape.check_repair(esi, out)
    }
}
