//! The kernels, compiled for each instruction set, behind one table of functions.

pub(super) mod attention;
pub(super) mod math;
pub(super) mod product;
pub(super) mod quantize;
pub(super) mod recurrent;
pub(super) mod rope;
pub(super) mod route;
#[cfg(test)]
mod tests;

use self::{
    attention::{LayerPages, Queries},
    product::Input,
    quantize::Activations,
    recurrent::{Convolution, Delta},
};
use super::weights::matrix::Matrix;
use crate::{graph::Activation, simd::*};

/// A function of two rows and their length, as [`math::binary`].
type Binary = unsafe fn(*const f32, *const f32, *mut f32, usize);

/// One instruction set's kernels, each compiled with its features switched on.
///
/// Calling them demands what the functions that they are made of demand; a table that [`detect`] returned suits this
/// machine.
pub(crate) struct Kernels {
    /// The instruction set's name.
    pub name: &'static str,
    pub quantize: unsafe fn(*const f32, &Activations, usize),
    pub product: unsafe fn(&Matrix, usize, &Input, *mut f32),
    pub add: Binary,
    pub mul: Binary,
    pub div: Binary,
    pub silu: Activate,
    pub gelu: Activate,
    pub soft_cap: unsafe fn(*const f32, f32, *mut f32, usize),
    pub sigmoid: Activate,
    pub rms_norm: unsafe fn(*const f32, *const f32, f32, *mut f32, usize),
    pub append: unsafe fn(&LayerPages<'_>, usize, usize, [*const f32; 2]),
    pub attend: unsafe fn(&Queries<'_>, usize, *mut f32),
    pub short_conv: unsafe fn(&Convolution<'_>, usize),
    pub gated_delta: unsafe fn(&Delta<'_>, usize),
}

/// An activation: times another operand, and alone.
#[derive(Clone, Copy)]
pub(crate) struct Activate {
    pub times: Binary,
    pub alone: unsafe fn(*const f32, *mut f32, usize),
}

impl Kernels {
    pub fn activate(&self, activation: Activation) -> Activate {
        match activation {
            Activation::Silu => self.silu,
            Activation::Gelu => self.gelu,
            Activation::Sigmoid => self.sigmoid,
        }
    }
}

/// Compiles every kernel for one instruction set.
macro_rules! kernels {
    ($module:ident, $simd:ty, $name:literal $(, $features:literal)?) => {
        mod $module {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn quantize(x: *const f32, to: &Activations, token: usize) {
                // SAFETY: by the caller.
                unsafe { quantize::quantize::<$simd>(x, to, token) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn product(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
                // SAFETY: by the caller.
                unsafe { product::group_product::<$simd>(matrix, group, input, c) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn add(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::binary::<$simd, math::Add>(a, b, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn mul(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::binary::<$simd, math::Mul>(a, b, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn div(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::binary::<$simd, math::Div>(a, b, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn silu_mul(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::binary::<$simd, math::SiluMul>(a, b, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn silu(x: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::with_one::<$simd, math::SiluMul>(x, 1.0, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gelu_mul(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::binary::<$simd, math::GeluMul>(a, b, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gelu(x: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::with_one::<$simd, math::GeluMul>(x, 1.0, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn soft_cap(x: *const f32, cap: f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::with_one::<$simd, math::SoftCap>(x, cap, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn sigmoid_mul(a: *const f32, b: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::binary::<$simd, math::SigmoidMul>(a, b, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn sigmoid(x: *const f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::with_one::<$simd, math::SigmoidMul>(x, 1.0, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn rms_norm(x: *const f32, w: *const f32, eps: f32, out: *mut f32, len: usize) {
                // SAFETY: by the caller.
                unsafe { math::rms_norm::<$simd>(x, w, eps, out, len) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn append(to: &LayerPages<'_>, head: usize, position: usize, kv: [*const f32; 2]) {
                // SAFETY: by the caller.
                unsafe { attention::append::<$simd>(to, head, position, kv) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn attend(queries: &Queries<'_>, part: usize, scratch: *mut f32) {
                // SAFETY: by the caller.
                unsafe { attention::attend::<$simd>(queries, part, scratch) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn short_conv(run: &Convolution<'_>, part: usize) {
                // SAFETY: by the caller.
                unsafe { recurrent::short_conv::<$simd>(run, part) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gated_delta(run: &Delta<'_>, part: usize) {
                // SAFETY: by the caller.
                unsafe { recurrent::gated_delta::<$simd>(run, part) }
            }

            pub(crate) static TABLE: Kernels = Kernels {
                name: $name,
                quantize,
                product,
                add,
                mul,
                div,
                silu: Activate { times: silu_mul, alone: silu },
                gelu: Activate { times: gelu_mul, alone: gelu },
                soft_cap,
                sigmoid: Activate { times: sigmoid_mul, alone: sigmoid },
                rms_norm,
                append,
                attend,
                short_conv,
                gated_delta,
            };
        }
    };
}

/// Compiles the products for an instruction set that differs from `$base` in how it multiplies bytes. The other kernels
/// are those of `$base`: a second copy would be the same instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! byte_products {
    ($module:ident, $simd:ty, $name:literal, $features:literal, $base:ident) => {
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            unsafe fn product(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
                // SAFETY: by the caller.
                unsafe { product::group_product::<$simd>(matrix, group, input, c) }
            }

            pub(crate) static TABLE: Kernels = Kernels { name: $name, product, ..$base::TABLE };
        }
    };
}

/// Compiles the products of many tokens for an instruction set that adds a matrix unit to `$base`. The other kernels are
/// those of `$base`, as the unit takes no part in them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! matrix_unit {
    ($module:ident, $simd:ty, $name:literal, $features:literal, $base:ident) => {
        mod $module {
            use super::*;
            use crate::backend::cpu::weights::packed::Packed;

            #[target_feature(enable = $features)]
            unsafe fn many(packed: &Packed, group: usize, input: &Input, c: *mut f32) {
                // SAFETY: by the caller.
                unsafe { product::group_product_of_many::<$simd>(packed, group, input, c) }
            }

            unsafe fn product(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
                // SAFETY: by the caller.
                unsafe {
                    match matrix {
                        Matrix::Packed(packed) if product::has_many(input) => many(packed, group, input, c),
                        _ => ($base::TABLE.product)(matrix, group, input, c),
                    }
                }
            }

            pub(crate) static TABLE: Kernels = Kernels { name: $name, product, ..$base::TABLE };
        }
    };
}

kernels!(portable, Portable, "portable");
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, "AVX2", "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
byte_products!(avx_vnni, AvxVnni, "AVX-VNNI", "avxvnni,avx2,fma,f16c", avx2);
#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, "AVX-512 VNNI", "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
matrix_unit!(amx, Avx512Amx, "AMX", "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c", avx512);
#[cfg(target_arch = "aarch64")]
kernels!(neon, Neon, "NEON", "neon");
#[cfg(target_arch = "aarch64")]
byte_products!(neon_dotprod, NeonDotprod, "NEON dotprod", "neon,dotprod", neon);
#[cfg(target_arch = "aarch64")]
matrix_unit!(neon_i8mm, NeonI8mm, "NEON i8mm", "neon,dotprod,i8mm", neon_dotprod);

/// Every table that this machine can run, the fastest first.
pub(crate) fn detect() -> Vec<&'static Kernels> {
    let mut found: Vec<&Kernels> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        if avx2 && avx512 {
            if crate::simd::amx::detect() {
                found.push(&amx::TABLE);
            }
            found.push(&avx512::TABLE);
        }
        if avx2 && is_x86_feature_detected!("avxvnni") {
            found.push(&avx_vnni::TABLE);
        }
        if avx2 {
            found.push(&avx2::TABLE);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            if std::arch::is_aarch64_feature_detected!("i8mm") {
                found.push(&neon_i8mm::TABLE);
            }
            found.push(&neon_dotprod::TABLE);
        }
        found.push(&neon::TABLE);
    }
    found.push(&portable::TABLE);
    found
}
