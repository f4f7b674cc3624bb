//! Multiplies sixteen rows of a matrix with the activations of some tokens.
//!
//! The result is `c [tokens, 16]`. For few tokens ([`gemv`]) the packed codes go straight from
//! memory into the products. For more ([`gemm`]), 256 columns at a time are unpacked into the
//! first-level cache, and used for all tokens.

mod float;
mod gemm;
mod gemv;
mod inner;
mod input;

use std::marker::PhantomData;

pub(crate) use self::input::Input;
use super::quantize::Q8Activations;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::backend::cpu::weights::packed::PackedMatrix;
use crate::{
    backend::cpu::weights::matrix::Matrix,
    quant::{self, Tile, TileVisitor},
    simd::{Simd, SimdKernel},
};

/// Largest number of tokens that [`gemv`] multiplies.
const GEMV_TOKENS: usize = 8;

/// Writes the product of the matrix's row `16 * group + r` with token `t` to `c[t][r]`. Rows past
/// the end of the matrix give unspecified numbers.
///
/// # Safety
/// The rows of `input` are as wide as the matrix, `group` is below the matrix's groups, `c` is
/// writable for `input.tokens * 16` floats that no other thread uses, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn group_product<S: Simd>(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match matrix {
            Matrix::Packed(packed) => {
                let (tiles, x) = (packed.group(group), &input.q8);
                let product = PackedProduct::<S, true> { tiles, x, tokens: input.tokens, c, set: PhantomData };
                quant::visit_tile(packed.dtype, product);
            }
            Matrix::Float(matrix) => float::group_product::<S>(matrix, group, input, c),
        }
    }
}

/// Returns whether [`group_product`] multiplies the input by [`gemm`], which a matrix unit can do.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn is_gemm(input: &Input) -> bool {
    input.tokens > GEMV_TOKENS
}

/// Computes [`group_product`] for packed matrices, and inputs for which [`is_gemm`] holds.
///
/// # Safety
/// As [`group_product`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) unsafe fn group_gemm<S: Simd>(packed: &PackedMatrix, group: usize, input: &Input, c: *mut f32) {
    let (tiles, x, tokens) = (packed.group(group), &input.q8, input.tokens);
    let product = PackedProduct::<S, false> { tiles, x, tokens, c, set: PhantomData };
    // SAFETY: by the caller.
    unsafe { quant::visit_tile(packed.dtype, product) };
}

/// The operands of [`group_product`] for a packed matrix of any format. Few tokens are multiplied
/// by [`gemv`] only with `FEW`.
struct PackedProduct<'a, S, const FEW: bool> {
    /// The tiles of the group.
    tiles: *const u8,
    x: &'a Q8Activations,
    tokens: usize,
    c: *mut f32,
    set: PhantomData<S>,
}

impl<S: Simd, const FEW: bool> TileVisitor for PackedProduct<'_, S, FEW> {
    type Output = ();

    /// # Safety: as [`group_product`], and `T` is the format of the tiles.
    #[inline(always)]
    unsafe fn visit<T: Tile>(self) {
        let Self { tiles, x, tokens, c, .. } = self;
        // A function for each format: one for all would have the stack of all.
        // SAFETY: by the caller of `group_product`.
        unsafe { S::call(FormatProduct::<T, FEW> { tiles, x, tokens, c, format: PhantomData }) }
    }
}

/// The operands of a [`PackedProduct`] whose format is known.
struct FormatProduct<'a, T, const FEW: bool> {
    tiles: *const u8,
    x: &'a Q8Activations,
    tokens: usize,
    c: *mut f32,
    format: PhantomData<T>,
}

impl<T: Tile, const FEW: bool> SimdKernel for FormatProduct<'_, T, FEW> {
    /// # Safety: as [`group_product`], and `T` is the format of the tiles.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { tiles, x, tokens, c, .. } = self;
        // SAFETY: by the caller of `group_product`.
        unsafe {
            if const { !FEW || !S::DECODES_IN_PLACE } || tokens > GEMV_TOKENS {
                return gemm::multiply::<S, T>(tiles, x, tokens, c);
            }
            let mut token = 0;
            // Thirty-two registers hold the sums of eight tokens, so codes are decoded once for
            // them.
            if S::WIDTH == 16 && tokens == GEMV_TOKENS {
                return gemv::multiply::<S, T, GEMV_TOKENS>(tiles, x, 0, c);
            }
            while token + 4 <= tokens {
                gemv::multiply::<S, T, 4>(tiles, x, token, c);
                token += 4;
            }
            if token + 2 <= tokens {
                gemv::multiply::<S, T, 2>(tiles, x, token, c);
                token += 2;
            }
            if token < tokens {
                gemv::multiply::<S, T, 1>(tiles, x, token, c);
            }
        }
    }
}
