//! Computes the ops that carry a state from token to token: short convolution and gated delta rule.
//!
//! A piece of the state stays in the first-level cache while all tokens of a run go through it one
//! after the other. Pieces do not depend on each other, so threads divide them. The result of a
//! token is therefore the same bit for bit on any number of threads and in a run of any length.

use super::{
    math::{Elementwise, SiluMul},
    rows::StridedRows,
};
use crate::{
    graph::{ConvSpec, DeltaSpec},
    simd::Simd,
};

/// Channels of a convolution in a piece: a kilobyte of every row.
pub(crate) const CONV_CHANNELS: usize = 256;

/// The state of an op for a run.
pub(crate) struct RunState {
    /// The state before the run; null for a state of zeros.
    pub from: *const f32,
    /// The memory for the state after the run; may be `from`.
    pub to: *mut f32,
    /// Copies of the state within the run, in order of their tokens.
    pub checkpoints: Vec<StateCheckpoint>,
}

/// A copy of the state after some tokens of a run.
#[derive(Clone, Copy)]
pub(crate) struct StateCheckpoint {
    pub tokens: usize,
    pub to: *mut f32,
}

impl RunState {
    /// Copies `len` floats from offset `first` of the state before the run to `to`.
    ///
    /// # Safety
    /// `from`, unless it is null, and `to` have floats `first..first + len`, which no other thread
    /// uses.
    pub(super) unsafe fn load(&self, first: usize, len: usize) {
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

/// A short convolution over the tokens of a run.
pub(crate) struct ShortConvRun<'a> {
    pub spec: ConvSpec,
    /// `[tokens, channels]`.
    pub x: StridedRows,
    /// `[kernel, channels]`.
    pub w: &'a [f32],
    /// `[channels]`, if there is a bias.
    pub bias: Option<&'a [f32]>,
    /// `[tokens, channels]`.
    pub out: StridedRows,
    pub tokens: usize,
    /// `[kernel - 1, channels]`: the inputs before the run.
    pub state: RunState,
}

/// Convolves the channels of piece `piece`, and applies SiLU if wanted.
///
/// # Safety
/// The rows of `x` and `out` and the states have the shapes above, `piece * CONV_CHANNELS` is below
/// `channels`, no other thread uses these channels of `out` and of the states, and the machine has
/// `S`.
#[inline(always)]
pub(crate) unsafe fn short_conv<S: Simd>(run: &ShortConvRun<'_>, piece: usize) {
    let ConvSpec { channels, kernel, silu, .. } = run.spec;
    let first = piece * CONV_CHANNELS;
    let len = CONV_CHANNELS.min(channels - first);
    let past = kernel - 1;
    // The input `back` tokens before `token`, from the state for tokens before the run.
    let input = |token: usize, back: usize| match token.checked_sub(back) {
        Some(earlier) => run.x.row(earlier).wrapping_add(first).cast_const(),
        None => run.state.to.wrapping_add((past + token - back) * channels + first).cast_const(),
    };
    // SAFETY: by the caller.
    unsafe {
        (0..past).for_each(|row| run.state.load(row * channels + first, len));
        for token in 0..run.tokens {
            let out = run.out.row(token).add(first);
            for i in (0..len).step_by(S::WIDTH) {
                let mut sum = match run.bias {
                    Some(bias) => S::load(bias.as_ptr().add(first + i)),
                    None => S::splat(0.0),
                };
                for tap in 0..kernel {
                    let w = S::load(run.w.as_ptr().add(tap * channels + first + i));
                    sum = S::fma(w, S::load(input(token, past - tap).add(i)), sum);
                }
                S::store(out.add(i), if silu { SiluMul::apply::<S>(sum, S::splat(1.0)) } else { sum });
            }
        }
        // The state itself comes last, as it holds the inputs before the run until then. Its rows
        // move towards the front only.
        let end = StateCheckpoint { tokens: run.tokens, to: run.state.to };
        for StateCheckpoint { tokens, to } in run.state.checkpoints.iter().copied().chain([end]) {
            for row in 0..past {
                to.add(row * channels + first).copy_from(input(tokens, past - row), len);
            }
        }
    }
}

/// A gated delta rule over the tokens of a run.
pub(crate) struct GatedDeltaRun<'a> {
    pub spec: DeltaSpec,
    /// `[tokens, (2 * key_heads + value_heads) * head_dim]`: queries, keys and values.
    pub qkv: StridedRows,
    /// `[tokens, value_heads]`.
    pub alpha: StridedRows,
    /// `[tokens, value_heads]`.
    pub beta: StridedRows,
    /// `[value_heads]`.
    pub a: &'a [f32],
    /// `[value_heads]`.
    pub dt: &'a [f32],
    /// `[tokens, value_heads * head_dim]`.
    pub out: StridedRows,
    pub tokens: usize,
    /// `[pieces, head_dim, columns of a piece]`.
    pub state: RunState,
}

