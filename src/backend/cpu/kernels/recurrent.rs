//! Ops that carry a state from token to token: the short convolution and the gated delta rule.
//!
//! Tokens are taken one after the other while a piece of the state stays in the first-level cache, and pieces of the state
//! do not depend on each other: the threads divide these. So what comes of a token is the same bit for bit on any number
//! of threads, alone and in a run of any length.

use super::math::{Binary, SiluMul};
use crate::{
    graph::{ConvSpec, DeltaSpec},
    simd::Simd,
};

/// Channels of a convolution that a thread takes at a time: a kilobyte of every row.
pub(crate) const CONV_CHANNELS: usize = 256;

/// One op's part of the states of a run.
pub(crate) struct StatePlace {
    /// The state before the run; null where all of it is zero.
    pub from: *const f32,
    /// Where the state after the run goes; may be `from`.
    pub to: *mut f32,
    /// After so many of the run's tokens, in order, where the state goes as well.
    pub checkpoints: Vec<(usize, *mut f32)>,
}

impl StatePlace {
    /// Makes `len` floats of `to` what they are before the run.
    ///
    /// # Safety
    /// All places have floats `first..first + len`, and those are this thread's alone.
    unsafe fn begin(&self, first: usize, len: usize) {
        // SAFETY: by the caller.
        unsafe {
            if self.from.is_null() {
                self.to.add(first).write_bytes(0, len);
            } else if self.from != self.to.cast_const() {
                self.to.add(first).copy_from_nonoverlapping(self.from.add(first), len);
            }
        }
    }
}

/// Rows of floats that begin `stride` floats apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub start: *mut f32,
    pub stride: usize,
}

impl Rows {
    fn row(self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.stride)
    }
}

/// A run's convolution.
pub(crate) struct Convolution<'a> {
    pub spec: ConvSpec,
    pub x: Rows,
    /// `[kernel, channels]`.
    pub w: &'a [f32],
    pub out: Rows,
    pub tokens: usize,
    pub state: StatePlace,
}

/// Convolves the channels of piece `part`.
///
/// # Safety
/// The machine has `S`; all rows and places are there, and the piece's channels of `out` and of the state are this thread's
/// alone.
#[inline(always)]
pub(crate) unsafe fn short_conv<S: Simd>(run: &Convolution<'_>, part: usize) {
    let ConvSpec { channels, kernel, .. } = run.spec;
    let first = part * CONV_CHANNELS;
    let len = CONV_CHANNELS.min(channels - first);
    let past = kernel - 1;
    // The input `back` tokens before token `at`.
    let input = |at: usize, back: usize| match at.checked_sub(back) {
        Some(token) => run.x.row(token).wrapping_add(first).cast_const(),
        None => run.state.to.wrapping_add((past + at - back) * channels + first).cast_const(),
    };
    // SAFETY: by the caller.
    unsafe {
        (0..past).for_each(|row| run.state.begin(row * channels + first, len));
        for token in 0..run.tokens {
            let out = run.out.row(token).add(first);
            for i in (0..len).step_by(S::WIDTH) {
                let mut sum = S::splat(0.0);
                for tap in 0..kernel {
                    let w = S::load(run.w.as_ptr().add(tap * channels + first + i));
                    sum = S::fma(w, S::load(input(token, past - tap).add(i)), sum);
                }
                S::store(out.add(i), SiluMul::apply::<S>(sum, S::splat(1.0)));
            }
        }
        // Last the state itself, since the inputs before the run are there. Rows move towards the front only.
        let ends = run.state.checkpoints.iter().copied().chain([(run.tokens, run.state.to)]);
        for (end, to) in ends {
            for row in 0..past {
                to.add(row * channels + first).copy_from(input(end, past - row), len);
            }
        }
    }
}

/// A run's gated delta rule.
pub(crate) struct Delta<'a> {
    pub spec: DeltaSpec,
    /// Queries, keys and values.
    pub qkv: Rows,
    pub alpha: Rows,
    pub beta: Rows,
    pub a: &'a [f32],
    pub dt: &'a [f32],
    pub out: Rows,
    pub tokens: usize,
    pub state: StatePlace,
}

/// Columns of a head's state that a thread takes at a time. They lie together, row by row: with heads of 128 elements
/// 32 KB, which the first-level cache about holds. More of them share the work on gates, norms and single numbers.
fn columns(head_dim: usize) -> usize {
    1 << head_dim.trailing_zeros().min(6)
}

/// The pieces of a run's work.
pub(crate) fn delta_parts(spec: &DeltaSpec) -> usize {
    spec.value_heads * (spec.head_dim / columns(spec.head_dim))
}

/// Takes all tokens through the columns of piece `part`.
///
/// # Safety
/// The machine has `S`; all rows and places are there, and the piece's columns of `out` and of the state are this thread's
/// alone.
#[inline(always)]
pub(crate) unsafe fn gated_delta<S: Simd>(run: &Delta<'_>, part: usize) {
    // Eight sums at a time, so that none waits for the one before it.
    // SAFETY: by the caller; vectors have 8 or 16 lanes.
    unsafe {
        match columns(run.spec.head_dim) / S::WIDTH {
            1 => delta_columns::<S, 1, 8>(run, part),
            2 => delta_columns::<S, 2, 4>(run, part),
            4 => delta_columns::<S, 4, 2>(run, part),
            _ => delta_columns::<S, 8, 1>(run, part),
        }
    }
}

