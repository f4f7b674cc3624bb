//! Looks weights up by name and checks their formats and shapes.

use std::sync::Arc;

use inkstone::{
    DType, Error,
    gguf::Gguf,
    internals::weights::{TensorSlice, Weights},
};

use crate::support::gguf_file::{Folder, GgufFile};

fn f32_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn from_file(file: &GgufFile) -> Weights {
    let folder = Folder::new();
    Weights::from_gguf(&Gguf::open(folder.write("model.gguf", file.bytes())).unwrap())
}

fn small() -> Weights {
    // Both are 1, -2 and 0.5.
    let f16_bytes = [0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38];
    let bf16_bytes = [0x80, 0x3f, 0x00, 0xc0, 0x00, 0x3f];
    let file = GgufFile::new()
        .tensor("matrix", &[3, 2], 0, f32_bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
        .tensor("single", &[3], 0, f32_bytes(&[1.0, -2.0, 0.5]))
        .tensor("half", &[3], 1, f16_bytes)
        .tensor("bfloat", &[3], 30, bf16_bytes)
        .tensor("packed", &[32], 8, [7; 34])
        .tensor("listed", &[256], 15, [0; 292]);
    from_file(&file)
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Tensor { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn weights_borrow_the_bytes_of_their_tensors() {
    let weights = small();
    let matrix = weights.get("matrix", &[2, 3]).unwrap();
    assert_eq!((matrix.slice.to_string().as_str(), matrix.dtype), ("matrix", DType::F32));
    assert_eq!(matrix.bytes(), f32_bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let packed = weights.get("packed", &[1, 32]).unwrap();
    assert_eq!((packed.dtype, packed.bytes().as_ref()), (DType::Q8_0, [7; 34].as_slice()));
    assert!(weights.find("absent", &[3]).unwrap().is_none());
    assert_eq!(weights.total_bytes(), 24 + 12 + 6 + 6 + 34 + 292);
    weights.read_ahead();
    matrix.will_need(0..matrix.byte_len());
    matrix.done_with(0..usize::MAX);
    assert_eq!(*matrix.bytes_of(4..8), 1_f32.to_le_bytes());
}

#[test]
fn slices_are_rows_of_a_tensor() {
    let weights = small();
    let slice = TensorSlice::rows("matrix", 1..2);
    let row = weights.get(&slice, &[1, 3]).unwrap();
    assert_eq!((row.slice.to_string().as_str(), &row.slice), ("matrix[1..2]", &slice));
    assert_eq!(row.bytes(), f32_bytes(&[3.0, 4.0, 5.0]));
    row.done_with(0..usize::MAX);
    assert_eq!(weights.get(TensorSlice::rows("matrix", 0..2), &[2, 3]).unwrap().byte_len(), 24);
    let part = "is a part of a tensor that has shape";
    for (rows, shape) in [(1..3, [2, 3]), (0..2, [1, 3]), (1..1, [0, 3]), (0..usize::MAX, [usize::MAX, 3])] {
        let slice = TensorSlice::rows("matrix", rows);
        let expected = format!("tensor `{slice}`: {part} [2, 3], but {shape:?} is expected");
        assert_eq!(message(weights.get(&slice, &shape)), expected);
    }
    let reversed = TensorSlice { name: "matrix".into(), rows: Some(std::ops::Range { start: 2, end: 1 }) };
    assert!(message(weights.get(&reversed, &[1, 3])).contains(part));
    assert!(message(weights.get(TensorSlice::rows("single", 0..1), &[1, 3])).contains(part));
    assert!(message(weights.get(TensorSlice::rows("absent", 0..1), &[1, 3])).contains("`absent[0..1]`: is missing"));
}

/// Slices of a vector that is widened on first use have their own elements.
#[test]
fn slices_of_vectors_read_as_f32() {
    for name in ["single", "half", "bfloat"] {
        let weights = small();
        assert_eq!(weights.vector(TensorSlice::rows(name, 1..3), 2).unwrap(), [-2.0, 0.5], "{name}");
        assert_eq!(weights.vector(TensorSlice::rows(name, 0..1), 1).unwrap(), [1.0], "{name}");
        assert_eq!(weights.vector(name, 3).unwrap(), [1.0, -2.0, 0.5], "{name}");
    }
}

#[test]
fn names_that_look_like_slices_are_names() {
    let file = GgufFile::new().tensor("matrix", &[1, 4], 0, f32_bytes(&[0.0, 1.0, 2.0, 3.0])).tensor(
        "matrix[0..4]",
        &[2, 4],
        0,
        f32_bytes(&[8.0; 8]),
    );
    let weights = from_file(&file);
    assert_eq!(weights.get("matrix[0..4]", &[4, 2]).unwrap().bytes(), f32_bytes(&[8.0; 8]));
    let rows = weights.get(TensorSlice::rows("matrix[0..4]", 1..3), &[2, 2]).unwrap();
    assert_eq!((rows.byte_len(), rows.slice.to_string().as_str()), (16, "matrix[0..4][1..3]"));
    assert_eq!(weights.get(TensorSlice::rows("matrix", 0..4), &[4, 1]).unwrap().byte_len(), 16);
    assert!(message(weights.get("matrix[1..2]", &[1, 1])).contains("`matrix[1..2]`: is missing"));
}

#[test]
fn clones_share_bytes_and_vectors() {
    let weights = small();
    let clone = weights.clone();
    assert_eq!(
        weights.get("matrix", &[2, 3]).unwrap().bytes().as_ptr(),
        clone.get("matrix", &[2, 3]).unwrap().bytes().as_ptr()
    );
    assert_eq!(weights.vector("half", 3).unwrap().as_ptr(), clone.vector("half", 3).unwrap().as_ptr());
}

#[test]
fn vectors_of_every_float_format_convert_to_f32() {
    let weights = small();
    for name in ["single", "half", "bfloat"] {
        assert_eq!(weights.vector(name, 3).unwrap(), [1.0, -2.0, 0.5], "{name}");
    }
    assert_eq!(weights.find_vector("absent", 3).unwrap(), None);
    // F32 needs no conversion, so it is borrowed.
    let bytes = weights.get("single", &[3]).unwrap().bytes();
    assert_eq!(weights.vector("single", 3).unwrap().as_ptr().addr(), bytes.as_ptr().addr());
}

#[test]
fn unusable_tensors_are_named_in_errors() {
    let weights = small();
    assert_eq!(message(weights.get("absent", &[3])), "tensor `absent`: is missing from the file");
    assert_eq!(message(weights.vector("absent", 3)), "tensor `absent`: is missing from the file");
    assert_eq!(message(weights.get("matrix", &[3, 2])), "tensor `matrix`: has shape [2, 3], but [3, 2] is expected");
    assert_eq!(message(weights.find("matrix", &[6])), "tensor `matrix`: has shape [2, 3], but [6] is expected");
    assert_eq!(message(weights.vector("single", 4)), "tensor `single`: has shape [3], but [4] is expected");
    let packed = "tensor `packed`: is stored as Q8_0: a vector can be F32, F16 or BF16";
    assert_eq!(message(weights.vector("packed", 32)), packed);
    let listed = message(weights.get("listed", &[256]));
    let start =
        "tensor `listed`: is stored as Q8_K, for which there are no kernels: quantize it to one of F32, F16, Q4_0,";
    assert!(listed.starts_with(start), "{listed}");
}

#[test]
fn tensors_in_memory_are_checked_and_aligned() {
    let tensor =
        |name: &str, dtype, shape: &[usize], bytes: usize| (name.to_string(), dtype, shape.to_vec(), vec![1; bytes]);
    let weights =
        Weights::from_memory([tensor("a", DType::Q8_0, &[2, 64], 136), tensor("b", DType::F32, &[3], 12)]).unwrap();
    let a = weights.get("a", &[2, 64]).unwrap();
    assert_eq!(*a.bytes(), [1; 136]);
    assert!(a.bytes().as_ptr().addr().is_multiple_of(8));
    a.done_with(0..136);
    assert_eq!(weights.vector("b", 3).unwrap(), [f32::from_le_bytes([1; 4]); 3]);
    let one = |dtype, shape: &[usize], bytes| message(Weights::from_memory([tensor("t", dtype, shape, bytes)]));
    assert_eq!(one(DType::F32, &[3], 11), "tensor `t`: of shape [3] as F32 takes 12 bytes, not 11");
    for shape in [[].as_slice(), &[0], &[33], &[usize::MAX, 32]] {
        assert_eq!(one(DType::Q8_0, shape, 0), format!("tensor `t`: cannot have shape {shape:?} as Q8_0"));
    }
    let twice = [tensor("t", DType::F32, &[1], 4), tensor("t", DType::F32, &[1], 4)];
    assert_eq!(message(Weights::from_memory(twice)), "tensor `t`: is there twice");
}

#[test]
fn weights_are_readable_from_several_threads() {
    let weights = Arc::new(small());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(weights.vector("half", 3).unwrap(), [1.0, -2.0, 0.5]));
        }
    });
}
