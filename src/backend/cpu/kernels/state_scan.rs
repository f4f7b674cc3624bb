//! Computes the state-space scan of Mamba-2.
//!
//! A piece is the state of a head, which stays in the caches while all tokens of a run go through
//! it one after the other. As with the other recurrent ops, the result of a token is the same bit
//! for bit on any number of threads and in a run of any length.

use super::{
    recurrent::{RunState, softplus},
    rows::StridedRows,
};
use crate::{graph::ScanSpec, simd::Simd};

/// A state-space scan over the tokens of a run.
pub(crate) struct StateScanRun<'a> {
    pub spec: ScanSpec,
    /// `[tokens, heads * head_dim + 2 * groups * size]`: inputs, then `B` and `C` of all groups.
    pub x: StridedRows,
    /// `[tokens, heads]`: the lengths of the tokens' steps before the softplus.
    pub dt: StridedRows,
    /// `[heads]`.
    pub a: &'a [f32],
    /// `[heads]`: the bias of `dt`.
    pub bias: &'a [f32],
    /// `[heads]`.
    pub d: &'a [f32],
    /// `[tokens, heads * head_dim]`.
    pub out: StridedRows,
    pub tokens: usize,
    /// `[heads, head_dim, size]`.
    pub state: RunState,
}

/// The factors of a token's update, and the vectors of the head's group.
struct Update {
    /// The factor of the old state.
    decay: f32,
    /// The factor of the input in the new state.
    gain: f32,
    /// The factor of the input in the result.
    skip: f32,
    b: *const f32,
    c: *const f32,
}

/// Updates the state of head `head` with all tokens, and writes their outputs.
///
/// # Safety
/// All rows and states have the shapes above, `head` is below the number of heads, no other thread
/// uses the head's columns of `out` and of the states, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn state_scan<S: Simd>(run: &StateScanRun<'_>, head: usize) {
    let ScanSpec { heads, groups, head_dim, size, .. } = run.spec;
    let (first, len) = (head * head_dim * size, head_dim * size);
    let group = heads * head_dim + head / (heads / groups) * size;
    // SAFETY: by the caller.
    unsafe {
        run.state.load(first, len);
        let state = run.state.to.add(first);
        let mut checkpoints = run.state.checkpoints.iter().peekable();
        for token in 0..run.tokens {
            let row = run.x.row(token).cast_const();
            let step = softplus(*run.dt.row(token).add(head) + run.bias[head]);
            let (b, c) = (row.add(group), row.add(group + groups * size));
            let update = Update { decay: (step * run.a[head]).exp(), gain: step, skip: run.d[head], b, c };
            let (x, out) = (row.add(head * head_dim), run.out.row(token).add(head * head_dim));
            let whole = head_dim / 4 * 4;
            // Four independent sums at a time hide the latency of the additions.
            for at in (0..whole).step_by(4) {
                update_rows::<S, 4>(&update, size, state.add(at * size), x.add(at), out.add(at));
            }
            for at in whole..head_dim {
                update_rows::<S, 1>(&update, size, state.add(at * size), x.add(at), out.add(at));
            }
            while let Some(checkpoint) = checkpoints.next_if(|checkpoint| checkpoint.tokens == token + 1) {
                checkpoint.to.add(first).copy_from_nonoverlapping(state, len);
            }
        }
    }
}

/// Updates `N` rows of a state of `size` columns with their elements of `x`, and writes their
/// outputs.
///
/// # Safety
/// `state` has the rows, `x` and `out` have `N` elements, no other thread uses `state` and `out`,
/// and the machine has `S`.
#[inline(always)]
unsafe fn update_rows<S: Simd, const N: usize>(
    update: &Update,
    size: usize,
    state: *mut f32,
    x: *const f32,
    out: *mut f32,
) {
    let Update { decay, gain, skip, b, c } = *update;
    // SAFETY: by the caller.
    unsafe {
        let decay = S::splat(decay);
        let mut sums = [S::splat(0.0); N];
        let mut gains = [S::splat(0.0); N];
        for (n, own) in gains.iter_mut().enumerate() {
            *own = S::splat(gain * *x.add(n));
        }
        for i in (0..size).step_by(S::WIDTH) {
            let [b, c] = [S::load(b.add(i)), S::load(c.add(i))];
            for n in 0..N {
                let element = state.add(n * size + i);
                let new = S::fma(gains[n], b, S::mul(S::load(element), decay));
                S::store(element, new);
                sums[n] = S::fma(new, c, sums[n]);
            }
        }
        for (n, sum) in sums.into_iter().enumerate() {
            *out.add(n) = S::sum(sum) + skip * *x.add(n);
        }
    }
}