/// `gated_delta` over `N` vectors of columns, `ROWS` rows of the state at a time.
#[inline(always)]
unsafe fn delta_columns<S: Simd, const N: usize, const ROWS: usize>(run: &Delta<'_>, part: usize) {
    let n = run.spec.head_dim;
    let width = N * S::WIDTH;
    let (head, first_column) = (part / (n / width), part % (n / width) * width);
    let first = part * n * width;
    // SAFETY: by the caller.
    unsafe {
        run.state.begin(first, n * width);
        let state = run.state.to.add(first);
        let mut checkpoints = run.state.checkpoints.iter().peekable();
        for token in 0..run.tokens {
            let gates = Gates::new::<S>(run, head, token);
            delta_token::<S, N, ROWS>(run, &gates, [head, first_column], state, token);
            while let Some((_, to)) = checkpoints.next_if(|(end, _)| *end == token + 1) {
                to.add(first).copy_from_nonoverlapping(state, n * width);
            }
        }
    }
}

/// What a token does to a head's state, but for its vectors.
struct Gates {
    /// The query, as it was computed.
    q: *const f32,
    /// The key, as it was computed.
    k: *const f32,
    /// What the query is multiplied by.
    q_scale: f32,
    /// What the key is multiplied by.
    k_scale: f32,
    /// What of the state remains.
    decay: f32,
    /// How much of the new value is taken on.
    strength: f32,
}

impl Gates {
    #[inline(always)]
    unsafe fn new<S: Simd>(run: &Delta<'_>, head: usize, token: usize) -> Self {
        let DeltaSpec { key_heads, head_dim, eps, .. } = run.spec;
        let q = run.qkv.row(token).wrapping_add(run.spec.key_head(head) * head_dim).cast_const();
        let k = q.wrapping_add(key_heads * head_dim);
        // Not in a closure, which does not get the instructions of whoever calls it where it is not inlined.
        // SAFETY: by the caller.
        let (q_sum, k_sum) = unsafe { (squares::<S>(q, head_dim), squares::<S>(k, head_dim)) };
        // SAFETY: by the caller.
        let [alpha, beta] = unsafe { [run.alpha, run.beta].map(|x| *x.row(token).add(head)) };
        let x = alpha + run.dt[head];
        let softplus = x.max(0.0) + (-x.abs()).exp().ln_1p();
        Self {
            q,
            k,
            q_scale: 1.0 / ((q_sum + eps) * head_dim as f32).sqrt(),
            k_scale: 1.0 / (k_sum + eps).sqrt(),
            decay: (run.a[head] * softplus).exp(),
            strength: 1.0 / (1.0 + (-beta).exp()),
        }
    }
}

/// The sum of the squares of `len` elements, which are whole vectors.
#[inline(always)]
unsafe fn squares<S: Simd>(x: *const f32, len: usize) -> f32 {
    // SAFETY: by the caller.
    unsafe {
        let mut sum = S::splat(0.0);
        for i in (0..len).step_by(S::WIDTH) {
            let x = S::load(x.add(i));
            sum = S::fma(x, x, sum);
        }
        S::sum(sum)
    }
}

/// One token's step of some columns. The scales of query and key are put where they cost one multiplication a column.
#[inline(always)]
unsafe fn delta_token<S: Simd, const N: usize, const ROWS: usize>(
    run: &Delta<'_>,
    gates: &Gates,
    [head, first_column]: [usize; 2],
    state: *mut f32,
    token: usize,
) {
    let DeltaSpec { key_heads, head_dim, .. } = run.spec;
    let Gates { q, k, .. } = *gates;
    let value = (2 * key_heads + head) * head_dim + first_column;
    // SAFETY: by the caller; a head has a whole number of `ROWS`.
    unsafe {
        let place = |row: usize, n: usize| state.add((row * N + n) * S::WIDTH);
        let v = run.qkv.row(token).add(value);
        let out = run.out.row(token).add(head * head_dim + first_column);

        let mut seen = [[S::splat(0.0); N]; ROWS];
        for first in (0..head_dim).step_by(ROWS) {
            for (row, seen) in seen.iter_mut().enumerate() {
                let k = S::splat(*k.add(first + row));
                for (n, seen) in seen.iter_mut().enumerate() {
                    *seen = S::fma(S::load(place(first + row, n)), k, *seen);
                }
            }
        }
        let mut u = [S::splat(0.0); N];
        for (n, (u, seen)) in u.iter_mut().zip(total::<S, N, ROWS>(&seen)).enumerate() {
            let seen = S::mul(seen, S::splat(gates.decay * gates.k_scale));
            let new = S::sub(S::load(v.add(n * S::WIDTH)), seen);
            *u = S::mul(new, S::splat(gates.strength * gates.k_scale));
        }
        let decay = S::splat(gates.decay);
        let mut read = [[S::splat(0.0); N]; ROWS];
        for first in (0..head_dim).step_by(ROWS) {
            for (row, read) in read.iter_mut().enumerate() {
                let [k, q] = [k, q].map(|x| S::splat(*x.add(first + row)));
                for (n, read) in read.iter_mut().enumerate() {
                    let at = place(first + row, n);
                    let new = S::fma(k, u[n], S::mul(S::load(at), decay));
                    S::store(at, new);
                    *read = S::fma(new, q, *read);
                }
            }
        }
        for (n, read) in total::<S, N, ROWS>(&read).into_iter().enumerate() {
            S::store(out.add(n * S::WIDTH), S::mul(read, S::splat(gates.q_scale)));
        }
    }
}

#[inline(always)]
unsafe fn total<S: Simd, const N: usize, const ROWS: usize>(sums: &[[S::F; N]; ROWS]) -> [S::F; N] {
    let mut total = sums[0];
    for sums in &sums[1..] {
        for n in 0..N {
            // SAFETY: by the caller.
            total[n] = unsafe { S::add(total[n], sums[n]) };
        }
    }
    total
}
