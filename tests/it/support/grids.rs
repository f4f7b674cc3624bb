//! Naive quantizers of the formats with grids: `IQ1`, `IQ2` and `IQ3`.
//!
//! A weight is `d * (2 * scale + 1)` times its element of a grid point. The points are read from
//! decoded blocks.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use half::f16;
use inkstone::{DType, internals::quant};

use super::quantize::pack;

/// Points among which the nearest to some weights is searched.
const NEAR: usize = 16;

/// What a format stores about one point.
#[derive(Clone, Copy, Default)]
struct Stored {
    index: usize,
    /// One bit per weight.
    signs: u8,
    /// Whether all elements are less by a quarter, in the `IQ1` formats.
    is_less: bool,
}

/// The differences between the formats.
struct Spec {
    /// Weights per point.
    width: usize,
    /// Weights per scale.
    group: usize,
    /// The largest scale.
    top: u8,
    points: usize,
    /// Whether points have signs, and whether the number of negative ones of eight is even.
    signs: Option<bool>,
}

fn spec(dtype: DType) -> Spec {
    let (width, group, top, points, signs) = match dtype {
        DType::IQ3_XXS => (4, 32, 15, 256, Some(true)),
        DType::IQ3_S => (4, 32, 15, 512, Some(false)),
        DType::IQ2_XXS => (8, 32, 15, 256, Some(true)),
        DType::IQ2_XS => (8, 16, 15, 512, Some(true)),
        DType::IQ2_S => (8, 16, 15, 1024, Some(false)),
        DType::IQ1_S => (8, 32, 7, 2048, None),
        _ => (8, 16, 7, 2048, None),
    };
    Spec { width, group, top, points, signs }
}

/// Some points, and those near to each combination of levels.
struct Grid {
    points: Vec<Vec<f32>>,
    /// The values that elements have, in ascending order.
    levels: Vec<f32>,
    near: Vec<[u16; NEAR]>,
}

impl Grid {
    fn new(points: Vec<Vec<f32>>) -> Self {
        let mut levels: Vec<f32> = points.iter().flatten().copied().collect();
        levels.sort_by(f32::total_cmp);
        levels.dedup();
        let (width, count) = (points[0].len(), levels.len());
        let near = |cell: usize| {
            let center: Vec<f32> = (0..width).map(|i| levels[cell / count.pow(i as u32) % count]).collect();
            let mut order: Vec<_> = points.iter().enumerate().map(|(i, point)| (distance(&center, point), i)).collect();
            order.select_nth_unstable_by(NEAR, |a, b| a.0.total_cmp(&b.0));
            std::array::from_fn(|i| order[i].1 as u16)
        };
        let near = (0..count.pow(width as u32)).map(near).collect();
        Self { points, levels, near }
    }

    /// The nearest point and the squared distance to it.
    fn nearest(&self, x: &[f32]) -> (usize, f32) {
        let level = |x: f32| self.levels.windows(2).take_while(|pair| x > (pair[0] + pair[1]) / 2.0).count();
        let cell = x.iter().rev().fold(0, |cell, &x| cell * self.levels.len() + level(x));
        let near = self.near[cell].iter().map(|&i| (usize::from(i), distance(x, &self.points[usize::from(i)])));
        near.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
    }
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

/// The grid of a format, or the two of a format with shifts.
fn grids(dtype: DType) -> &'static [Grid] {
    static GRIDS: Mutex<Option<HashMap<DType, &'static [Grid]>>> = Mutex::new(None);
    let mut grids = GRIDS.lock().unwrap_or_else(PoisonError::into_inner);
    grids.get_or_insert_default().entry(dtype).or_insert_with(|| {
        let spec = spec(dtype);
        let shifts: &[bool] = if spec.signs.is_some() { &[false] } else { &[false, true] };
        let grid = |&is_less: &bool| Grid::new(points(dtype, is_less));
        shifts.iter().map(grid).collect::<Vec<_>>().leak()
    })
}

