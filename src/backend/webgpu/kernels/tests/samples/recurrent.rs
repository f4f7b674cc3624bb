//! Makes samples of kernels of recurrent ops.

use super::{Sample, all, rows};
use crate::backend::webgpu::{
    kernel::Resource,
    kernels::{
        BoundBuffer, ChunkShape, Delta, F32, GatedDeltaChunks, GatedDeltaKernel, GatedDeltaPass, RunTable, ShortConv,
        StateScanKernel, recurrent::KeyOrder, state_scan::Scan, tests::choices::Choices,
    },
    lower::MIX,
    step::{CHUNK, Layout},
};

fn runs() -> RunTable {
    let layout = Layout { max_tokens: 64, recurrent: true, ..Layout::default() };
    RunTable::from(&layout)
}

fn delta(choices: &mut Choices, head_dim: usize) -> Delta {
    Delta {
        key_heads: 2,
        value_heads: 4,
        order: choices.of("order", &all!(KeyOrder: Tiled, Grouped)),
        head_dim,
        eps: F32(1e-6),
        qkv: rows(8 * head_dim),
        gate_stride: 64,
        y: rows(4 * head_dim),
        alpha: Resource::Slot(1),
        beta: Resource::Slot(2),
        a: Resource::Slot(3),
        dt: Resource::Slot(4),
    }
}

fn chunk(choices: &mut Choices, head_dim: usize) -> ChunkShape {
    let depths = [16, 32, 64, 128].into_iter().filter(|depth| head_dim.is_multiple_of(*depth)).collect::<Vec<_>>();
    ChunkShape { workgroup: 256, tokens: CHUNK, depth: choices.of("depth", &depths), mix_words: MIX }
}

impl Sample for ShortConv {
    fn sample(choices: &mut Choices) -> Self {
        Self {
            workgroup: 64,
            chunked: choices.flag("chunked"),
            channels: 192,
            taps: choices.of("taps", &[2, 3, 4]),
            silu: choices.flag("silu"),
            at_once: 8,
            runs: runs(),
            state: 576,
            x: rows(192),
            y: rows(192),
            weights: Resource::Slot(1),
            bias: choices.option("bias", |_| BoundBuffer(Resource::Slot(2))),
            states: Resource::State(0),
        }
    }
}

impl Sample for GatedDeltaKernel {
    fn sample(choices: &mut Choices) -> Self {
        let head_dim: usize = choices.of("head_dim", &[16, 48, 128]);
        Self {
            workgroup: 64,
            lanes: if head_dim.is_multiple_of(32) { 8 } else { 4 },
            after_long: choices.flag("after_long"),
            shuffles: choices.flag("shuffles"),
            delta: delta(choices, head_dim),
            runs: runs(),
            state: 4 * head_dim * head_dim,
            states: Resource::State(0),
        }
    }
}

impl Sample for GatedDeltaChunks {
    fn sample(choices: &mut Choices) -> Self {
        let head_dim = choices.of("head_dim", &[48, 128]);
        let mut chunk = chunk(choices, head_dim);
        // Deeper slices have more loads than an invocation has registers for, and are not made.
        chunk.depth = chunk.depth.min(32);
        Self { chunk, delta: delta(choices, head_dim), runs: runs() }
    }
}

impl Sample for GatedDeltaPass {
    fn sample(choices: &mut Choices) -> Self {
        let head_dim = choices.of("head_dim", &[48, 128]);
        Self {
            chunk: chunk(choices, head_dim),
            columns: 16,
            delta: delta(choices, head_dim),
            runs: runs(),
            state: 4 * head_dim * head_dim,
            states: Resource::State(0),
        }
    }
}

impl Sample for StateScanKernel {
    fn sample(choices: &mut Choices) -> Self {
        let (head_dim, size) = (choices.of("head_dim", &[20, 64]), choices.of("size", &[16, 32, 256]));
        Self {
            workgroup: 64,
            lanes: if size >= 32 { 8 } else { 4 },
            shuffles: choices.flag("shuffles"),
            scan: Scan { heads: 4, groups: choices.of("groups", &[1, 2]), head_dim, size },
            runs: runs(),
            state: 4 * head_dim * size,
            x: rows(2048),
            dt: rows(64),
            y: rows(256),
            rows: [Resource::Slot(1), Resource::Slot(2), Resource::Slot(3)],
            states: Resource::State(0),
        }
    }
}
