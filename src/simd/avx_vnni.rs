//! AVX2 with AVX-VNNI: four products of bytes in one instruction.

use std::arch::x86_64::*;

use super::{Avx2, Gather, methods};

/// x86-64 with AVX2, FMA, F16C and AVX-VNNI.
pub(crate) type AvxVnni = Avx2<Dpbusd>;

/// Products of bytes with AVX-VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Dpbusd;

impl Gather<__m256i> for Dpbusd {
    const SIGNED_BYTES: bool = false;

    methods! {
        fn gather(_bits: u32, sum: __m256i, codes: __m256i, x: __m256i) -> __m256i =
            _mm256_dpbusd_avx_epi32(sum, codes, x);
    }
}
