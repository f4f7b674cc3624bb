//! The vector operations that kernels are written in.
//!
//! A kernel is written once, generic over [`Simd`], and compiled for each instruction set; the backend picks one at
//! run time. A vector has [`Simd::WIDTH`] lanes of 32 bits, read as a word (`I`) or a float (`F`).
//!
//! Every method is safe to *name* but executes instructions that the machine may lack: a kernel that is generic over
//! `Simd` is therefore an `unsafe fn`, whose caller has checked the instruction set.

/// Rows of a weight tile, which a matrix unit multiplies at once; a multiple of every [`Simd::WIDTH`].
pub(crate) const ROWS: usize = 16;

/// An instruction set, as vectors of 32-bit lanes.
///
/// # Safety
/// Callers of any method must run on a machine that has the instruction set; pointers must be readable or writable
/// for the bytes that the method names.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Lanes in a vector; a divisor of 16.
    const WIDTH: usize;
    /// Whether 8-bit codes are multiplied as signed numbers (the code less 128) rather than as they are.
    const SIGNED_BYTES: bool;
    /// Words in a vector.
    type I: Copy;
    /// Floats in a vector.
    type F: Copy;
    /// What multiplies whole blocks of bytes.
    type Unit: MatrixUnit;

    unsafe fn splat_i(x: i32) -> Self::I;
    /// One word for each lane.
    unsafe fn load_i(from: *const u8) -> Self::I;
    /// Two bytes for each lane, zero-extended.
    unsafe fn load_shorts(from: *const u8) -> Self::I;
    /// One byte for each lane, zero-extended.
    unsafe fn load_bytes(from: *const u8) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// Lane by lane, towards the high bits; `n` is below 32, as for the other shifts.
    unsafe fn shl(a: Self::I, n: u32) -> Self::I;
    /// Lane by lane, filled with zeros.
    unsafe fn shr(a: Self::I, n: u32) -> Self::I;
    /// Lane by lane, filled with the sign.
    unsafe fn sar(a: Self::I, n: u32) -> Self::I;
    /// Each byte, below 16, replaced by that entry of the table.
    unsafe fn lookup(table: &[u8; 16], index: Self::I) -> Self::I;
    /// Lanes as signed integers, converted.
    unsafe fn to_f(a: Self::I) -> Self::F;
    /// Lanes as the bits of floats.
    unsafe fn as_f(a: Self::I) -> Self::F;
    /// One word for each lane.
    unsafe fn store_i(to: *mut u8, a: Self::I);
    /// Each lane, from -128 to 127, as a byte.
    unsafe fn store_bytes(to: *mut i8, a: Self::I);
    /// The sum of all lanes as signed integers.
    unsafe fn sum_i(a: Self::I) -> i32;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(from: *const f32) -> Self::F;
    /// Half-precision floats, converted.
    unsafe fn load_f16(from: *const u16) -> Self::F;
    /// Upper halves of floats.
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    /// Signed bytes, converted.
    unsafe fn load_i8(from: *const i8) -> Self::F;
    unsafe fn store(to: *mut f32, a: Self::F);
    /// Converted to half precision, to nearest.
    unsafe fn store_f16(to: *mut u16, a: Self::F);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b`.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Without the sign.
    unsafe fn abs(a: Self::F) -> Self::F;
    /// To the nearest integers.
    unsafe fn to_i(a: Self::F) -> Self::I;
    unsafe fn sum(a: Self::F) -> f32;
    unsafe fn max_lane(a: Self::F) -> f32;

    /// How many words of codes below `2^bits` can be gathered by [`Simd::gather`] before [`Simd::total`].
    fn span(bits: u32) -> usize;
    /// Adds to `sum` the products of four codes and four signed bytes of `x`, lane by lane. Codes are unsigned and
    /// below `2^bits`; with `bits` 8 and [`Simd::SIGNED_BYTES`], 128 is first taken from each.
    unsafe fn gather(bits: u32, sum: Self::I, codes: Self::I, x: Self::I) -> Self::I;
    /// The gathered sums as one integer a lane.
    unsafe fn total(bits: u32, sum: Self::I) -> Self::I;

    /// Asks for the cache line at `from`, which need not be readable.
    unsafe fn prefetch(from: *const u8);
    /// As [`Simd::prefetch`], for use some microseconds later: into the second-level cache alone, where there is room
    /// for many lines and more can be under way.
    unsafe fn prefetch_far(from: *const u8);
}

/// A part of the machine that multiplies sixteen rows of codes with several tokens in one instruction or a few.
pub(crate) trait MatrixUnit: Copy + Send + Sync + 'static {
    /// Tokens that it takes at once; 0 where the machine has no such unit.
    const TOKENS: usize;

    /// Makes it ready for multiplications of `words` words of codes.
    ///
    /// # Safety
    /// The machine has the unit, here and below.
    unsafe fn begin(words: usize);

    /// `sums [TOKENS, 16]` = the products of codes `[words, 16]`, four to a word, with rows of signed bytes that begin
    /// `stride` bytes apart. What a code of so many bits counts is what it does in [`Simd::gather`].
    ///
    /// # Safety
    /// All three are there, `words` is even, and `begin` came before with as many.
    unsafe fn multiply(bits: u32, words: usize, codes: *const u8, x: *const i8, stride: usize, sums: *mut i32);

    /// Gives back what `begin` took.
    ///
    /// # Safety
    /// `begin` came before.
    unsafe fn end();
}

/// For machines without one.
#[derive(Clone, Copy)]
pub(crate) struct NoUnit;

impl MatrixUnit for NoUnit {
    const TOKENS: usize = 0;

    #[inline(always)]
    unsafe fn begin(_words: usize) {}
    #[inline(always)]
    unsafe fn multiply(_bits: u32, _words: usize, _codes: *const u8, _x: *const i8, _stride: usize, _sums: *mut i32) {}
    #[inline(always)]
    unsafe fn end() {}
}
