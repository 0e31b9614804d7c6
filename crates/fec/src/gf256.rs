//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), alpha = 2 (RFC 5510 section 8.1).
//!
//! Addition is xor. [`crate::kernel`] has the operations on whole symbols, with the tables made here.

const POLYNOMIAL: u16 = 0x11D;

/// The order of the multiplicative group: alpha^255 = 1.
const GROUP: usize = 255;

/// `EXP[i]` = alpha^i, over two periods so that a sum of two logarithms needs no reduction.
static EXP: [u8; 2 * GROUP] = exp_table();

/// `LOG[EXP[i]]` = i for i < 255. `LOG[0]` means nothing.
static LOG: [u8; 256] = log_table();

/// Products of a factor with the low and the high four bits of a byte: c * x = low[x & 15] ^ high[x >> 4].
pub(crate) struct Split {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

/// The split table of every factor, 8 KiB. A byte shuffle takes half of an entry.
pub(crate) static SPLIT: [Split; 256] = split_tables();

/// alpha^`exponent`.
pub(crate) fn alpha(exponent: u8) -> u8 {
    EXP[usize::from(exponent)]
}

pub(crate) fn mul(a: u8, b: u8) -> u8 {
    let split = &SPLIT[usize::from(a)];
    split.low[usize::from(b & 15)] ^ split.high[usize::from(b >> 4)]
}

/// 1 / `a`.
///
/// # Panics
/// If `a` is 0.
pub(crate) fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "0 has no inverse");
    EXP[GROUP - usize::from(LOG[usize::from(a)])]
}

/// a * alpha.
pub(crate) const fn times_alpha(a: u8) -> u8 {
    let shifted = a << 1;
    if a & 0x80 == 0 { shifted } else { shifted ^ (POLYNOMIAL & 0xFF) as u8 }
}

/// a * b by shift and add, for making the tables.
pub(crate) const fn slow_mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = times_alpha(a);
        b >>= 1;
    }
    product
}

const fn exp_table() -> [u8; 2 * GROUP] {
    let mut table = [0; 2 * GROUP];
    let mut power = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = power;
        power = times_alpha(power);
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut i = 0u8;
    while i < u8::MAX {
        table[exp[i as usize] as usize] = i;
        i += 1;
    }
    table
}

const fn split_tables() -> [Split; 256] {
    let mut tables = [const { Split { low: [0; 16], high: [0; 16] } }; 256];
    let mut factor = 0u8;
    loop {
        let mut nibble = 0u8;
        while nibble < 16 {
            tables[factor as usize].low[nibble as usize] = slow_mul(factor, nibble);
            tables[factor as usize].high[nibble as usize] = slow_mul(factor, nibble << 4);
            nibble += 1;
        }
        if factor == u8::MAX {
            return tables;
        }
        factor += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{EXP, GROUP, alpha, inverse, mul, slow_mul};

    #[test]
    fn alpha_generates_the_group() {
        assert_eq!(EXP[..9], [1, 2, 4, 8, 16, 32, 64, 128, 29]);
        let mut powers = EXP[..GROUP].to_vec();
        powers.sort_unstable();
        assert!(powers.iter().copied().eq(1..=255));
        assert_eq!(alpha(255), 1);
    }

    #[test]
    fn products_agree_with_shift_and_add_and_inverses_with_products() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} * {b}");
            }
            if a != 0 {
                assert_eq!(mul(a, inverse(a)), 1);
            }
        }
    }
}
