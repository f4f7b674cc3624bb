//! Interleaves the matrices of a plan: all threads together, from the file's first to its last.
//!
//! The matrices lie one after the other in one piece of memory, in the file's order, and a thread fills a huge page of
//! it at a time: threads meet only at the end, no page is cleared by two of them, the disk is read in one stream, and
//! the file's pages are given back as they have been copied.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{packed::Packed, stack::Stack};
use crate::{
    Error, Result,
    backend::{
        LoadProgress,
        cpu::{
            memory::aligned::{AlignedBytes, HUGE_PAGE},
            threads::pool::Pool,
        },
    },
    quant::ROWS,
    weights::Weight,
};

/// What Linux maps of a file around the byte that is read first; what of it lies before that byte may have been given
/// back already by the thread whose it was.
const AROUND: usize = 64 << 10;

/// The interleaved copies of quantised matrices, in any order.
pub(crate) fn interleave<'w>(
    mut weights: Vec<(Weight<'w>, Stack)>,
    pool: &mut Pool,
    progress: &LoadProgress<'_>,
) -> Result<Vec<(Weight<'w>, Packed)>> {
    // Each file is mapped in one piece.
    weights.sort_by_key(|(weight, _)| weight.place());
    let matrices = make_room(weights)?;
    let end = matrices.last().map_or(0, |(_, last)| last.place().end);
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    pool.run(&|worker| {
        while !progress.is_cancelled() {
            let start = next.fetch_add(HUGE_PAGE, Relaxed);
            if start >= end {
                break;
            }
            let bytes = start..end.min(start + HUGE_PAGE);
            // SAFETY: no two threads have the same bytes, and nobody reads the matrices before this call ends.
            if let Err(error) = unsafe { fill(&matrices, bytes.clone()) } {
                next.store(end, Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                break;
            }
            progress.add(bytes.len());
            // The first thread is the caller's.
            if worker.number == 0 {
                progress.report();
            }
        }
    })?;
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => progress.check().map(|()| matrices),
    }
}

