//! Defines the vector operations that kernels are written in.
//!
//! A kernel is written once, generic over [`Simd`], and compiled for each instruction set; the
//! backend picks one at run time. A vector has [`Simd::WIDTH`] lanes of 32 bits, as integers (`I`)
//! or as f32 (`F`).
//!
//! Each operation executes instructions that the machine may lack, so a kernel that is generic over
//! `Simd` is an `unsafe fn` whose caller has checked the instruction set.

use super::unsafe_methods;

/// Rows of a weight tile, which a matrix unit multiplies at once. A multiple of every
/// [`Simd::WIDTH`].
pub(crate) const ROWS: usize = 16;

/// An instruction set, as operations on vectors of 32-bit lanes.
///
/// # Safety
/// Each method needs a machine that has the instruction set. A pointer must be valid for reads
/// (`load*`, `lookup`) or writes (`store*`) of one element per lane, of the size that the method
/// names; it need not be aligned.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Number of lanes in a vector; divides [`ROWS`].
    const WIDTH: usize;
    /// Whether [`dot4_accumulate`](Self::dot4_accumulate) subtracts 128 from 8-bit codes, to
    /// multiply them as signed numbers.
    const SIGNED_BYTES: bool;
    /// Whether [`dot4_accumulate`](Self::dot4_accumulate) keeps sums of 16 bits, so that
    /// [`dot_words`](Self::dot_words) depends on the bits of codes.
    const SHORT_SUMS: bool = false;
    /// Whether products with few tokens decode each code where they multiply it, in registers,
    /// instead of unpacking a chunk of the matrix first.
    const DECODES_IN_PLACE: bool = true;
    /// Vector of 32-bit integers.
    type I: Copy;
    /// Vector of f32.
    type F: Copy;
    /// Matrix unit of the instruction set, or [`NoUnit`].
    type Unit: MatrixUnit;

    unsafe_methods! {
        /// Returns a vector with `x` in every lane.
        fn splat_i(x: i32) -> Self::I;
        /// Loads a 32-bit integer per lane.
        fn load_i(from: *const u8) -> Self::I;
        /// Loads a 16-bit integer per lane, zero-extended.
        fn load_shorts(from: *const u8) -> Self::I;
        /// Loads a byte per lane, zero-extended.
        fn load_bytes(from: *const u8) -> Self::I;
        /// Returns `a & b`.
        fn and(a: Self::I, b: Self::I) -> Self::I;
        /// Returns `a | b`.
        fn or(a: Self::I, b: Self::I) -> Self::I;
        /// Returns `a ^ b`.
        fn xor(a: Self::I, b: Self::I) -> Self::I;
        /// Returns the wrapping sum of integers.
        fn add_i(a: Self::I, b: Self::I) -> Self::I;
        /// Shifts each lane left by `n` bits. `n` is less than 32, as for the other shifts.
        fn shl(a: Self::I, n: u32) -> Self::I;
        /// Shifts each lane right by `n` bits, filled with zeros.
        fn shr(a: Self::I, n: u32) -> Self::I;
        /// Shifts each lane right by `n` bits, filled with the sign.
        fn sar(a: Self::I, n: u32) -> Self::I;
        /// Returns the products of the 16-bit halves of each lane, modulo 2^16.
        fn mul_shorts(a: Self::I, b: Self::I) -> Self::I;
        /// Returns the products of the unsigned 16-bit halves of each lane, divided by 2^16.
        fn mul_shorts_high(a: Self::I, b: Self::I) -> Self::I;
        /// Replaces each byte of `index`, which must be less than 16, by that entry of `table`.
        fn lookup(table: &[u8; 16], index: Self::I) -> Self::I;
        /// Returns the entry of `table` for each lane of `index`, which must be below its length.
        fn gather(table: &[u32], index: Self::I) -> Self::I;
        /// Converts signed integers to f32.
        fn to_f(a: Self::I) -> Self::F;
        /// Reinterprets the bits of integers as f32.
        fn as_f(a: Self::I) -> Self::F;
        /// Stores a 32-bit integer per lane.
        fn store_i(to: *mut u8, a: Self::I);
        /// Stores each lane, which must be from -128 to 127, as a byte.
        fn store_bytes(to: *mut i8, a: Self::I);
        /// Returns the wrapping sum of all lanes, as signed integers.
        fn sum_i(a: Self::I) -> i32;

        /// Returns a vector with `x` in every lane.
        fn splat(x: f32) -> Self::F;
        /// Loads an f32 per lane.
        fn load(from: *const f32) -> Self::F;
        /// Loads an f16 per lane, converted to f32.
        fn load_f16(from: *const u16) -> Self::F;
        /// Loads a bf16 per lane, converted to f32.
        fn load_bf16(from: *const u16) -> Self::F;
        /// Loads a signed byte per lane, converted to f32.
        fn load_i8(from: *const i8) -> Self::F;
        /// Stores an f32 per lane.
        fn store(to: *mut f32, a: Self::F);
        /// Stores each lane as f16, rounded to nearest.
        fn store_f16(to: *mut u16, a: Self::F);
        /// Returns `a + b`.
        fn add(a: Self::F, b: Self::F) -> Self::F;
        /// Returns `a - b`.
        fn sub(a: Self::F, b: Self::F) -> Self::F;
        /// Returns `a * b`.
        fn mul(a: Self::F, b: Self::F) -> Self::F;
        /// Returns `a / b`.
        fn div(a: Self::F, b: Self::F) -> Self::F;
        /// Returns the larger of `a` and `b`.
        fn max(a: Self::F, b: Self::F) -> Self::F;
        /// Returns the smaller of `a` and `b`.
        fn min(a: Self::F, b: Self::F) -> Self::F;
        /// Returns `a * b + c`.
        fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
        /// Returns `c - a * b`.
        fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
        /// Returns the absolute value.
        fn abs(a: Self::F) -> Self::F;
        /// Converts to the nearest signed integers.
        fn to_i(a: Self::F) -> Self::I;
        /// Returns the sum of all lanes.
        fn sum(a: Self::F) -> f32;
        /// Returns the largest lane.
        fn max_lane(a: Self::F) -> f32;

        /// Adds the dot product of four codes and four signed bytes of `x` to each lane of `sum`.
        ///
        /// Codes are unsigned and less than `2^bits`; with `bits` 8 and
        /// [`SIGNED_BYTES`](Self::SIGNED_BYTES), 128 is subtracted from each first. `sum` is in a
        /// form that [`finish_dot`](Self::finish_dot) converts to integers.
        fn dot4_accumulate(bits: u32, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I;
        /// Converts the result of [`dot4_accumulate`](Self::dot4_accumulate) to an integer per
        /// lane.
        fn finish_dot(bits: u32, sum: Self::I) -> Self::I;

        /// Prefetches the cache line at `from`, which can be any address, into the first-level
        /// cache.
        fn prefetch(from: *const u8);
        /// Prefetches the cache line at `from`, which can be any address, into the second-level
        /// cache only, for use some microseconds later. That cache has space for many lines and
        /// allows more outstanding requests.
        fn prefetch_far(from: *const u8);
    }

    /// Runs a kernel in a function that is compiled for this instruction set, and that all callers
    /// share.
    ///
    /// Other calls of kernels are inlined up to the entry points of the backend, which are the only
    /// other functions for which the compiler may use the instruction set. Kernels that several
    /// formats need are called through this, so that there is one copy for all of them.
    ///
    /// # Safety
    /// As [`SimdKernel::run`] of the kernel.
    unsafe fn call<K: SimdKernel>(kernel: K);

    /// Returns the maximum number of calls of [`dot4_accumulate`](Self::dot4_accumulate) on one sum
    /// before [`finish_dot`](Self::finish_dot), so that no intermediate sum overflows.
    fn dot_words(bits: u32) -> usize;
}