/// Returns the columns of a head's state in a piece, which lie together row by row.
///
/// With heads of 128 elements a piece has 32 KB, about the first-level cache. A larger piece shares
/// the work on gates, norms and scalars among more columns.
pub(crate) fn columns_per_piece(head_dim: usize) -> usize {
    1 << head_dim.trailing_zeros().min(6)
}

/// Returns the number of pieces of a run.
pub(crate) fn gated_delta_pieces(spec: &DeltaSpec) -> usize {
    spec.value_heads * (spec.head_dim / columns_per_piece(spec.head_dim))
}

/// Updates the columns of piece `piece` with all tokens, and writes their outputs.
///
/// # Safety
/// All rows and states have the shapes above, `piece` is below [`gated_delta_pieces`], no other
/// thread uses the piece's columns of `out` and of the states, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn gated_delta<S: Simd>(run: &GatedDeltaRun<'_>, piece: usize) {
    // Eight independent sums at a time hide the latency of the additions.
    // SAFETY: by the caller; vectors have 8 or 16 lanes.
    unsafe {
        match columns_per_piece(run.spec.head_dim) / S::WIDTH {
            1 => update_piece::<S, 1, 8>(run, piece),
            2 => update_piece::<S, 2, 4>(run, piece),
            4 => update_piece::<S, 4, 2>(run, piece),
            _ => update_piece::<S, 8, 1>(run, piece),
        }
    }
}

/// Computes [`gated_delta`] over `N` vectors of columns, `ROWS` rows of the state at a time.
///
/// # Safety
/// As [`gated_delta`], and a piece has `N * S::WIDTH` columns.
#[inline(always)]
unsafe fn update_piece<S: Simd, const N: usize, const ROWS: usize>(run: &GatedDeltaRun<'_>, piece: usize) {
    let head_dim = run.spec.head_dim;
    let width = N * S::WIDTH;
    let pieces_per_head = head_dim / width;
    let columns = HeadColumns { head: piece / pieces_per_head, first: piece % pieces_per_head * width };
    let first = piece * head_dim * width;
    // SAFETY: by the caller.
    unsafe {
        run.state.load(first, head_dim * width);
        let state = run.state.to.add(first);
        let mut checkpoints = run.state.checkpoints.iter().peekable();
        for token in 0..run.tokens {
            let gates = Gates::new::<S>(run, columns.head, token);
            update_columns::<S, N, ROWS>(run, &gates, columns, state, token);
            while let Some(checkpoint) = checkpoints.next_if(|checkpoint| checkpoint.tokens == token + 1) {
                checkpoint.to.add(first).copy_from_nonoverlapping(state, head_dim * width);
            }
        }
    }
}

/// The columns of a piece.
#[derive(Clone, Copy)]
struct HeadColumns {
    head: usize,
    /// The first column within the head.
    first: usize,
}

/// The key and query of a token in a head, and its scalars.
struct Gates {
    /// The query before its norm.
    q: *const f32,
    /// The key before its norm.
    k: *const f32,
    /// The factor of the query: its norm and `1 / sqrt(head_dim)`.
    q_scale: f32,
    /// The factor of the key: its norm.
    k_scale: f32,
    /// The factor of the old state, `exp(a * softplus(alpha + dt))`.
    decay: f32,
    /// The factor of the update, `sigmoid(beta)`.
    strength: f32,
}

