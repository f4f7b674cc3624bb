//! Tests tiles, as `PackedMatrix` writes them and each instruction set reads them, against the
//! reference decoders of the formats.

mod lanes;

use std::{cell::Cell, marker::PhantomData, sync::Arc};

use crate::{
    DType,
    backend::cpu::{
        memory::aligned::AlignedBytes,
        weights::{
            packed::PackedMatrix,
            stack::{GroupRow, Stack},
        },
    },
    quant::{self, Lanes, ROWS, Tile, TileVisitor},
    simd::{Portable, Simd},
};

#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512, AvxVnni};
#[cfg(target_arch = "aarch64")]
use crate::simd::{Neon, NeonDotprod};

/// A check that every instruction set must pass.
pub(in crate::backend::cpu) trait Check {
    /// Runs the check; `set` names the instruction set.
    ///
    /// # Safety
    /// The machine has `S`.
    unsafe fn run<S: Simd>(&self, set: &str);
}

/// Runs a check with an instruction set if the machine has its features.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! on_set {
    ($check:expr, $set:ty, $name:literal, $detected:ident: $($feature:tt),+) => {{
        $(#[target_feature(enable = $feature)])+
        fn run(check: &impl Check) {
            // SAFETY: this function's callers must have the instruction set.
            unsafe { check.run::<$set>($name) }
        }
        if $(std::arch::$detected!($feature))&&+ {
            // SAFETY: just checked.
            unsafe { run($check) };
        } else {
            eprintln!("skipped: this machine has no {}", $name);
        }
    }};
}

/// Runs a check with every instruction set of this machine.
pub(in crate::backend::cpu) fn on_each_set(check: &impl Check) {
    // SAFETY: every machine has it.
    unsafe { check.run::<Portable>("portable") };
    #[cfg(target_arch = "x86_64")]
    {
        on_set!(check, Avx2, "AVX2", is_x86_feature_detected: "avx2", "fma", "f16c");
        on_set!(check, AvxVnni, "AVX-VNNI", is_x86_feature_detected: "avxvnni", "avx2", "fma", "f16c");
        on_set!(check, Avx512, "AVX-512 VNNI", is_x86_feature_detected: "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni");
    }
    #[cfg(target_arch = "aarch64")]
    {
        on_set!(check, Neon, "NEON", is_aarch64_feature_detected: "neon");
        on_set!(check, NeonDotprod, "NEON dotprod", is_aarch64_feature_detected: "neon", "dotprod");
    }
}

fn block_formats() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| !dtype.is_float())
}

/// The pseudo-random generator SplitMix64.
struct Random(Cell<u64>);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let x = self.0.get();
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn byte(&self) -> u8 {
        (self.next() >> 56) as u8
    }
}

fn dequantized(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut weights = vec![f32::NAN; bytes.len() / dtype.block_bytes() * dtype.block_weights()];
    quant::dequantize_row(dtype, bytes, &mut weights).unwrap();
    weights
}

/// Returns blocks of random bytes with weights so far from overflow that their minima are finite
/// too.
fn random_blocks(dtype: DType, count: usize, random: &Random) -> Vec<u8> {
    let block = || loop {
        let block: Vec<u8> = (0..dtype.block_bytes()).map(|_| random.byte()).collect();
        if dequantized(dtype, &block).iter().all(|weight| weight.abs() < 1e37) {
            return block;
        }
    };
    (0..count).flat_map(|_| block()).collect()
}

fn pack(dtype: DType, file: &[u8], rows: usize) -> PackedMatrix {
    let columns = file.len() / rows / dtype.block_bytes() * dtype.block_weights();
    let stack = Stack { count: 1, rows, columns };
    let memory = Arc::new(AlignedBytes::new(PackedMatrix::byte_len(dtype, stack).unwrap()).unwrap());
    let packed = PackedMatrix::new(dtype, stack, &memory, 0).unwrap();
    for (group, rows) in file.chunks(packed.group_bytes()).enumerate() {
        // SAFETY: no other thread has the matrix.
        unsafe { packed.fill(group, rows) };
    }
    packed
}

/// Returns the lanes of a vector, read as signed integers.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn to_floats<S: Simd>(words: S::I) -> Vec<f32> {
    let mut lanes = vec![0.0; S::WIDTH];
    // SAFETY: by the caller; there is room for the lanes.
    unsafe { S::store(lanes.as_mut_ptr(), S::to_f(words)) };
    lanes
}

/// Decodes all rows of a matrix through [`Tile`], also the padding rows of its last group.
struct Decode<'a, S> {
    packed: &'a PackedMatrix,
    set: PhantomData<S>,
}

