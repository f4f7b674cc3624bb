//! Searches the scales, and minimums, with which rounded codes come closest to weights.
//!
//! The searches are ggml's (`ggml-quants.c`), in the same order of operations, so that codes are
//! the same bit for bit. Sums are kept in f32 for the same reason.

/// The magnitude below which all weights of a block count as zero (`GROUP_MAX_EPS`).
pub const ZERO: f32 = 1e-15;

/// The rounds in which single codes are moved.
const ROUNDS: usize = 5;

/// Rounds to the nearest integer, halves to the even one, for magnitudes below 2^22.
pub fn nearest(x: f32) -> i32 {
    // The sum has no bits for a fraction, so its mantissa is the integer.
    ((x + 12_582_912.0).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// Returns the first of the elements with the largest magnitude.
pub fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |extreme: f32, &x| if x.abs() > extreme.abs() { x } else { extreme })
}

/// Returns the mean square of weights, from which the weights of an importance matrix start.
pub fn mean_square(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x) / x.len() as f32
}

/// Writes the weights of errors: the importance of each weight, times its magnitude, which is at
/// least about the root of `mean_square`.
pub fn error_weights(x: &[f32], importance: &[f32], mean_square: f32, out: &mut [f32]) {
    for ((out, x), importance) in out.iter_mut().zip(x).zip(importance) {
        *out = importance * (mean_square + x * x).sqrt();
    }
}

/// Returns the sum of weights.
pub fn sum(weights: &[f32]) -> f32 {
    weights.iter().fold(0.0, |sum, weight| sum + weight)
}

/// The sums from which the best scale of codes follows: `scale = product / squares`.
#[derive(Clone, Copy, Default)]
struct Fit {
    /// Sum of weight * x * code.
    product: f32,
    /// Sum of weight * code * code.
    squares: f32,
}

impl Fit {
    fn add(&mut self, weight: f32, x: f32, code: f32) {
        self.product += weight * x * code;
        self.squares += weight * code * code;
    }

    fn scale(self) -> f32 {
        self.product / self.squares
    }
}

/// Finds a scale and codes from `-limit` to `limit - 1` for weights around 0, and writes the codes
/// plus `limit`. An error has the given weight, or the square of `x`.
pub fn around_zero(x: &[f32], limit: i32, weights: Option<&[f32]>, codes: &mut [i8]) -> f32 {
    let max = extreme(x);
    if max.abs() < ZERO {
        codes.fill(0);
        return 0.0;
    }
    let code = |inverse: f32, x: f32| nearest(inverse * x).clamp(-limit, limit - 1);
    let weight = |index: usize| weights.map_or(x[index] * x[index], |weights| weights[index]);
    let fit = |inverse: f32| {
        let mut fit = Fit::default();
        x.iter().enumerate().for_each(|(index, &x)| fit.add(weight(index), x, code(inverse, x) as f32));
        fit
    };
    let mut write = |inverse: f32| {
        codes.iter_mut().zip(x).for_each(|(out, &x)| *out = (code(inverse, x) + limit) as i8);
    };
    let inverse = -limit as f32 / max;
    write(inverse);
    let first = fit(inverse);
    let mut scale = if first.squares != 0.0 { first.scale() } else { 0.0 };
    let mut best = scale * first.product;
    for step in (-9..=9).filter(|step| *step != 0) {
        let inverse = -(limit as f32 + 0.1 * step as f32) / max;
        let other = fit(inverse);
        if other.squares > 0.0 && other.product * other.product > best * other.squares {
            write(inverse);
            scale = other.scale();
            best = scale * other.product;
        }
    }
    scale
}

/// Finds a scale and codes like [`around_zero`], with the square of `x` as the weight of an error,
/// by moving one code after the other.
pub fn around_zero_by_moves(x: &[f32], limit: i32, codes: &mut [i8]) -> f32 {
    let max = extreme(x);
    if max.abs() < ZERO {
        codes.fill(0);
        return 0.0;
    }
    let inverse = -limit as f32 / max;
    let mut fit = Fit::default();
    for (code, &x) in codes.iter_mut().zip(x) {
        *code = nearest(inverse * x).clamp(-limit, limit - 1) as i8;
        fit.add(x * x, x, f32::from(*code));
    }
    for _ in 0..ROUNDS {
        let mut moved = false;
        for (code, &x) in codes.iter_mut().zip(x) {
            let weight = x * x;
            let old = f32::from(*code);
            let mut other = Fit { product: fit.product - weight * x * old, ..fit };
            if other.product <= 0.0 {
                continue;
            }
            other.squares = fit.squares - weight * old * old;
            let new = nearest(x * other.squares / other.product).clamp(-limit, limit - 1);
            other.add(weight, x, new as f32);
            let is_better = other.product * other.product * fit.squares > fit.product * fit.product * other.squares;
            if new != i32::from(*code) && other.squares > 0.0 && is_better {
                (*code, fit, moved) = (new as i8, other, true);
            }
        }
        if !moved {
            break;
        }
    }
    codes.iter_mut().for_each(|code| *code += limit as i8);
    if fit.squares > 0.0 { fit.scale() } else { 0.0 }
}

