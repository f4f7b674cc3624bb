//! Computes the weights of the source pixels of each output pixel, along one axis.

use std::f64::consts::PI;

use super::{
    Filter,
    sums::{FRACTION_BITS, PairWeights},
};

/// Number of neighbouring source pixels that are weighed in one step.
pub(super) const PAIR: usize = 2;

impl Filter {
    /// Returns the distance at which the filter ends.
    fn reach(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Returns the filter's value at a distance.
    fn at(self, x: f64) -> f64 {
        let x = x.abs();
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Bicubic | Self::Lanczos => 0.0,
        }
    }
}

/// The window of source pixels of each output pixel: its start, and its weights.
///
/// Windows consist of pairs of pixels that begin at even ones, and all have the same number of
/// pairs.
pub(super) struct Windows {
    pairs: usize,
    /// Index of the first pair of each window.
    starts: Vec<usize>,
    /// `[windows, pairs]`.
    weights: Vec<PairWeights>,
}

impl Windows {
    /// Computes the windows for resizing `from` pixels to `to` pixels, both at least 1.
    pub(super) fn new(from: usize, to: usize, filter: Filter) -> Self {
        let windows: Vec<_> = (0..to).map(|index| window(from, to, index, filter)).collect();
        let last_pair = |&(first, ref weights): &(usize, Vec<i32>)| (first + weights.len()).div_ceil(PAIR);
        let pairs = windows.iter().map(|window| last_pair(window) - window.0 / PAIR).max().unwrap_or(0);
        let starts = windows.iter().map(|(first, _)| first / PAIR).collect();
        let weights = windows.iter().flat_map(|(first, weights)| {
            let weight =
                move |pixel: usize| pixel.checked_sub(*first).and_then(|at| weights.get(at)).copied().unwrap_or(0);
            let pair = move |pair: usize| PairWeights::new([weight(PAIR * pair), weight(PAIR * pair + 1)]);
            (first / PAIR..first / PAIR + pairs).map(pair)
        });
        Self { pairs, starts, weights: weights.collect() }
    }

    /// Returns the number of pairs in each window.
    pub(super) fn pairs(&self) -> usize {
        self.pairs
    }

    /// Returns the first pair and the weights of each window.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[PairWeights])> {
        self.starts.iter().copied().zip(self.weights.chunks_exact(self.pairs))
    }
}

/// Returns the first source pixel of an output pixel, and the weights from there in units of 2^-22.
/// Each operation is Pillow's, so that rounding is.
fn window(from: usize, to: usize, index: usize, filter: Filter) -> (usize, Vec<i32>) {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let reach = filter.reach() * stretch;
    let centre = (index as f64 + 0.5) * scale;
    // Casts of negative numbers give 0, where windows are cut off.
    let first = (centre - reach + 0.5) as usize;
    let end = ((centre + reach + 0.5) as usize).min(from);
    let inverse = 1.0 / stretch;
    let values: Vec<_> = (first..end).map(|pixel| filter.at((pixel as f64 - centre + 0.5) * inverse)).collect();
    let total: f64 = values.iter().sum();
    let unit = f64::from(1 << FRACTION_BITS);
    // Rounds half away from zero, as Pillow does by a cast that truncates.
    let fixed = |value: f64| (value / total * unit + 0.5_f64.copysign(value)) as i32;
    (first, values.into_iter().map(fixed).collect())
}