/// Room for matrices, one after the other in one piece of memory.
fn make_room(weights: Vec<(Weight<'_>, Stack)>) -> Result<Vec<(Weight<'_>, Packed)>> {
    let mut len = 0_usize;
    let mut starts = Vec::with_capacity(weights.len());
    for (weight, stack) in &weights {
        starts.push(len);
        let bytes = Packed::bytes(weight.dtype, *stack).and_then(|n| n.checked_next_multiple_of(AlignedBytes::ALIGN));
        // There is never so much memory, and the error below says so.
        len = bytes.map_or(usize::MAX, |bytes| len.saturating_add(bytes));
    }
    let lacking = || Error::Memory { what: "the matrices' interleaved copies", needed: len as u64, limit: 0 };
    let memory = Arc::new(AlignedBytes::new(len).ok_or_else(lacking)?);
    let places = weights.into_iter().zip(starts);
    let matrices =
        places.map(|((weight, stack), start)| Some((weight, Packed::new(weight.dtype, stack, &memory, start)?)));
    matrices.collect::<Option<_>>().ok_or_else(lacking)
}

/// Fills the groups that begin in a range of the memory.
///
/// # Errors
/// As [`Weight::read`].
///
/// # Safety
/// No two calls at the same time for the same byte, and nobody reads these groups meanwhile.
unsafe fn fill(matrices: &[(Weight<'_>, Packed)], bytes: Range<usize>) -> Result<()> {
    let first = matrices.partition_point(|(_, matrix)| matrix.place().end <= bytes.start);
    for (weight, matrix) in &matrices[first..] {
        let place = matrix.place();
        if place.start >= bytes.end {
            break;
        }
        let size = matrix.group_bytes();
        let first_at = |byte: usize| byte.saturating_sub(place.start).div_ceil(size).min(matrix.stack.groups());
        let groups = first_at(bytes.start)..first_at(bytes.end);
        let row_bytes = size / ROWS;
        for group in groups.clone() {
            let rows = matrix.stack.rows_of(group);
            // SAFETY: by the caller, as a group begins at one byte alone.
            unsafe { matrix.fill(group, &weight.read(rows.start * row_bytes..rows.end * row_bytes)?) };
        }
        if !groups.is_empty() {
            let (first, last) = (matrix.stack.rows_of(groups.start), matrix.stack.rows_of(groups.end - 1));
            weight.done_with((first.start * row_bytes).saturating_sub(AROUND)..last.end * row_bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;
    use crate::{
        DType,
        gguf::{Gguf, TensorInfo},
        weights::Weights,
    };

    /// Matrices larger than a huge page and far smaller, whose groups begin before its boundary and end behind it.
    const SHAPES: [(DType, [usize; 3]); 8] = [
        (DType::Q4_0, [1, 1, 32]),
        (DType::Q8_0, [1, 5003, 512]),
        (DType::Q5_K, [1, 33, 256]),
        (DType::Q6_K, [1, 2561, 1024]),
        (DType::Q4_K, [1, 16, 256]),
        (DType::IQ4_NL, [1, 700, 96]),
        (DType::Q4_K, [90, 41, 768]),
        (DType::Q4_1, [3, 5, 64]),
    ];

    /// Every row of every matrix comes back as it was, whoever filled it and in whatever order they were named.
    #[test]
    fn all_rows_are_copied() {
        let tensors = SHAPES.iter().enumerate().map(|(index, (dtype, shape))| {
            let len = dtype.row_bytes(shape[2]).unwrap() * shape[0] * shape[1];
            let bytes = (0..len).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ index as u8).collect();
            (format!("matrix {index}"), *dtype, shape.to_vec(), bytes)
        });
        let weights = Weights::from_memory(tensors).unwrap();
        let names: Vec<_> = (0..SHAPES.len()).map(|index| format!("matrix {index}")).collect();
        let mut named: Vec<_> = names
            .iter()
            .zip(&SHAPES)
            .map(|(name, (_, shape))| {
                let [count, rows, columns] = *shape;
                (weights.get(name, shape).unwrap(), Stack { count, rows, columns })
            })
            .collect();
        for threads in [1, 2, 5] {
            named.rotate_left(2);
            let mut pool = Pool::new(threads).unwrap();
            let matrices = interleave(named.clone(), &mut pool, &LoadProgress::unobserved()).unwrap();
            assert_eq!(matrices.len(), SHAPES.len());
            for (weight, packed) in matrices {
                let Stack { count, rows, columns } = packed.stack;
                assert_eq!(packed.dtype, weight.dtype);
                assert_eq!(count * rows * packed.dtype.row_bytes(columns).unwrap(), weight.byte_len());
                let mut read = vec![0; packed.dtype.row_bytes(columns).unwrap()];
                for (row, wanted) in weight.bytes().chunks_exact(read.len()).enumerate() {
                    packed.read_row(row, &mut read);
                    assert!(read == wanted, "{}, row {row}, {threads} threads", weight.name);
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_shortened_meanwhile_is_an_error() {
        let original = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/storyteller/storyteller.gguf");
        let path = std::env::temp_dir().join(format!("inkstone-shortened-{}.gguf", std::process::id()));
        fs::copy(original, &path).unwrap();
        let gguf = Gguf::open(&path).unwrap();
        let weights = Weights::read_from_gguf(&gguf);
        let is_matrix = |tensor: &&TensorInfo| tensor.shape.len() == 2 && !tensor.dtype.dtype().unwrap().is_float();
        let matrices: Vec<_> = gguf.tensors().iter().filter(is_matrix).collect();
        let mut named = vec![];
        for tensor in &matrices {
            let stack = Stack { count: 1, rows: tensor.shape[0], columns: tensor.shape[1] };
            named.push((weights.get(&tensor.name, &tensor.shape).unwrap(), stack));
        }
        for threads in [1, 3] {
            assert!(interleave(named.clone(), &mut Pool::new(threads).unwrap(), &LoadProgress::unobserved()).is_ok());
        }
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(fs::metadata(original).unwrap().len() / 2).unwrap();
        for threads in [1, 3] {
            match interleave(named.clone(), &mut Pool::new(threads).unwrap(), &LoadProgress::unobserved()).map(|_| ()) {
                Err(Error::Io { path: named, source }) => {
                    assert_eq!((&named, source.kind()), (&path, io::ErrorKind::UnexpectedEof));
                }
                other => panic!("{other:?}"),
            }
        }
        // What is not interleaved is copied whole.
        assert!(matches!(weights.only([matrices.last().unwrap().name.as_str()]), Err(Error::Io { .. })));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn nothing_is_interleaved_to_nothing() {
        assert!(interleave(Vec::new(), &mut Pool::new(2).unwrap(), &LoadProgress::unobserved()).unwrap().is_empty());
    }
}