impl Gates {
    /// Computes the gates of a token.
    ///
    /// # Safety
    /// The run has the token and the head, and the machine has `S`.
    #[inline(always)]
    unsafe fn new<S: Simd>(run: &GatedDeltaRun<'_>, head: usize, token: usize) -> Self {
        let DeltaSpec { key_heads, head_dim, eps, .. } = run.spec;
        let q = run.qkv.row(token).wrapping_add(run.spec.key_head(head) * head_dim).cast_const();
        let k = q.wrapping_add(key_heads * head_dim);
        // Not in a closure: where it is not inlined, it is compiled without the instruction set of
        // `S`. SAFETY: by the caller.
        let (q_sum, k_sum) = unsafe { (squares::<S>(q, head_dim), squares::<S>(k, head_dim)) };
        // SAFETY: by the caller.
        let [alpha, beta] = unsafe { [run.alpha, run.beta].map(|x| *x.row(token).add(head)) };
        let softplus = softplus(alpha + run.dt[head]);
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

/// Returns `ln(1 + exp(x))`.
pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Returns the sum of the squares of `len` elements.
///
/// # Safety
/// `x` is readable for `len` elements, a multiple of `S::WIDTH`, and the machine has `S`.
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

/// Updates the state of some columns with one token, and writes their outputs.
///
/// The factors of query and key are applied where they cost one multiplication a column.
///
/// # Safety
/// As [`gated_delta`]; `state` has the state of the columns, and `ROWS` divides `head_dim`.
#[inline(always)]
unsafe fn update_columns<S: Simd, const N: usize, const ROWS: usize>(
    run: &GatedDeltaRun<'_>,
    gates: &Gates,
    columns: HeadColumns,
    state: *mut f32,
    token: usize,
) {
    let DeltaSpec { key_heads, head_dim, .. } = run.spec;
    let Gates { q, k, .. } = *gates;
    let HeadColumns { head, first } = columns;
    // SAFETY: by the caller.
    unsafe {
        let state = |row: usize, n: usize| state.add((row * N + n) * S::WIDTH);
        let v = run.qkv.row(token).add((2 * key_heads + head) * head_dim + first);
        let out = run.out.row(token).add(head * head_dim + first);

        // The state's present value for the key.
        let mut recalled = [[S::splat(0.0); N]; ROWS];
        for first in (0..head_dim).step_by(ROWS) {
            for (row, recalled) in recalled.iter_mut().enumerate() {
                let k = S::splat(*k.add(first + row));
                for (n, recalled) in recalled.iter_mut().enumerate() {
                    *recalled = S::fma(S::load(state(first + row, n)), k, *recalled);
                }
            }
        }
        let mut update = [S::splat(0.0); N];
        for (n, (update, recalled)) in update.iter_mut().zip(sum_rows::<S, N, ROWS>(&recalled)).enumerate() {
            let recalled = S::mul(recalled, S::splat(gates.decay * gates.k_scale));
            let delta = S::sub(S::load(v.add(n * S::WIDTH)), recalled);
            *update = S::mul(delta, S::splat(gates.strength * gates.k_scale));
        }
        let decay = S::splat(gates.decay);
        let mut read = [[S::splat(0.0); N]; ROWS];
        for first in (0..head_dim).step_by(ROWS) {
            for (row, read) in read.iter_mut().enumerate() {
                let [k, q] = [k, q].map(|x| S::splat(*x.add(first + row)));
                for (n, read) in read.iter_mut().enumerate() {
                    let element = state(first + row, n);
                    let new = S::fma(k, update[n], S::mul(S::load(element), decay));
                    S::store(element, new);
                    *read = S::fma(new, q, *read);
                }
            }
        }
        for (n, read) in sum_rows::<S, N, ROWS>(&read).into_iter().enumerate() {
            S::store(out.add(n * S::WIDTH), S::mul(read, S::splat(gates.q_scale)));
        }
    }
}

/// Adds up rows of vectors.
///
/// # Safety
/// The machine has `S`.
#[inline(always)]
unsafe fn sum_rows<S: Simd, const N: usize, const ROWS: usize>(rows: &[[S::F; N]; ROWS]) -> [S::F; N] {
    let mut sums = rows[0];
    for row in &rows[1..] {
        for n in 0..N {
            // SAFETY: by the caller.
            sums[n] = unsafe { S::add(sums[n], row[n]) };
        }
    }
    sums
}
