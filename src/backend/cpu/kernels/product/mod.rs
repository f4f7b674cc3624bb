//! Products of sixteen rows of a matrix with some tokens' activations: what every matrix product is made of.
//!
//! Out comes `c [tokens, 16]`. For few tokens the packed codes go straight from memory into the products ([`gemv`]); for
//! many, 256 columns at a time are unpacked once, into the first-level cache, and used for all tokens ([`gemm`]).

mod float;
mod gemm;
mod gemv;
mod inner;
mod input;

use std::marker::PhantomData;

pub(crate) use self::input::Input;
use super::quantize::Activations;
use crate::{
    backend::cpu::weights::matrix::Matrix,
    quant::{self, Tile, TileVisitor},
    simd::Simd,
};

/// Up to this many tokens, codes go straight from the tiles into the products.
const FEW_TOKENS: usize = 8;
/// `c[t][r]` = the product of the matrix's row `16 * group + r` with token `t`. Rows past the matrix give anything.
///
/// # Safety
/// The input is the matrix's columns wide, `c` has room, `group` is one of the matrix, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn group_product<S: Simd>(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match matrix {
            Matrix::Packed(packed) => {
                let x = &input.quantized;
                let visitor =
                    PackedProduct::<S> { tiles: packed.group(group), x, tokens: input.tokens, c, set: PhantomData };
                quant::visit_tile(packed.dtype, visitor);
            }
            Matrix::Float(matrix) => float::group_product::<S>(matrix, group, input, c),
        }
    }
}

/// Whether the input has so many tokens that codes are unpacked for them, and a matrix unit can multiply them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn has_many(input: &Input) -> bool {
    input.tokens > FEW_TOKENS
}

/// Does the same as [`group_product`], for packed matrices and inputs that [`has_many`] tokens.
///
/// # Safety
/// As for [`group_product`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) unsafe fn group_product_of_many<S: Simd>(
    packed: &crate::backend::cpu::weights::packed::Packed,
    group: usize,
    input: &Input,
    c: *mut f32,
) {
    let (tiles, x, tokens) = (packed.group(group), &input.quantized, input.tokens);
    // SAFETY: by the caller.
    unsafe {
        quant::visit_tile(packed.dtype, ManyProduct::<S>(PackedProduct { tiles, x, tokens, c, set: PhantomData }))
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct ManyProduct<'a, S>(PackedProduct<'a, S>);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<S: Simd> TileVisitor for ManyProduct<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn visit<T: Tile>(self) {
        let PackedProduct { tiles, x, tokens, c, .. } = self.0;
        // SAFETY: by the caller of `group_product_of_many`.
        unsafe { gemm::multiply::<S, T>(tiles, x, tokens, c) }
    }
}

struct PackedProduct<'a, S> {
    tiles: *const u8,
    x: &'a Activations,
    tokens: usize,
    c: *mut f32,
    set: PhantomData<S>,
}

impl<S: Simd> TileVisitor for PackedProduct<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn visit<T: Tile>(self) {
        let Self { tiles, x, tokens, c, .. } = self;
        // SAFETY: by the caller of `group_product`.
        unsafe {
            if tokens > FEW_TOKENS {
                return gemm::multiply::<S, T>(tiles, x, tokens, c);
            }
            let mut token = 0;
            // Thirty-two registers hold the sums of eight tokens, whose codes are then decoded once.
            if S::WIDTH == 16 && tokens == FEW_TOKENS {
                return gemv::multiply::<S, T, FEW_TOKENS>(tiles, x, 0, c);
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
