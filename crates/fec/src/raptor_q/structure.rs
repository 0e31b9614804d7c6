//! The equations of blocks of K' symbols (RFC 6330, section 5.3): which intermediate symbols each equation
//! adds up, apart from any block's bytes.

use super::tables::{DEGREES, LENGTHS, RANDOM};

/// Equations over GF(2): the intermediate symbols of each, those below W first.
#[derive(Clone, Debug)]
pub(super) struct Equations {
    columns: Vec<u32>,
    starts: Vec<u32>,
}

/// Maximum number of intermediate symbols of an encoding symbol: 30 LT symbols and 3 PI symbols.
pub(super) const TERMS_MAX: usize = 33;

/// Numbers of intermediate symbols of blocks of K' symbols, from which the equations follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// K'.
    pub(super) symbols: u32,
    /// S, number of LDPC symbols.
    pub(super) ldpc: u32,
    /// H, number of HDPC symbols.
    pub(super) hdpc: u32,
    /// W, number of LT symbols, LDPC symbols among them; a prime. All other intermediate symbols are PI
    /// symbols.
    pub(super) lt: u32,
    /// L, number of intermediate symbols.
    pub(super) intermediate: u32,
    /// Smallest prime from P, the number of PI symbols, on.
    pi_prime: u32,
    /// J(K').
    systematic_index: u32,
}

/// Equations that all blocks of K' symbols have.
#[derive(Debug)]
pub(super) struct Structure {
    pub(super) numbers: Numbers,
    /// S equations of LDPC symbols, whose sum is zero, then the equations of encoding symbols 0 to K' - 1.
    pub(super) equations: Equations,
    /// The two HDPC equations that each intermediate symbol before K' + S - 1 has an entry of MT in.
    pub(super) hdpc_entries: Vec<[u8; 2]>,
}

