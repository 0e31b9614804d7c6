//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), alpha = 2 (RFC 5510 section 8.1).
//!
//! Addition is xor. [`mul_add`] is the only operation on whole symbols: a kernel for another instruction set
//! belongs behind it and can use the same split tables, whose halves are what a byte shuffle takes.

const POLYNOMIAL: u16 = 0x11D;

/// The order of the multiplicative group: alpha^255 = 1.
const GROUP: usize = 255;

/// `EXP[i]` = alpha^i, over two periods so that a sum of two logarithms needs no reduction.
static EXP: [u8; 2 * GROUP] = exp_table();

/// `LOG[EXP[i]]` = i for i < 255. `LOG[0]` means nothing.
static LOG: [u8; 256] = log_table();

/// Products of one factor with the low and the high four bits of a byte: c * x = low[x & 15] ^ high[x >> 4].
struct Split {
    low: [u8; 16],
    high: [u8; 16],
}

/// The split table of every factor, 8 KiB.
static SPLIT: [Split; 256] = split_tables();

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
/// Where `a` is 0.
pub(crate) fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "0 has no inverse");
    EXP[GROUP - usize::from(LOG[usize::from(a)])]
}

/// `target` += `factor` * `source`, byte by byte. Both have the same length.
pub(crate) fn mul_add(target: &mut [u8], source: &[u8], factor: u8) {
    assert_eq!(target.len(), source.len(), "symbols of one block have one length");
    match factor {
        0 => {}
        1 => target.iter_mut().zip(source).for_each(|(t, s)| *t ^= s),
        _ => {
            let Split { low, high } = &SPLIT[usize::from(factor)];
            for (t, &s) in target.iter_mut().zip(source) {
                *t ^= low[usize::from(s & 15)] ^ high[usize::from(s >> 4)];
            }
        }
    }
}

/// a * alpha.
const fn times_alpha(a: u8) -> u8 {
    let shifted = a << 1;
    if a & 0x80 == 0 { shifted } else { shifted ^ (POLYNOMIAL & 0xFF) as u8 }
}

/// a * b by shift and add, for making the tables.
const fn slow_mul(mut a: u8, mut b: u8) -> u8 {
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
    use super::{EXP, GROUP, alpha, inverse, mul, mul_add, slow_mul};

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

    #[test]
    fn mul_add_is_mul_and_xor_for_every_factor_and_byte() {
        let source: Vec<u8> = (0..=255).collect();
        for factor in 0..=255 {
            let mut target: Vec<u8> = (0..=255).rev().collect();
            mul_add(&mut target, &source, factor);
            for (i, &byte) in target.iter().enumerate() {
                assert_eq!(byte, source[255 - i] ^ slow_mul(factor, source[i]));
            }
        }
    }
}
