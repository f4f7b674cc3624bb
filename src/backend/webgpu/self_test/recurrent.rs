//! Computes recurrent ops with plain loops.

use super::dense::DenseMatrix;
use crate::graph::{ConvSpec, DeltaSpec, HeadOrder, ScanSpec};

pub(super) fn short_conv(spec: &ConvSpec, x: &DenseMatrix, w: &DenseMatrix, bias: Option<&DenseMatrix>) -> DenseMatrix {
    let result = |token: usize, channel: usize| {
        let taps = w.data[channel * spec.kernel..][..spec.kernel].iter().rev().enumerate();
        let seen = taps.filter(|(back, _)| *back <= token);
        let sum: f64 = seen.map(|(back, w)| w * x.data[(token - back) * x.width + channel]).sum();
        let sum = sum + bias.map_or(0.0, |bias| bias.data[channel]);
        if spec.silu { sum / (1.0 + (-sum).exp()) } else { sum }
    };
    DenseMatrix::of(
        x.width,
        (0..x.rows().count()).map(|token| (0..x.width).map(|channel| result(token, channel)).collect()),
    )
}

pub(super) fn gated_delta(spec: &DeltaSpec, qkv: &DenseMatrix, [alpha, beta, a, dt]: [&DenseMatrix; 4]) -> DenseMatrix {
    let DeltaSpec { key_heads, value_heads, order, head_dim, .. } = *spec;
    let mut states = vec![vec![0.0; head_dim * head_dim]; value_heads];
    let rows = qkv.rows().zip(alpha.rows().zip(beta.rows())).map(|(row, (alpha, beta))| {
        let head_of = |head: usize| &row[head * head_dim..][..head_dim];
        let unit = |x: &[f64]| -> Vec<f64> {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(spec.eps)).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        let update_head = |(head, state): (usize, &mut Vec<f64>)| {
            let shared = match order {
                HeadOrder::Tiled => head % key_heads,
                HeadOrder::Grouped => head * key_heads / value_heads,
            };
            let [q, k] = [0, key_heads].map(|first| unit(head_of(first + shared)));
            let v = head_of(2 * key_heads + head);
            let decay = (a.data[head] * (alpha[head] + dt.data[head]).exp().ln_1p()).exp();
            let strength = 1.0 / (1.0 + (-beta[head]).exp());
            state.iter_mut().for_each(|s| *s *= decay);
            let read = |state: &[f64], x: &[f64], i: usize| -> f64 {
                x.iter().enumerate().map(|(row, x)| x * state[row * head_dim + i]).sum()
            };
            let change: Vec<_> = (0..head_dim).map(|i| strength * (v[i] - read(state, &k, i))).collect();
            for (state, k) in state.chunks_exact_mut(head_dim).zip(&k) {
                state.iter_mut().zip(&change).for_each(|(s, change)| *s += k * change);
            }
            (0..head_dim).map(|i| read(state, &q, i) / (head_dim as f64).sqrt()).collect::<Vec<_>>()
        };
        states.iter_mut().enumerate().flat_map(update_head).collect()
    });
    DenseMatrix::of(value_heads * head_dim, rows)
}

pub(super) fn state_scan(spec: &ScanSpec, x: &DenseMatrix, [dt, a, bias, d]: [&DenseMatrix; 4]) -> DenseMatrix {
    let ScanSpec { heads, groups, head_dim, size, .. } = *spec;
    let mut states = vec![vec![0.0; size]; heads * head_dim];
    let rows = x.rows().zip(dt.rows()).map(|(row, dt)| {
        let update_row = |(own, state): (usize, &mut Vec<f64>)| {
            let head = own / head_dim;
            let of_group = heads * head_dim + head / (heads / groups) * size;
            let [b, c] = [0, groups * size].map(|after| &row[of_group + after..][..size]);
            let length = (dt[head] + bias.data[head]).exp().ln_1p();
            let decay = (length * a.data[head]).exp();
            state.iter_mut().zip(b).for_each(|(s, b)| *s = decay * *s + length * row[own] * b);
            state.iter().zip(c).map(|(s, c)| s * c).sum::<f64>() + d.data[head] * row[own]
        };
        states.iter_mut().enumerate().map(update_row).collect()
    });
    DenseMatrix::of(heads * head_dim, rows)
}
