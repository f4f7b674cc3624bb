//! Decodes the scales and minima that several formats share.

use std::marker::PhantomData;

use super::{Lanes, bits, tile::TileHead};
use crate::simd::Simd;

/// An f16 scale `d` at byte `AT` of the block: weight = `d * (code - OFFSET)`.
#[derive(Clone, Copy)]
pub(crate) struct ScaleHead<S: Simd, const AT: usize, const OFFSET: u8>(S::F);

impl<S: Simd, const AT: usize, const OFFSET: u8> TileHead<S> for ScaleHead<S, AT, OFFSET> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller.
        unsafe { Self(lanes.f16::<S>(AT)) }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, _group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe { (self.0, S::mul(self.0, S::splat(f32::from(OFFSET)))) }
    }
}

/// An f16 scale `d` at byte 0 and an f16 offset `m` at byte 2 of the block: weight =
/// `d * code + m`.
#[derive(Clone, Copy)]
pub(crate) struct ScaleMinHead<S: Simd> {
    d: S::F,
    min: S::F,
}

impl<S: Simd> TileHead<S> for ScaleMinHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller. The format adds `m`, a tile subtracts its minimum.
        unsafe { Self { d: lanes.f16::<S>(0), min: S::mul(lanes.f16::<S>(2), S::splat(-1.0)) } }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, _group: usize) -> (S::F, S::F) {
        (self.d, self.min)
    }
}

/// A format with an f16 scale `d` at byte 0 of the block and a scale of four bits per group: weight
/// = `d * (scale + 1/2) * STEP * (code - OFFSET)`.
pub(crate) trait HalfScale: Copy + 'static {
    /// Factor of codes.
    const STEP: f32;
    /// What is subtracted from codes.
    const OFFSET: f32;

    /// Returns the scale of a group.
    ///
    /// # Safety
    /// The tile is readable, the machine has `S`, and the block has the group.
    unsafe fn scale<S: Simd>(lanes: Lanes, group: usize) -> S::I;
}

/// The head of a format that is a [`HalfScale`]. Scales are loaded from the tile when they are
/// used.
#[derive(Clone, Copy)]
pub(crate) struct HalfScaleHead<S: Simd, T> {
    step: S::F,
    half_step: S::F,
    lanes: Lanes,
    format: PhantomData<T>,
}

impl<S: Simd, T: HalfScale> TileHead<S> for HalfScaleHead<S, T> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller.
        unsafe {
            let step = S::mul(lanes.f16::<S>(0), S::splat(T::STEP));
            Self { step, half_step: S::mul(step, S::splat(0.5)), lanes, format: PhantomData }
        }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let scale = S::fma(self.step, S::to_f(T::scale::<S>(self.lanes, group)), self.half_step);
            (scale, S::mul(scale, S::splat(T::OFFSET)))
        }
    }
}

/// The head of `Q4_K` and `Q5_K`: `d` at byte 0, `dmin` at byte 2, and from byte 4 on the 12 bytes
/// that [`bits::scale_and_min`] describes.
#[derive(Clone, Copy)]
pub(crate) struct KScalesHead<S: Simd> {
    d: S::F,
    dmin: S::F,
    /// Scales of groups 0 to 3, and 4 to 7, one per byte.
    scales: [S::I; 2],
    /// Minima of groups 0 to 3, and 4 to 7, one per byte.
    mins: [S::I; 2],
}

impl<S: Simd> TileHead<S> for KScalesHead<S> {
    /// # Safety: as [`TileHead::decode`].
    #[inline(always)]
    unsafe fn decode(lanes: Lanes) -> Self {
        // SAFETY: by the caller.
        unsafe {
            let words = [lanes.word::<S>(4, 0), lanes.word::<S>(4, 1), lanes.word::<S>(4, 2)];
            let low_six = S::splat_i(0x3f3f_3f3f);
            let low_four = S::splat_i(0x0f0f_0f0f);
            let top_of_scales = S::and(S::shr(words[0], 2), S::splat_i(0x3030_3030));
            let top_of_mins = S::and(S::shr(words[1], 2), S::splat_i(0x3030_3030));
            Self {
                d: lanes.f16::<S>(0),
                dmin: lanes.f16::<S>(2),
                scales: [S::and(words[0], low_six), S::or(S::and(words[2], low_four), top_of_scales)],
                mins: [S::and(words[1], low_six), S::or(S::and(S::shr(words[2], 4), low_four), top_of_mins)],
            }
        }
    }

    /// # Safety: as [`TileHead::scale_min`].
    #[inline(always)]
    unsafe fn scale_min(&self, group: usize) -> (S::F, S::F) {
        // SAFETY: by the caller.
        unsafe {
            let scale = bits::unsigned::<S>(self.scales[group / 4], group % 4 * 8, 8);
            let min = bits::unsigned::<S>(self.mins[group / 4], group % 4 * 8, 8);
            (S::mul(self.d, scale), S::mul(self.dmin, min))
        }
    }
}