/// A kernel and its operands.
pub(crate) trait SimdKernel {
    /// Computes the results. Must be inlined.
    ///
    /// # Safety
    /// The machine has `S`, and the operands are as the implementation says.
    unsafe fn run<S: Simd>(self);
}

/// A matrix unit: multiplies the codes of [`ROWS`] rows by the activations of several tokens in a
/// few instructions.
///
/// # Safety
/// Each method needs a machine that has the unit.
pub(crate) trait MatrixUnit: Copy + Send + Sync + 'static {
    /// Number of tokens per multiplication; 0 for [`NoUnit`].
    const TOKENS: usize;

    /// Configures the unit of this thread for multiplications of `words` words of codes.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn begin(words: usize);

    /// Writes `sums`, `[TOKENS, ROWS]` i32: the products of `codes`, `[words, ROWS]` words of four
    /// codes each, and the rows of `x`, `[TOKENS, 4 * words]` int8, which start `stride` bytes
    /// apart. Codes of `bits` bits are interpreted as by [`Simd::dot4_accumulate`].
    ///
    /// # Safety
    /// The machine has the unit, the pointers are valid for these shapes, `words` is even, and
    /// [`begin`](Self::begin) was called for the same `words`.
    unsafe fn multiply(bits: u32, words: usize, codes: *const u8, x: *const i8, stride: usize, sums: *mut i32);

    /// Releases the configuration of this thread's unit.
    ///
    /// # Safety
    /// The machine has the unit, and [`begin`](Self::begin) was called.
    unsafe fn end();
}

/// The matrix unit of instruction sets that have none.
#[derive(Clone, Copy)]
pub(crate) struct NoUnit;

impl MatrixUnit for NoUnit {
    const TOKENS: usize = 0;

    unsafe_methods! {
        fn begin(_words: usize) = ();
        fn multiply(_bits: u32, _words: usize, _codes: *const u8, _x: *const i8, _stride: usize, _sums: *mut i32) = ();
        fn end() = ();
    }
}
