//! Compiles the kernels for each instruction set, behind a table of functions.

pub(super) mod attention;
pub(super) mod math;
pub(super) mod product;
pub(super) mod quantize;
pub(super) mod recurrent;
pub(super) mod rope;
pub(super) mod route;
pub(super) mod rows;
pub(super) mod state_scan;
#[cfg(test)]
mod tests;

use self::{
    attention::{LayerPages, Queries},
    product::Input,
    quantize::Q8Activations,
    recurrent::{GatedDeltaRun, ShortConvRun},
    state_scan::StateScanRun,
};
use super::weights::matrix::Matrix;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::weights::packed::PackedMatrix;
use crate::{
    graph::{Activation, Glu},
    simd::*,
};

/// A function `(a, b, out, len)` of two rows: [`math::elementwise`].
type ElementwiseKernel = unsafe fn(*const f32, *const f32, *mut f32, usize);

/// The kernels of an instruction set, each compiled with its features enabled.
///
/// A call must satisfy the contract of the function that each field names. A table that [`detect`]
/// returned suits this machine.
pub(crate) struct Kernels {
    /// The instruction set's name.
    pub name: &'static str,
    /// [`quantize::quantize`]
    pub quantize: unsafe fn(*const f32, &Q8Activations, usize),
    /// [`product::group_product`]
    pub product: unsafe fn(&Matrix, usize, &Input, *mut f32),
    pub add: ElementwiseKernel,
    pub mul: ElementwiseKernel,
    pub div: ElementwiseKernel,
    pub silu: ActivationKernels,
    pub gelu: ActivationKernels,
    pub gelu_erf: ActivationKernels,
    pub quick_gelu: ActivationKernels,
    pub sigmoid: ActivationKernels,
    pub relu: ActivationKernels,
    pub squared_relu: ActivationKernels,
    /// [`math::elementwise`] with [`math::ClampedGlu`].
    pub clamped_glu: ElementwiseKernel,
    /// `(x, cap, out, len)`: [`math::elementwise_scalar`] with [`math::SoftCap`].
    pub soft_cap: unsafe fn(*const f32, f32, *mut f32, usize),
    /// [`math::rms_norm`]
    pub rms_norm: unsafe fn(*const f32, *const f32, f32, *mut f32, usize),
    /// [`math::layer_norm`]
    pub layer_norm: unsafe fn(*const f32, &[f32], &[f32], f32, *mut f32),
    /// [`attention::append`]
    pub append: unsafe fn(&LayerPages<'_>, usize, usize, *const f32, *const f32),
    /// [`attention::attend`]
    pub attend: unsafe fn(&Queries<'_>, usize, *mut f32),
    /// [`recurrent::short_conv`]
    pub short_conv: unsafe fn(&ShortConvRun<'_>, usize),
    /// [`recurrent::gated_delta`]
    pub gated_delta: unsafe fn(&GatedDeltaRun<'_>, usize),
    /// [`state_scan::state_scan`]
    pub state_scan: unsafe fn(&StateScanRun<'_>, usize),
}

/// The kernels of an activation function `f`.
#[derive(Clone, Copy)]
pub(crate) struct ActivationKernels {
    /// `f(a) * b`, as in gated feed-forward layers.
    pub gated: ElementwiseKernel,
    /// `(x, out, len)`: `f(x)`.
    pub plain: unsafe fn(*const f32, *mut f32, usize),
}

impl Kernels {
    /// Returns the kernel of a gated linear unit.
    pub fn glu(&self, glu: Glu) -> ElementwiseKernel {
        match glu {
            Glu::Plain(activation) => self.activation(activation).gated,
            Glu::Clamped => self.clamped_glu,
        }
    }

    pub fn activation(&self, activation: Activation) -> ActivationKernels {
        match activation {
            Activation::Silu => self.silu,
            Activation::Gelu => self.gelu,
            Activation::GeluErf => self.gelu_erf,
            Activation::QuickGelu => self.quick_gelu,
            Activation::Sigmoid => self.sigmoid,
            Activation::Relu => self.relu,
            Activation::SquaredRelu => self.squared_relu,
        }
    }
}

/// Compiles a function with the features of an instruction set, given as `[features]`.
macro_rules! entry_point {
    ([$($features:literal)?] $name:ident($($arg:ident: $type:ty),*) = $call:expr) => {
        /// Calls the kernel with the instruction set's features enabled.
        ///
        /// # Safety
        /// As the kernel, and the machine has the features.
        $(#[target_feature(enable = $features)])?
        unsafe fn $name($($arg: $type),*) {
            // SAFETY: by the caller.
            unsafe { $call }
        }
    };
}

/// Compiles the element-wise kernels of an instruction set: functions of two rows, and of a row and
/// a scalar.
macro_rules! elementwise_kernels {
    ($features:tt $simd:ty: $($rows:ident = $rows_of:ty),*; $($scalar:ident = $scalar_of:ty),*) => {
        $(entry_point!($features $rows(a: *const f32, b: *const f32, out: *mut f32, len: usize)
            = math::elementwise::<$simd, $rows_of>(a, b, out, len));)*
        $(entry_point!($features $scalar(x: *const f32, out: *mut f32, len: usize)
            = math::elementwise_scalar::<$simd, $scalar_of>(x, 1.0, out, len));)*
    };
}

/// Compiles every kernel for an instruction set.
macro_rules! kernels {
    ($module:ident, $simd:ty, $name:literal, $features:tt) => {
        mod $module {
            use super::*;

            entry_point!($features quantize(x: *const f32, to: &Q8Activations, token: usize)
                = quantize::quantize::<$simd>(x, to, token));
            entry_point!($features product(matrix: &Matrix, group: usize, input: &Input, c: *mut f32)
                = product::group_product::<$simd>(matrix, group, input, c));
            elementwise_kernels!($features $simd:
                add = math::Add, mul = math::Mul, div = math::Div,
                silu_mul = math::SiluMul, gelu_mul = math::GeluMul, gelu_erf_mul = math::GeluErfMul,
                quick_gelu_mul = math::QuickGeluMul, sigmoid_mul = math::SigmoidMul,
                relu_mul = math::ReluMul, squared_relu_mul = math::SquaredReluMul, clamped_glu = math::ClampedGlu;
                silu = math::SiluMul, gelu = math::GeluMul, gelu_erf = math::GeluErfMul,
                quick_gelu = math::QuickGeluMul, sigmoid = math::SigmoidMul,
                relu = math::ReluMul, squared_relu = math::SquaredReluMul);
            entry_point!($features soft_cap(x: *const f32, cap: f32, out: *mut f32, len: usize)
                = math::elementwise_scalar::<$simd, math::SoftCap>(x, cap, out, len));
            entry_point!($features rms_norm(x: *const f32, w: *const f32, eps: f32, out: *mut f32, len: usize)
                = math::rms_norm::<$simd>(x, w, eps, out, len));
            entry_point!($features layer_norm(x: *const f32, w: &[f32], b: &[f32], eps: f32, out: *mut f32)
                = math::layer_norm::<$simd>(x, w, b, eps, out));
            entry_point!($features append(to: &LayerPages<'_>, head: usize, position: usize, k: *const f32, v: *const f32)
                = attention::append::<$simd>(to, head, position, k, v));
            entry_point!($features attend(queries: &Queries<'_>, item: usize, scratch: *mut f32)
                = attention::attend::<$simd>(queries, item, scratch));
            entry_point!($features short_conv(run: &ShortConvRun<'_>, piece: usize)
                = recurrent::short_conv::<$simd>(run, piece));
            entry_point!($features gated_delta(run: &GatedDeltaRun<'_>, piece: usize)
                = recurrent::gated_delta::<$simd>(run, piece));
            entry_point!($features state_scan(run: &StateScanRun<'_>, head: usize)
                = state_scan::state_scan::<$simd>(run, head));

            pub(crate) static TABLE: Kernels = Kernels {
                name: $name,
                quantize,
                product,
                add,
                mul,
                div,
                silu: ActivationKernels { gated: silu_mul, plain: silu },
                gelu: ActivationKernels { gated: gelu_mul, plain: gelu },
                gelu_erf: ActivationKernels { gated: gelu_erf_mul, plain: gelu_erf },
                quick_gelu: ActivationKernels { gated: quick_gelu_mul, plain: quick_gelu },
                sigmoid: ActivationKernels { gated: sigmoid_mul, plain: sigmoid },
                relu: ActivationKernels { gated: relu_mul, plain: relu },
                squared_relu: ActivationKernels { gated: squared_relu_mul, plain: squared_relu },
                clamped_glu,
                soft_cap,
                rms_norm,
                layer_norm,
                append,
                attend,
                short_conv,
                gated_delta,
                state_scan,
            };
        }
    };
}

/// Compiles the products for an instruction set that differs from `$base` in the multiplication of
/// bytes alone. `$base` provides the other kernels: a second copy would be the same
/// instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! byte_products {
    ($module:ident, $simd:ty, $name:literal, $features:tt, $base:ident) => {
        mod $module {
            use super::*;

            entry_point!($features product(matrix: &Matrix, group: usize, input: &Input, c: *mut f32)
                = product::group_product::<$simd>(matrix, group, input, c));

            pub(crate) static TABLE: Kernels = Kernels { name: $name, product, ..$base::TABLE };
        }
    };
}

/// Compiles the products of many tokens for an instruction set that adds a matrix unit to `$base`.
/// `$base` provides the other kernels, as they do not use the unit.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! matrix_unit {
    ($module:ident, $simd:ty, $name:literal, $features:tt, $base:ident) => {
        mod $module {
            use super::*;

            entry_point!($features gemm(packed: &PackedMatrix, group: usize, input: &Input, c: *mut f32)
                = product::group_gemm::<$simd>(packed, group, input, c));

            /// Computes [`product::group_product`], on the matrix unit where that can.
            ///
            /// # Safety
            /// As there.
            unsafe fn product(matrix: &Matrix, group: usize, input: &Input, c: *mut f32) {
                // SAFETY: by the caller.
                unsafe {
                    match matrix {
                        Matrix::Packed(packed) if product::is_gemm(input) => gemm(packed, group, input, c),
                        _ => ($base::TABLE.product)(matrix, group, input, c),
                    }
                }
            }

            pub(crate) static TABLE: Kernels = Kernels { name: $name, product, ..$base::TABLE };
        }
    };
}

kernels!(portable, Portable, "portable", []);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, "AVX2", ["avx2,fma,f16c"]);
#[cfg(target_arch = "x86_64")]
byte_products!(avx_vnni, AvxVnni, "AVX-VNNI", ["avxvnni,avx2,fma,f16c"], avx2);
#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, "AVX-512 VNNI", ["avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"]);
#[cfg(target_arch = "x86_64")]
matrix_unit!(amx, Avx512Amx, "AMX", ["avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"], avx512);
#[cfg(target_arch = "aarch64")]
kernels!(neon, Neon, "NEON", ["neon"]);
#[cfg(target_arch = "aarch64")]
byte_products!(neon_dotprod, NeonDotprod, "NEON dotprod", ["neon,dotprod"], neon);
#[cfg(target_arch = "aarch64")]
matrix_unit!(neon_i8mm, NeonI8mm, "NEON i8mm", ["neon,dotprod,i8mm"], neon_dotprod);

/// Returns the tables that this machine can run, the fastest first.
pub(crate) fn detect() -> Vec<&'static Kernels> {
    let mut tables: Vec<&Kernels> = Vec::new();
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
                tables.push(&amx::TABLE);
            }
            tables.push(&avx512::TABLE);
        }
        if avx2 && is_x86_feature_detected!("avxvnni") {
            tables.push(&avx_vnni::TABLE);
        }
        if avx2 {
            tables.push(&avx2::TABLE);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            if std::arch::is_aarch64_feature_detected!("i8mm") {
                tables.push(&neon_i8mm::TABLE);
            }
            tables.push(&neon_dotprod::TABLE);
        }
        tables.push(&neon::TABLE);
    }
    tables.push(&portable::TABLE);
    tables
}
