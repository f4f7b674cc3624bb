//! Sums products of 8-bit values and weights of 22 fractional bits, exactly.
//!
//! A weight has too many bits for the 16-bit multipliers that every CPU has in its vector unit, and
//! products of 32 bits are slow on x86-64 without AVX2. So each weight is split into its lower 12
//! bits and the rest, and summed apart. Sums may wrap, as the result fits 32 bits.

#[cfg(not(target_arch = "x86_64"))]
pub(super) use self::portable::Sums;
#[cfg(target_arch = "x86_64")]
pub(super) use self::sse2::Sums;

/// Fractional bits of a weight.
pub(super) const FRACTION_BITS: i32 = 22;
/// Bits of a weight's lower part.
const LOW_BITS: i32 = 12;
/// What makes the final shift round to nearest.
const HALF: i32 = 1 << (FRACTION_BITS - 1);

/// The weights of two neighbouring values, repeated for four sums.
#[derive(Clone, Copy)]
pub(super) struct PairWeights {
    low: [i16; 8],
    high: [i16; 8],
}

impl PairWeights {
    /// Splits two weights, whose magnitudes are below 2^27.
    pub(super) fn new(weights: [i32; 2]) -> Self {
        let repeated = |part: fn(i32) -> i32| std::array::from_fn(|i| part(weights[i % 2]) as i16);
        Self { low: repeated(|weight| weight & ((1 << LOW_BITS) - 1)), high: repeated(|weight| weight >> LOW_BITS) }
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_madd_epi16, _mm_packs_epi32, _mm_packus_epi16, _mm_set1_epi32,
        _mm_setzero_si128, _mm_slli_epi32, _mm_srai_epi32,
    };

    use super::{FRACTION_BITS, HALF, LOW_BITS, PairWeights};

    /// Four weighted sums of 8-bit values.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Sums {
        low: __m128i,
        high: __m128i,
    }

    impl Sums {
        #[inline(always)]
        pub(in super::super) fn new() -> Self {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { Self { low: _mm_set1_epi32(HALF), high: _mm_setzero_si128() } }
        }

        /// Adds the weighted values 2i and 2i + 1 to sum i.
        #[inline(always)]
        pub(in super::super) fn add(&mut self, values: &[i16; 8], weights: &PairWeights) {
            let [values, low, high]: [__m128i; 3] = [*values, weights.low, weights.high].map(bytemuck::cast);
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe {
                self.low = _mm_add_epi32(self.low, _mm_madd_epi16(values, low));
                self.high = _mm_add_epi32(self.high, _mm_madd_epi16(values, high));
            }
        }

        /// Returns the sums, rounded and limited to 8 bits.
        #[inline(always)]
        pub(in super::super) fn bytes(self) -> [u8; 4] {
            // SAFETY: every x86-64 CPU has SSE2.
            let packed = unsafe {
                let sums = _mm_add_epi32(self.low, _mm_slli_epi32::<LOW_BITS>(self.high));
                let sums = _mm_srai_epi32::<FRACTION_BITS>(sums);
                let words = _mm_packs_epi32(sums, sums);
                _mm_cvtsi128_si32(_mm_packus_epi16(words, words))
            };
            packed.to_le_bytes()
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::{FRACTION_BITS, HALF, LOW_BITS, PairWeights};

    /// Four weighted sums of 8-bit values.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Sums {
        low: [i32; 4],
        high: [i32; 4],
    }

    impl Sums {
        #[inline(always)]
        pub(in super::super) fn new() -> Self {
            Self { low: [HALF; 4], high: [0; 4] }
        }

        /// Adds the weighted values 2i and 2i + 1 to sum i.
        #[inline(always)]
        pub(in super::super) fn add(&mut self, values: &[i16; 8], weights: &PairWeights) {
            let product = |weights: &[i16; 8], i: usize| i32::from(values[i]) * i32::from(weights[i]);
            let pair = |weights: &[i16; 8], i: usize| product(weights, 2 * i) + product(weights, 2 * i + 1);
            for i in 0..4 {
                self.low[i] = self.low[i].wrapping_add(pair(&weights.low, i));
                self.high[i] = self.high[i].wrapping_add(pair(&weights.high, i));
            }
        }

        /// Returns the sums, rounded and limited to 8 bits.
        #[inline(always)]
        pub(in super::super) fn bytes(self) -> [u8; 4] {
            std::array::from_fn(|i| {
                let sum = self.low[i].wrapping_add(self.high[i] << LOW_BITS);
                (sum >> FRACTION_BITS).clamp(0, 255) as u8
            })
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{FRACTION_BITS, PairWeights, portable, sse2};

    /// The two versions and a plain loop in i64 agree, also where a sum exceeds 8 bits or is
    /// negative, and where parts of it wrap.
    #[test]
    fn both_versions_are_exact() {
        let mut state = 1_u32;
        let mut random = |bits: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> (32 - bits)) as i32
        };
        for pairs in [1, 2, 7, 40, 3000] {
            let (mut portable, mut sse2) = (portable::Sums::new(), sse2::Sums::new());
            let mut exact = [1_i64 << (FRACTION_BITS - 1); 4];
            for _ in 0..pairs {
                let values: [i16; 8] = std::array::from_fn(|_| random(8) as i16);
                let weights = [0; 2].map(|_: i32| random(24) / pairs - (1 << 23) / pairs);
                portable.add(&values, &PairWeights::new(weights));
                sse2.add(&values, &PairWeights::new(weights));
                for (i, sum) in exact.iter_mut().enumerate() {
                    let product = |of: usize| i64::from(values[2 * i + of]) * i64::from(weights[of]);
                    *sum += product(0) + product(1);
                }
            }
            let expected = exact.map(|sum| (sum >> FRACTION_BITS).clamp(0, 255) as u8);
            assert_eq!((portable.bytes(), sse2.bytes()), (expected, expected), "{pairs} pairs");
        }
    }
}