impl<S: Simd> Decode<'_, S> {
    /// Calls `put` with the row, column and weight of each weight of `S::WIDTH` rows of a tile.
    ///
    /// # Safety
    /// The tile is readable and the machine has the instruction set.
    #[inline(always)]
    unsafe fn tile<T: Tile>(lanes: Lanes, mut put: impl FnMut(usize, usize, f64)) {
        // SAFETY: by the caller; the stores have room for the lanes.
        unsafe {
            let head = T::head::<S>(lanes);
            for word in 0..T::COLUMNS / 4 {
                let (mut scale, mut min) = (vec![0.0; S::WIDTH], vec![0.0; S::WIDTH]);
                let (scales, mins) = T::scale_min::<S>(&head, word * 4 / T::GROUP);
                S::store(scale.as_mut_ptr(), scales);
                S::store(min.as_mut_ptr(), mins);
                let codes = T::codes::<S>(lanes, word);
                for byte in 0..4 {
                    let codes = to_floats::<S>(S::and(S::shr(codes, 8 * byte), S::splat_i(255)));
                    for (lane, code) in codes.into_iter().enumerate() {
                        let (scale, min) = (f64::from(scale[lane]), f64::from(min[lane]));
                        assert!(code < (1_u32 << T::BITS) as f32);
                        assert!(T::BITS != 8 || min == 128.0 * scale);
                        put(lanes.row + lane, 4 * word + byte as usize, scale * f64::from(code) - min);
                    }
                }
            }
        }
    }
}

impl<S: Simd> TileVisitor for Decode<'_, S> {
    type Output = Vec<f64>;

    /// # Safety: the machine has `S`, and `T` is the format of the matrix.
    #[inline(always)]
    unsafe fn visit<T: Tile>(self) -> Vec<f64> {
        let columns = self.packed.stack.columns;
        let mut weights = vec![f64::NAN; self.packed.stack.groups() * ROWS * columns];
        for group in 0..self.packed.stack.groups() {
            for index in 0..columns / T::COLUMNS {
                for row in (0..ROWS).step_by(S::WIDTH) {
                    let lanes = Lanes { tile: self.packed.group(group).wrapping_add(index * ROWS * T::BYTES), row };
                    let put = |row, column, weight| {
                        weights[(group * ROWS + row) * columns + index * T::COLUMNS + column] = weight;
                    };
                    // SAFETY: the tile is one of the matrix; the rest is by the caller.
                    unsafe { Self::tile::<T>(lanes, put) };
                }
            }
        }
        weights
    }
}

/// Compares decoded matrices with the reference decoder.
struct Decodes {
    dtype: DType,
    file: Vec<u8>,
    rows: usize,
}

impl Check for Decodes {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let packed = pack(self.dtype, &self.file, self.rows);
        let expected = dequantized(self.dtype, &self.file);
        // SAFETY: by the caller.
        let got = unsafe { quant::visit_tile(self.dtype, Decode::<S> { packed: &packed, set: PhantomData }) }.unwrap();
        assert!(got.len() >= expected.len() && got[expected.len()..].iter().all(|&weight| weight == 0.0));
        let block = self.dtype.block_weights();
        for (index, (got, expected)) in got.chunks(block).zip(expected.chunks(block)).enumerate() {
            let largest = expected.iter().fold(0.0, |largest: f32, weight| largest.max(weight.abs()));
            for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
                let error = (got - f64::from(expected)).abs();
                let bound = 1e-6 * f64::from(largest);
                assert!(error <= bound, "{set}, {}, block {index}, weight {i}: {got}, not {expected}", self.dtype);
            }
        }
    }
}

#[test]
fn tiles_decode_as_the_reference_does() {
    let random = Random::new(1);
    // Miri takes minutes for more.
    let (row_counts, blocks): (&[usize], usize) = if cfg!(miri) { (&[17], 1) } else { (&[16, 37], 3) };
    for dtype in block_formats() {
        for &rows in row_counts {
            on_each_set(&Decodes { dtype, file: random_blocks(dtype, rows * blocks, &random), rows });
        }
    }
}

#[test]
fn mxfp4_tiles_decode_every_exponent() {
    let random = Random::new(2);
    let mut file = random_blocks(DType::MXFP4, 252, &random);
    for (exponent, block) in file.chunks_exact_mut(DType::MXFP4.block_bytes()).enumerate() {
        block[0] = exponent as u8;
    }
    on_each_set(&Decodes { dtype: DType::MXFP4, file, rows: 18 });
}

