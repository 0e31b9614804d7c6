//! Packets written out in hexadecimal digits.

/// The bytes of `digits`; white space is for the reader's eye.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.split_whitespace().flat_map(str::bytes).collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "odd number of digits");
    pairs.iter().map(|pair| byte(*pair)).collect()
}

fn byte(pair: [u8; 2]) -> u8 {
    let text = std::str::from_utf8(&pair).expect("ASCII digits");
    u8::from_str_radix(text, 16).expect("hexadecimal digits")
}