impl Equations {
    pub(super) fn with_capacity(count: usize, columns: usize) -> Self {
        let mut starts = Vec::with_capacity(count + 1);
        starts.push(0);
        Self { columns: Vec::with_capacity(columns), starts }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn columns_len(&self) -> usize {
        self.columns.len()
    }

    /// The intermediate symbols of all equations, one after the other.
    pub(super) fn columns(&self) -> &[u32] {
        &self.columns
    }

    pub(super) fn row(&self, row: usize) -> &[u32] {
        &self.columns[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    pub(super) fn push(&mut self, columns: &[u32]) {
        self.columns.extend_from_slice(columns);
        self.starts.push(u32::try_from(self.columns.len()).expect("below 2^32 entries"));
    }
}

impl Numbers {
    /// For blocks of up to `k` symbols, at most 56 403.
    pub(super) fn new(k: u32) -> Self {
        let (symbols, systematic_index, ldpc, hdpc, lt) = parameters(k);
        let intermediate = symbols + ldpc + hdpc;
        let pi_prime = (intermediate - lt..).find(is_prime).expect("there are more primes");
        Self { symbols, ldpc, hdpc, lt, intermediate, pi_prime, systematic_index }
    }

    /// Internal number of encoding symbol `esi` of a block of `k` symbols: the block is padded with zero
    /// symbols K to K' - 1.
    pub(super) fn internal_number(&self, k: u32, esi: u32) -> u32 {
        if esi < k { esi } else { esi + self.symbols - k }
    }

    /// Returns the intermediate symbols whose sum is the encoding symbol of an internal number, in a buffer
    /// (section 5.3.5.3).
    pub(super) fn terms<'a>(&self, isi: u32, buffer: &'a mut [u32; TERMS_MAX]) -> &'a [u32] {
        let (lt, pi) = (self.lt, self.intermediate - self.lt);
        let [degree, a, mut b, pi_degree, pi_a, mut pi_b] = self.tuple(isi);
        let (degree, pi_degree) = (degree as usize, pi_degree as usize);
        for term in &mut buffer[..degree] {
            *term = b;
            b = (b + a) % lt;
        }
        for term in &mut buffer[degree..degree + pi_degree] {
            while pi_b >= pi {
                pi_b = (pi_b + pi_a) % self.pi_prime;
            }
            *term = lt + pi_b;
            pi_b = (pi_b + pi_a) % self.pi_prime;
        }
        &buffer[..degree + pi_degree]
    }

    /// The tuple (d, a, b, d1, a1, b1) of an encoding symbol (section 5.3.5.4).
    fn tuple(&self, isi: u32) -> [u32; 6] {
        let a = (53_591 + self.systematic_index * 997) | 1;
        let b = 10_267 * (self.systematic_index + 1);
        let y = b.wrapping_add(isi.wrapping_mul(a));
        let drawn = random(y, 0, 1 << 20);
        let degree =
            (1..).zip(&DEGREES[1..]).find(|(_, below)| drawn < **below).map_or(1, |(degree, _)| degree);
        let degree = degree.min(self.lt - 2);
        [
            degree,
            1 + random(y, 1, self.lt - 1),
            random(y, 2, self.lt),
            if degree < 4 { 2 + random(isi, 3, 2) } else { 2 },
            1 + random(isi, 4, self.pi_prime - 1),
            random(isi, 5, self.pi_prime),
        ]
    }

    fn hdpc_pair(&self, column: u32) -> [u8; 2] {
        let first = random(column, 6, self.hdpc);
        let second = (first + random(column, 7, self.hdpc - 1) + 1) % self.hdpc;
        [first, second].map(|row| u8::try_from(row).expect("H is at most 16"))
    }
}

impl Structure {
    /// For blocks of up to `k` symbols, at most 56 403.
    pub(super) fn new(k: u32) -> Self {
        let numbers = Numbers::new(k);
        let Numbers { symbols, ldpc, .. } = numbers;
        let mut equations = Equations::with_capacity((ldpc + symbols) as usize, 11 * symbols as usize + 64);
        add_ldpc(&numbers, &mut equations);
        (0..symbols).for_each(|isi| equations.push(numbers.terms(isi, &mut [0; TERMS_MAX])));
        equations.columns.shrink_to_fit();
        let hdpc_entries = (1..symbols + ldpc).map(|column| numbers.hdpc_pair(column)).collect();
        Self { numbers, equations, hdpc_entries }
    }
}

/// Adds the equations of the LDPC symbols (section 5.3.3.3).
fn add_ldpc(numbers: &Numbers, equations: &mut Equations) {
    let Numbers { ldpc, lt, intermediate, .. } = *numbers;
    let pi = intermediate - lt;
    let first_ldpc = lt - ldpc;
    let mut rows = vec![Vec::new(); ldpc as usize];
    for column in 0..first_ldpc {
        let step = 1 + column / ldpc;
        let mut row = column % ldpc;
        for _ in 0..3 {
            rows[row as usize].push(column);
            row = (row + step) % ldpc;
        }
    }
    for (number, mut row) in (0..).zip(rows) {
        row.extend([first_ldpc + number, lt + number % pi, lt + (number + 1) % pi]);
        equations.push(&row);
    }
}

/// K' of a block of `k` symbols.
pub(super) fn padded_symbols(k: u32) -> u32 {
    parameters(k).0
}

/// L of blocks of `k` symbols.
pub(super) fn intermediate_symbols(k: u32) -> u32 {
    let (symbols, _, ldpc, hdpc, _) = parameters(k);
    symbols + ldpc + hdpc
}

fn parameters(k: u32) -> (u32, u32, u32, u32, u32) {
    let place = LENGTHS.partition_point(|(symbols, ..)| *symbols < k);
    LENGTHS[place.min(LENGTHS.len() - 1)]
}

fn is_prime(number: &u32) -> bool {
    *number > 1 && (2..=number.isqrt()).all(|divisor| !number.is_multiple_of(divisor))
}

/// Rand[y, i, m] (section 5.3.5.1).
fn random(y: u32, i: u8, m: u32) -> u32 {
    let bytes = y.to_le_bytes();
    let mixed =
        RANDOM.iter().zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte.wrapping_add(i))]);
    mixed % m
}