#[test]
fn packed_rows_read_back_as_written() {
    let random = Random::new(3);
    let (row_counts, blocks): (&[usize], usize) = if cfg!(miri) { (&[17], 3) } else { (&[1, 15, 16, 17, 48], 35) };
    for dtype in block_formats() {
        for &rows in row_counts {
            let row_bytes = blocks * dtype.block_bytes();
            let file: Vec<u8> = (0..rows * row_bytes).map(|_| random.byte()).collect();
            let packed = pack(dtype, &file, rows);
            assert_eq!(packed.stack.groups() * packed.group_bytes(), rows.next_multiple_of(ROWS) * row_bytes);
            let mut read = vec![0; row_bytes];
            for row in 0..packed.stack.groups() * ROWS {
                read.fill(0xaa);
                packed.read_group_row(GroupRow { group: row / ROWS, row: row % ROWS }, &mut read);
                match file.chunks_exact(row_bytes).nth(row) {
                    Some(expected) => assert_eq!(read, expected, "{dtype}, row {row} of {rows}"),
                    None => assert!(read.iter().all(|&byte| byte == 0), "{dtype}, row {row} past {rows}"),
                }
            }
        }
    }
}

#[test]
fn float_matrices_have_no_tiles() {
    assert!(PackedMatrix::byte_len(DType::F16, Stack { count: 1, rows: 16, columns: 32 }).is_none());
}

/// Reads the bits of a format's codes.
struct Bits;

impl TileVisitor for Bits {
    type Output = u32;

    /// # Safety: none; only a constant is read.
    unsafe fn visit<T: Tile>(self) -> u32 {
        T::BITS
    }
}

/// Checks that sums of [`Simd::dot_words`] products are exact for codes of this many bits.
struct ExactSums(u32);

/// Chooses a code or an activation by its index.
type Choice<'a, T> = &'a dyn Fn(usize) -> T;

impl ExactSums {
    /// Compares the sums with i64 arithmetic.
    ///
    /// # Safety
    /// The machine has the instruction set.
    #[inline(always)]
    unsafe fn check<S: Simd>(&self, set: &str, code: Choice<'_, u8>, x: Choice<'_, i8>) {
        let (line, words) = (4 * S::WIDTH, S::dot_words(self.0));
        let codes: Vec<u8> = (0..line * words).map(code).collect();
        let activations: Vec<u8> = (0..line * words).map(|i| x(i) as u8).collect();
        // SAFETY: by the caller; each load reads one line of the vectors above.
        let got = unsafe {
            let mut sum = S::splat_i(0);
            for word in 0..words {
                let codes = S::load_i(codes[word * line..][..line].as_ptr());
                let x = S::load_i(activations[word * line..][..line].as_ptr());
                sum = S::dot4_accumulate(self.0, sum, codes, x);
            }
            to_floats::<S>(S::finish_dot(self.0, sum))
        };
        let offset = if S::SIGNED_BYTES && self.0 == 8 { 128 } else { 0 };
        for (lane, got) in got.into_iter().enumerate() {
            let mut expected = 0;
            for index in (0..words).flat_map(|word| (0..4).map(move |byte| word * line + 4 * lane + byte)) {
                expected += (i64::from(codes[index]) - offset) * i64::from(activations[index] as i8);
            }
            assert_eq!(got as i64, expected, "{set}, {} bits, lane {lane}", self.0);
        }
    }
}

impl Check for ExactSums {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let most = ((1_u32 << self.0) - 1) as u8;
        let random = Random::new(4);
        let alternate = |i: usize| if i.is_multiple_of(2) { 127 } else { -127 };
        let any = |_: usize| random.byte().max(1).wrapping_sub(128) as i8;
        let codes: [Choice<'_, u8>; 4] =
            [&|_| most, &|_| 0, &|i| if i.is_multiple_of(2) { most } else { 0 }, &|_| random.byte() & most];
        let activations: [Choice<'_, i8>; 4] = [&|_| 127, &|_| -127, &alternate, &any];
        for code in codes {
            for x in activations {
                // SAFETY: by the caller.
                unsafe { self.check::<S>(set, code, x) };
            }
        }
    }
}

#[test]
fn extreme_products_sum_exactly() {
    for dtype in block_formats() {
        // SAFETY: this visitor has no requirements.
        let bits = unsafe { quant::visit_tile(dtype, Bits) }.unwrap();
        on_each_set(&ExactSums(bits));
    }
}

/// Checks that loads of 8 and 16 bits extend with zeros.
struct Extends;

impl Check for Extends {
    /// # Safety: as [`Check::run`].
    #[inline(always)]
    unsafe fn run<S: Simd>(&self, set: &str) {
        let bytes: [u8; 2 * ROWS] = std::array::from_fn(|i| 255 - i as u8);
        // SAFETY: by the caller; a vector has at most `ROWS` lanes.
        let (shorts, narrow) =
            unsafe { (to_floats::<S>(S::load_shorts(bytes.as_ptr())), to_floats::<S>(S::load_bytes(bytes.as_ptr()))) };
        for lane in 0..S::WIDTH {
            let short = u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]]);
            assert_eq!((shorts[lane], narrow[lane]), (f32::from(short), f32::from(bytes[lane])), "{set}, lane {lane}");
        }
    }
}

#[test]
fn narrow_loads_extend_with_zeros() {
    on_each_set(&Extends);
}
