//! Changes the elements or the shape of tensors between a checkpoint and GGUF.

use half::{bf16, f16};

use super::Transform;
use crate::{DType, Error, Result, gguf::TensorInfo};

/// The longest vector that is copied, in elements.
const MAX_VECTOR: usize = 1 << 24;

impl Transform {
    /// Returns the GGUF tensor `name`, or the two tensors that the kernels of two frames become.
    /// `width` is the model's, in elements.
    pub(super) fn apply(self, tensor: &TensorInfo, name: String, width: usize) -> Result<Vec<TensorInfo>> {
        let error = |expected: &str| {
            Error::tensor(&tensor.name, format!("has shape {:?}, but {expected} is expected", tensor.shape))
        };
        let reshaped = |shape| {
            let mut reshaped = tensor.renamed(name.clone());
            reshaped.shape = shape;
            reshaped
        };
        match self {
            Self::None => Ok(vec![tensor.renamed(name)]),
            Self::AddOne => Ok(vec![map_elements(tensor, name, |x| x + 1.0)?]),
            Self::NegateExp => Ok(vec![map_elements(tensor, name, |x| -x.exp())?]),
            Self::FlattenKernel => match tensor.shape[..] {
                [channels, 1, taps] => Ok(vec![reshaped(vec![channels, taps])]),
                _ => Err(error("[channels, 1, taps]")),
            },
            Self::WidthAt(dimension) => match tensor.shape[..] {
                [experts, rows, columns] if tensor.shape.get(dimension) != Some(&width) => {
                    Ok(vec![transposed(tensor, name, [experts, rows, columns])?])
                }
                _ => Ok(vec![tensor.renamed(name)]),
            },
            Self::Squeeze => {
                let longer: Vec<_> = tensor.shape.iter().copied().filter(|&len| len != 1).collect();
                Ok(vec![reshaped(if longer.is_empty() { vec![1] } else { longer })])
            }
            Self::ChannelsFirst => match tensor.shape[..] {
                [rows, columns] => {
                    let side = (columns / CHANNELS).isqrt();
                    if side * side * CHANNELS != columns {
                        return Err(error("[rows, side * side * 3]"));
                    }
                    Ok(vec![channels_first(tensor, name, [rows, side])?])
                }
                _ => Err(error("a matrix")),
            },
            Self::SplitFrames => match tensor.shape[..] {
                [rows, channels, 2, height, width] => split_frames(tensor, name, [rows, channels, height, width]),
                _ => Err(error("[rows, channels, 2, height, width]")),
            },
        }
    }
}

/// The number of channels of a pixel.
const CHANNELS: usize = 3;

/// Returns the size of an element in bytes.
fn element_bytes(tensor: &TensorInfo) -> usize {
    tensor.byte_len() / tensor.elements()
}

/// Returns a copy with another order of dimensions: `[rows, 3, side, side]`.
fn channels_first(tensor: &TensorInfo, name: String, [rows, side]: [usize; 2]) -> Result<TensorInfo> {
    let (len, pixels) = (element_bytes(tensor), side * side);
    let bytes = tensor.read(0..tensor.byte_len())?;
    let mut ordered = Vec::with_capacity(bytes.len());
    for row in bytes.chunks_exact(CHANNELS * pixels * len) {
        for channel in 0..CHANNELS {
            for pixel in 0..pixels {
                ordered.extend_from_slice(&row[(pixel * CHANNELS + channel) * len..][..len]);
            }
        }
    }
    Ok(copy(tensor, name, vec![rows, CHANNELS, side, side], &ordered))
}

/// Returns a copy of a stack of matrices with rows and columns exchanged in each.
fn transposed(tensor: &TensorInfo, name: String, [experts, rows, columns]: [usize; 3]) -> Result<TensorInfo> {
    let len = element_bytes(tensor);
    let bytes = tensor.read(0..tensor.byte_len())?;
    let mut ordered = Vec::with_capacity(bytes.len());
    for matrix in bytes.chunks_exact(rows * columns * len) {
        for column in 0..columns {
            for row in 0..rows {
                ordered.extend_from_slice(&matrix[(row * columns + column) * len..][..len]);
            }
        }
    }
    Ok(copy(tensor, name, vec![experts, columns, rows], &ordered))
}

/// Returns the kernels of each frame, `[rows, channels, height, width]`.
fn split_frames(tensor: &TensorInfo, name: String, shape: [usize; 4]) -> Result<Vec<TensorInfo>> {
    let plane = shape[2] * shape[3] * element_bytes(tensor);
    let bytes = tensor.read(0..tensor.byte_len())?;
    let frame = |number: usize| bytes.chunks_exact(plane).skip(number).step_by(2).collect::<Vec<_>>().concat();
    let second = copy(tensor, format!("{name}.1"), shape.into(), &frame(1));
    Ok(vec![copy(tensor, name, shape.into(), &frame(0)), second])
}

/// Returns a tensor of `bytes` with the type of `tensor`.
fn copy(tensor: &TensorInfo, name: String, shape: Vec<usize>, bytes: &[u8]) -> TensorInfo {
    let mut copy = TensorInfo::in_memory(name, DType::F32, shape, bytes);
    copy.dtype = tensor.dtype;
    copy
}

/// Returns an F32 copy of a vector with `f` of each element.
fn map_elements(tensor: &TensorInfo, name: String, f: fn(f32) -> f32) -> Result<TensorInfo> {
    if tensor.shape.len() != 1 || tensor.elements() > MAX_VECTOR {
        let what = format!("has shape {:?}, but a vector of at most {MAX_VECTOR} elements is expected", tensor.shape);
        return Err(Error::tensor(&tensor.name, what));
    }
    let bytes = tensor.read(0..tensor.byte_len())?;
    let widen = |to_f32: fn([u8; 2]) -> f32| bytes.as_chunks().0.iter().map(|&bytes| to_f32(bytes)).collect::<Vec<_>>();
    let mut elements = match tensor.dtype.dtype() {
        Some(DType::F16) => widen(|bytes| f16::from_le_bytes(bytes).to_f32()),
        Some(DType::BF16) => widen(|bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
    };
    elements.iter_mut().for_each(|element| *element = f(*element));
    Ok(TensorInfo::in_memory(name, DType::F32, tensor.shape.clone(), bytemuck::cast_slice(&elements)))
}
