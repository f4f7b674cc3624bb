//! Interleaves the quantized matrices of a plan on all threads, in the order of the file.
//!
//! The matrices lie one after the other in a single allocation, and each thread fills one huge page
//! of it at a time. So threads meet only at the end, no two threads clear the same page, the disk
//! is read sequentially, and the pages of the file are released as soon as they are copied.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{packed::PackedMatrix, stack::Stack};
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

/// Bytes that Linux maps around a page fault. A read thus also maps pages before it that another
/// thread has released already, so they are released once more.
const FAULT_AROUND: usize = 64 << 10;

/// Returns the interleaved copies of quantized matrices, in the order of the file.
///
/// # Errors
/// As [`Weight::read`] and [`LoadProgress::check`], and where the system refuses the memory.
pub(crate) fn interleave<'w>(
    mut weights: Vec<(Weight<'w>, Stack)>,
    pool: &mut Pool,
    progress: &LoadProgress<'_>,
) -> Result<Vec<(Weight<'w>, PackedMatrix)>> {
    // A file is one mapping, so this is the order of its bytes.
    weights.sort_by_key(|(weight, _)| weight.place());
    let matrices = allocate(weights)?;
    let end = matrices.last().map_or(0, |(_, last)| last.byte_range().end);
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    pool.run(&|worker| {
        while !progress.is_cancelled() {
            let start = next.fetch_add(HUGE_PAGE, Relaxed);
            if start >= end {
                break;
            }
            let bytes = start..end.min(start + HUGE_PAGE);
            // SAFETY: threads take disjoint bytes, and no one reads the matrices before this call
            // ends.
            if let Err(error) = unsafe { fill(&matrices, bytes.clone()) } {
                next.store(end, Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                break;
            }
            progress.add(bytes.len());
            // Thread 0 is the caller's, which alone may call back.
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

/// Allocates memory for matrices, one after the other.
fn allocate(weights: Vec<(Weight<'_>, Stack)>) -> Result<Vec<(Weight<'_>, PackedMatrix)>> {
    let mut len = 0_usize;
    let mut starts = Vec::with_capacity(weights.len());
    for (weight, stack) in &weights {
        starts.push(len);
        let bytes =
            PackedMatrix::byte_len(weight.dtype, *stack).and_then(|n| n.checked_next_multiple_of(AlignedBytes::ALIGN));
        // An overflow makes the allocation below fail.
        len = bytes.map_or(usize::MAX, |bytes| len.saturating_add(bytes));
    }
    let refused = || Error::out_of_memory("the interleaved matrices", len);
    let memory = Arc::new(AlignedBytes::new(len).ok_or_else(refused)?);
    let placed = weights.into_iter().zip(starts);
    let matrices = placed.map(|((weight, stack), start)| {
        let packed = PackedMatrix::new(weight.dtype, stack, &memory, start)?;
        Some((weight, packed))
    });
    matrices.collect::<Option<_>>().ok_or_else(refused)
}

/// Fills the groups whose first byte lies in a range of the memory.
///
/// # Errors
/// As [`Weight::read`].
///
/// # Safety
/// No other thread reads these groups or fills the same range at the same time.
unsafe fn fill(matrices: &[(Weight<'_>, PackedMatrix)], bytes: Range<usize>) -> Result<()> {
    let first = matrices.partition_point(|(_, matrix)| matrix.byte_range().end <= bytes.start);
    for (weight, matrix) in &matrices[first..] {
        let range = matrix.byte_range();
        if range.start >= bytes.end {
            break;
        }
        let size = matrix.group_bytes();
        let next_group = |byte: usize| byte.saturating_sub(range.start).div_ceil(size).min(matrix.stack.groups());
        let groups = next_group(bytes.start)..next_group(bytes.end);
        let row_bytes = size / ROWS;
        for group in groups.clone() {
            let rows = matrix.stack.rows_of(group);
            // SAFETY: by the caller, as the first byte of a group lies in one range alone.
            unsafe { matrix.fill(group, &weight.read(rows.start * row_bytes..rows.end * row_bytes)?) };
        }
        if !groups.is_empty() {
            let (first, last) = (matrix.stack.rows_of(groups.start), matrix.stack.rows_of(groups.end - 1));
            weight.done_with((first.start * row_bytes).saturating_sub(FAULT_AROUND)..last.end * row_bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;
    use crate::{
        DType, Error,
        gguf::{Gguf, TensorInfo},
        weights::Weights,
    };

    /// `[matrices, rows, columns]`, larger and smaller than a huge page, with groups across its
    /// boundary.
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

    #[test]
    fn rows_read_back_as_in_the_file_for_any_threads_and_order() {
        let tensors = SHAPES.iter().enumerate().map(|(index, (dtype, shape))| {
            let len = dtype.row_bytes(shape[2]).unwrap() * shape[0] * shape[1];
            let bytes = (0..len).map(|offset| (offset.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ index as u8).collect();
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
                for (row, expected) in weight.bytes().chunks_exact(read.len()).enumerate() {
                    packed.read_row(row, &mut read);
                    assert!(read == expected, "{}, row {row}, {threads} threads", weight.slice);
                }
            }
        }
    }

    #[test]
    fn file_shortened_while_open_is_an_io_error() {
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
        // The weights that steps read in place are copied by ordinary reads too.
        assert!(matches!(weights.only([matrices.last().unwrap().name.as_str()]), Err(Error::Io { .. })));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn no_matrices_interleave_to_no_matrices() {
        assert!(interleave(Vec::new(), &mut Pool::new(2).unwrap(), &LoadProgress::unobserved()).unwrap().is_empty());
    }
}