/// The elements of all points, decoded from blocks.
fn points(dtype: DType, is_less: bool) -> Vec<Vec<f32>> {
    let Spec { width, group, points, .. } = spec(dtype);
    let per_block = 256 / width;
    let mut found = vec![];
    for first in (0..points).step_by(per_block) {
        let stored: Vec<_> = (first..first + per_block).map(|index| Stored { index, is_less, signs: 0 }).collect();
        let mut decoded = vec![0.0; 256];
        let block = assemble(dtype, f16::ONE, &vec![0; 256 / group], &stored);
        quant::dequantize_row(dtype, &block, &mut decoded).unwrap();
        found.extend(decoded.chunks(width).map(<[f32]>::to_vec));
    }
    found
}

/// The block of these 256 weights.
pub fn quantize(dtype: DType, x: &[f32]) -> Vec<u8> {
    let Spec { group, top, .. } = spec(dtype);
    let ideal: Vec<f32> = x.chunks(group).map(|x| best_scale(dtype, x)).collect();
    let peak = ideal.iter().copied().fold(0.0, f32::max);
    let code = |scale: f32, d: f32| {
        if d == 0.0 { 0.0 } else { ((scale / d - 1.0) / 2.0).round().clamp(0.0, f32::from(top)) }
    };
    let candidates = (-8..=4).map(|step| {
        let d = f16::from_f32(peak / (2.0 * f32::from(top) + 1.0) * (1.0 - 0.02 * step as f32));
        let error: f32 = ideal.iter().map(|&x| (x - d.to_f32() * (2.0 * code(x, d.to_f32()) + 1.0)).powi(2)).sum();
        (error, d)
    });
    let d = candidates.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
    let scales: Vec<u8> = ideal.iter().map(|&x| code(x, d.to_f32()) as u8).collect();
    let stored: Vec<_> = x
        .chunks(group)
        .zip(&scales)
        .flat_map(|(x, &scale)| nearest(dtype, x, d.to_f32() * (2.0 * f32::from(scale) + 1.0)).0)
        .collect();
    assemble(dtype, d, &scales, &stored)
}

/// The scale with the least error among some that take the peak near a level.
fn best_scale(dtype: DType, x: &[f32]) -> f32 {
    let peak = x.iter().fold(0.0, |peak: f32, x| peak.max(x.abs()));
    if peak == 0.0 {
        return 0.0;
    }
    let levels = &grids(dtype)[0].levels;
    let most = levels[levels.len() - 1];
    let sweep = (-4..=4).map(|step| most * (1.0 + 0.12 * step as f32));
    let fits = levels.iter().copied().filter(|&level| level > 0.0).chain(sweep).map(|target| {
        let scale = peak / target;
        let decoded = nearest(dtype, x, scale).1;
        let products: f32 = x.iter().zip(&decoded).map(|(x, y)| x * y).sum();
        let squares: f32 = decoded.iter().map(|y| y * y).sum();
        // With these points the scale products / squares is best.
        (products * products / squares, scale * products / squares)
    });
    fits.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
}

/// The nearest points to a group of weights with this scale, and the weights that they stand for.
fn nearest(dtype: DType, x: &[f32], scale: f32) -> (Vec<Stored>, Vec<f32>) {
    let Spec { width, signs, .. } = spec(dtype);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let shifts: Vec<(Vec<Stored>, Vec<f32>)> = grids(dtype)
        .iter()
        .enumerate()
        .map(|(shift, grid)| nearest_of(grid, shift == 1, width, signs, x, inverse))
        .collect();
    let error = |y: &[f32], x: &[f32]| x.iter().zip(y).map(|(x, y)| (x * inverse - y).powi(2)).sum::<f32>();
    // A shift is shared by a whole group, or in `IQ1_M` by a point.
    let piece = if dtype == DType::IQ1_M { 8 } else { x.len() };
    let (mut stored, mut decoded) = (vec![], vec![]);
    for (i, x) in x.chunks(piece).enumerate() {
        let best = shifts.iter().map(|(stored, y)| {
            let y = &y[i * piece..][..piece];
            (error(y, x), &stored[i * piece / width..][..piece / width], y)
        });
        let (_, points, y) = best.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        stored.extend_from_slice(points);
        decoded.extend(y.iter().map(|y| y * scale));
    }
    (stored, decoded)
}

