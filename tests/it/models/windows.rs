//! Tests layers with a sliding window, in texts many times as long as the window.

use inkstone::{
    Adapter, CacheType, Device, Runner, RunnerBuilder,
    internals::{
        graph::Window,
        kv_cache::{CacheLayout, KvCache, Stage},
    },
};

use super::families::{dense, open};
use crate::support::{
    drive,
    interpret::{Interpreter, Run, Step},
    on_cpu,
    tiny::{EXACT, MODELS, Tiny, nmse},
};

/// The squared error that matrix units may add: they round both operands of products to f16.
const F16_ROUNDING: f64 = 2e-6;

/// The size of the tiny models' windows, in positions.
const WINDOW: usize = 32;

fn windowed() -> impl Iterator<Item = Tiny> {
    MODELS.into_iter().filter(|tiny| ["gemma2", "gemma3", "gemma4"].contains(&tiny.0))
}

fn builders() -> Vec<RunnerBuilder> {
    let adapters = drive::gpus().into_iter().map(|gpu| Adapter::Named(gpu.device().name.clone()));
    let devices = std::iter::once(Device::Cpu).chain(adapters.map(Device::Gpu));
    devices.map(|device| Runner::builder().cache_type(CacheType::F32).device(device).threads(2)).collect()
}

/// Computed in chunks and then token by token, after most pages of the windows have been freed.
#[test]
fn logits_of_long_texts_are_the_interpreters() {
    let ids: Vec<u32> = (0..470).map(|i| (i * i + 7 * i) % 300).collect();
    for tiny in windowed() {
        let (gguf, _, model) = open(tiny);
        let outputs = vec![449, 469];
        let step = Step { runs: vec![Run::new(0, 0, ids.len())], outputs, tokens: ids.clone(), ..Step::default() };
        let logits = Interpreter::new(&dense(&gguf)).run(&model.graph, &step);
        let expected = |number: usize| logits.row(number).iter().map(|&x| x as f32).collect::<Vec<_>>();
        for builder in builders() {
            let mut runner = builder.prefill_chunk(37).from_gguf(tiny.path()).unwrap();
            let rounding = if runner.device().details.contains("matrix units") { F16_ROUNDING } else { 0.0 };
            let check = |found: &[f32], number: usize| {
                let error = nmse(found, &expected(number));
                assert!(error <= EXACT + rounding, "{}, row {number}: {error:.1e}", tiny.0);
            };
            check(runner.prefill(&ids[..450]).unwrap(), 0);
            let last = ids[450..].iter().map(|id| runner.decode(*id).unwrap().to_vec()).last().unwrap();
            check(&last, 1);
            // Truncates to a position with its pages, and to one whose pages have been freed.
            for len in [460, 100] {
                runner.truncate(len).unwrap();
                check(runner.prefill(&ids[len..]).unwrap(), 1);
            }
        }
    }
}

#[test]
fn windows_use_no_more_memory_than_planned() {
    for tiny in windowed() {
        let plan = on_cpu().context_length(512).prefill_chunk(16).plan(tiny.path()).unwrap();
        let (_, _, model) = open(tiny);
        let layout = CacheLayout::new(&model.graph, CacheType::F16).unwrap();
        let whole: usize = layout.layers.iter().map(|layer| 512 * layer.position_bytes()).sum();
        assert!(plan.windows > 0 && plan.cache() == plan.windows + 512 * plan.cache_per_token);
        assert!(plan.to_string().contains("sliding windows"), "{plan}");

        const CONTEXT: usize = 8000;
        let mut cache = KvCache::new(&layout, CONTEXT);
        let most = layout.window_bytes(CONTEXT, 16) + (CONTEXT * layout.bytes_per_token()) as u64;
        let sequence = cache.open();
        let mut peak = 0;
        for end in (16..=CONTEXT).step_by(16) {
            cache.extend(sequence, 16).unwrap();
            // The prompt ends halfway.
            let stage = if end <= CONTEXT / 2 { Stage::Prompt { end: CONTEXT / 2 } } else { Stage::Within };
            cache.advance(sequence, end, stage).unwrap();
            peak = peak.max(cache.bytes());
            let seen = layout.groups.iter().zip(cache.pages(sequence).unwrap());
            assert!(seen.into_iter().all(|(group, table)| table.holds(group.first_seen(end - 16)..end)));
        }
        assert!(peak <= most, "{}: {peak} of {most}", tiny.0);
        assert!(most < (whole / 512 * CONTEXT) as u64, "{}: windows save memory", tiny.0);
        let windows: u64 = layout
            .groups
            .iter()
            .filter(|g| g.window == Some(Window::Sliding(WINDOW)))
            .map(|g| g.page_bytes as u64)
            .sum();
        // Pages of the windows, of the windows at the end of the prompt, and of 256 positions more;
        // each range may begin and end within a page.
        assert_eq!(
            layout.window_bytes(CONTEXT, 16),
            windows * ((32u64 + 16 + 256).div_ceil(64) + 1 + 48u64.div_ceil(64) + 1)
        );
        cache.close(sequence).unwrap();
        assert_eq!(cache.bytes(), 0);
    }
}
