//! Matrices, and those of them that are kept.

use std::sync::{Arc, Mutex, PoisonError};

use super::matrix::{Columns, Generator, Matrix, Variant};

/// Matrices kept, in bytes, by all codecs of a process together: blocks of an object have two lengths, and
/// objects take turns. Those of long blocks are made again each time, which is little beside coding them. A
/// session may have any number of codecs, so what each kept for itself would have no bound.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The matrices used last, the latest at the end.
static KEPT: Mutex<Vec<(Key, Arc<Graph>)>> = Mutex::new(Vec::new());

/// What makes a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) variant: Variant,
    pub(super) k: u32,
    pub(super) n: u32,
    pub(super) n1: u32,
    pub(super) generator: Generator,
}

/// A matrix both ways.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) matrix: Matrix,
    pub(super) columns: Columns,
}

impl Graph {
    /// The matrix of this key: the one that is kept, or a new one. It is the same for whoever asks when.
    pub(super) fn of(key: Key) -> Arc<Self> {
        // A panic of another thread cannot leave the list half changed.
        let lock = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut kept = lock();
            if let Some(position) = kept.iter().position(|(of, _)| *of == key) {
                let found = kept.remove(position);
                let graph = Arc::clone(&found.1);
                kept.push(found);
                return graph;
            }
        }
        // Made outside the lock: two threads may make the same one.
        let matrix = Matrix::new(key.variant, key.k, key.n, key.n1, key.generator);
        let graph = Arc::new(Self { columns: matrix.columns(), matrix });
        if graph.matrix.bytes() <= KEPT_BYTES_MAX {
            let mut kept = lock();
            kept.push((key, Arc::clone(&graph)));
            while kept.iter().map(|(_, graph)| graph.matrix.bytes()).sum::<usize>() > KEPT_BYTES_MAX {
                kept.remove(0);
            }
        }
        graph
    }
}