fn nearest_of(
    grid: &Grid,
    is_less: bool,
    width: usize,
    signs: Option<bool>,
    x: &[f32],
    inverse: f32,
) -> (Vec<Stored>, Vec<f32>) {
    let (mut stored, mut decoded) = (vec![], vec![]);
    for eight in x.chunks(8) {
        let mut negative = eight.iter().enumerate().fold(0u8, |bits, (i, &x)| bits | (u8::from(x < 0.0) << i));
        if signs == Some(true) && negative.count_ones() % 2 == 1 {
            // The least weight has the wrong sign.
            let least = (0..8).min_by(|&a, &b| eight[a].abs().total_cmp(&eight[b].abs())).unwrap();
            negative ^= 1 << least;
        }
        if signs.is_none() {
            negative = 0;
        }
        let sign = |i: usize| if (negative >> i) & 1 == 1 { -1.0 } else { 1.0 };
        let magnitudes: Vec<f32> = eight.iter().enumerate().map(|(i, x)| x * inverse * sign(i)).collect();
        for (i, x) in magnitudes.chunks(width).enumerate() {
            let (index, _) = grid.nearest(x);
            stored.push(Stored { index, signs: negative >> (i * width), is_less });
            decoded.extend(grid.points[index].iter().enumerate().map(|(k, y)| y * sign(i * width + k)));
        }
    }
    (stored, decoded)
}

fn assemble(dtype: DType, d: f16, scales: &[u8], points: &[Stored]) -> Vec<u8> {
    let half = d.to_le_bytes();
    let low: Vec<u8> = points.iter().map(|point| point.index as u8).collect();
    let high: Vec<u8> = points.iter().map(|point| (point.index >> 8) as u8).collect();
    let nibbles = pack(scales, 0, 4, 1);
    // The signs of eight weights each.
    let signs: Vec<u8> = match spec(dtype).width {
        4 => points.chunks(2).map(|pair| (pair[0].signs & 15) | (pair[1].signs << 4)).collect(),
        _ => points.iter().map(|point| point.signs).collect(),
    };
    let words = signs.chunks(4).zip(scales).map(|(signs, scale)| {
        let seven = |i: usize| u32::from(signs[i] & 127) << (7 * i);
        (seven(0) | seven(1) | seven(2) | seven(3) | (u32::from(*scale) << 28)).to_le_bytes()
    });
    match dtype {
        DType::IQ3_XXS => [&half, &*low, &words.collect::<Vec<_>>().concat()].concat(),
        DType::IQ3_S => [&half, &*low, &pack(&high, 0, 1, 1), &signs, &nibbles].concat(),
        DType::IQ2_XXS => {
            let groups: Vec<u8> = low.chunks(4).zip(words).flat_map(|(low, word)| [low, &word].concat()).collect();
            [&half, &*groups].concat()
        }
        DType::IQ2_XS => {
            let code = |point: &Stored| (point.index as u16 | (u16::from(point.signs & 127) << 9)).to_le_bytes();
            [&half, &*points.iter().flat_map(code).collect::<Vec<_>>(), &nibbles].concat()
        }
        DType::IQ2_S => [&half, &*low, &signs, &pack(&high, 0, 2, 1), &nibbles].concat(),
        DType::IQ1_S => {
            let group = |(points, scale): (&[Stored], &u8)| {
                let bits =
                    points.iter().enumerate().fold(0, |bits, (i, point)| bits | ((point.index as u16 >> 8) << (3 * i)));
                (bits | (u16::from(*scale) << 12) | (u16::from(points[0].is_less) << 15)).to_le_bytes()
            };
            [&half, &*low, &points.chunks(4).zip(scales).flat_map(group).collect::<Vec<_>>()].concat()
        }
        _ => {
            let fours: Vec<u8> =
                points.iter().zip(&high).map(|(point, high)| high | (u8::from(point.is_less) << 3)).collect();
            let scales = scales.chunks(4).enumerate().flat_map(|(i, scales)| {
                let bits = scales.iter().enumerate().fold(0, |bits, (i, scale)| bits | (u16::from(*scale) << (3 * i)));
                (bits | (((d.to_bits() >> (4 * i)) & 15) << 12)).to_le_bytes()
            });
            [&*low, &pack(&fours, 0, 4, 1), &scales.collect::<Vec<_>>()].concat()
        }
    }
}