/// Finds a scale and codes from 0 to `limit` for numbers of 0 or more: the scales, or the minimums,
/// of the parts of a block. An error has the given weight.
pub fn from_zero(x: &[f32], limit: i32, weights: &[f32], codes: &mut [u8]) -> f32 {
    let max = x.iter().fold(0.0, |max: f32, &x| if x > max { x } else { max });
    if max < ZERO {
        codes.fill(0);
        return 0.0;
    }
    let mut inverse = limit as f32 / max;
    let error = |scale: f32, code: &dyn Fn(f32) -> f32| {
        x.iter().zip(weights).fold(0.0, |sum, (&x, weight)| {
            let difference = x - scale * code(x);
            sum + weight * difference * difference
        })
    };
    let mut best = error(1.0 / inverse, &|x| f32::from(nearest(inverse * x) as u8));
    for step in (-4..=4).filter(|step| *step != 0) {
        let other = (0.1 * step as f32 + limit as f32) / max;
        let error = error(1.0 / other, &|x| nearest(other * x).min(limit) as f32);
        if error < best {
            (best, inverse) = (error, other);
        }
    }
    let mut fit = Fit::default();
    for ((code, &x), &weight) in codes.iter_mut().zip(x).zip(weights) {
        let rounded = nearest(inverse * x).min(limit);
        *code = rounded as u8;
        fit.add(weight, x, rounded as f32);
    }
    move_codes(x, limit, weights, codes, &mut fit);
    if fit.squares > 0.0 { fit.scale() } else { 0.0 }
}

fn move_codes(x: &[f32], limit: i32, weights: &[f32], codes: &mut [u8], fit: &mut Fit) {
    for _ in 0..ROUNDS {
        let mut moved = false;
        for ((code, &x), &weight) in codes.iter_mut().zip(x).zip(weights) {
            let old = f32::from(*code);
            let mut other = Fit { product: fit.product - weight * x * old, squares: fit.squares - weight * old * old };
            if other.product <= 0.0 || other.squares <= 0.0 {
                continue;
            }
            let new = nearest(x * other.squares / other.product).min(limit);
            other.add(weight, x, new as f32);
            let is_better = other.product * other.product * fit.squares > fit.product * fit.product * other.squares;
            if new != i32::from(*code) && is_better {
                (*code, *fit, moved) = (new as u8, other, true);
            }
        }
        if !moved {
            return;
        }
    }
}

/// Returns the scale and the minimum, at most 0, of the line that is closest to weights, from the
/// sums of the errors' weights, alone and times x, and times codes, their squares, and codes and x;
/// `None` if all codes are the same.
fn line([sum_w, sum_x]: [f32; 2], [sum_l, sum_l2, sum_xl]: [f32; 3]) -> Option<(f32, f32)> {
    let determinant = sum_w * sum_l2 - sum_l * sum_l;
    if determinant <= 0.0 || determinant.is_nan() {
        return None;
    }
    let min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    Some(if min > 0.0 { (sum_xl / sum_l2, 0.0) } else { ((sum_w * sum_xl - sum_x * sum_l) / determinant, min) })
}

/// The scales that a search for a scale and a minimum tries: those by which the weights reach from
/// 0 to `limit + start + step * n` for each `n` up to `count`.
#[derive(Clone, Copy)]
pub struct Search {
    pub start: f32,
    pub step: f32,
    pub count: u32,
    /// Whether the magnitude of an error counts, rather than its square.
    pub absolute: bool,
    /// Whether codes are bounded before they are rounded, too, since the minimum moves.
    pub bounded: bool,
}

/// Finds a scale, a minimum of 0 or less and codes from 0 to `limit`, and writes the codes. Returns
/// the scale, and the minimum with its sign turned. An error has the given weight.
pub fn with_minimum(x: &[f32], limit: u8, weights: &[f32], codes: &mut [u8], search: Search) -> (f32, f32) {
    let (mut min, mut max) = (x[0], x[0]);
    let (mut sum_w, mut sum_x) = (weights[0], weights[0] * x[0]);
    for (&x, weight) in x.iter().zip(weights).skip(1) {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
        sum_w += weight;
        sum_x += weight * x;
    }
    min = if min > 0.0 { 0.0 } else { min };
    if max <= min {
        codes.fill(0);
        return (0.0, -min);
    }
    let nmax = f32::from(limit);
    let code = |inverse: f32, min: f32, x: f32| -> u8 {
        let scaled = inverse * (x - min);
        match search.bounded {
            true if scaled > 0.0 => nearest(scaled.min(nmax)) as u8,
            true => 0,
            false => nearest(scaled).clamp(0, limit.into()) as u8,
        }
    };
    let error = |scale: f32, min: f32, codes: &[u8]| {
        x.iter().zip(weights).zip(codes).fold(0.0, |sum, ((x, weight), &code)| {
            let difference = scale * f32::from(code) + min - x;
            sum + weight * if search.absolute { difference.abs() } else { difference * difference }
        })
    };
    let inverse = nmax / (max - min);
    let mut scale = 1.0 / inverse;
    codes.iter_mut().zip(x).for_each(|(code, x)| {
        *code = nearest(inverse * (x - min)).clamp(0, limit.into()) as u8;
    });
    let mut best = error(scale, min, codes);
    let mut tried = [0; 32];
    let tried = &mut tried[..x.len()];
    for step in 0..=search.count {
        let inverse = (search.start + search.step * step as f32 + nmax) / (max - min);
        let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
        for ((tried, &x), weight) in tried.iter_mut().zip(x).zip(weights) {
            *tried = code(inverse, min, x);
            let l = f32::from(*tried);
            sum_l += weight * l;
            sum_l2 += weight * l * l;
            sum_xl += weight * l * x;
        }
        let Some((this_scale, this_min)) = line([sum_w, sum_x], [sum_l, sum_l2, sum_xl]) else { continue };
        let this_error = error(this_scale, this_min, tried);
        if this_error < best {
            codes.copy_from_slice(tried);
            (best, scale, min) = (this_error, this_scale, this_min);
        }
    }
    (scale, -min)
}
