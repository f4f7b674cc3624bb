//! GPUs as a whole: against llama.cpp, against the CPU, with less than the adapter has, and with
//! pipelined decoding.
//!
//! They run on every adapter of the machine, software too; where there is none, each says that it
//! was skipped.

use std::{env, process::Command};

use inkstone::{
    Adapter, CacheType, DType, Device, DeviceInfo, Error, GenerateOptions, LogitsFor, Runner, RunnerBuilder,
    SamplerOptions,
    internals::{
        backend::{
            Backend, Run, Step,
            webgpu::{Gpu, GpuLimits},
        },
        graph::Builder,
        kv_cache::CacheLayout,
    },
};

use super::ops;
use crate::{
    models::storyteller,
    support::{
        data,
        drive::{Tensor, packed},
        graphs::Random,
        on_cpu,
        quantize::quantize,
        recorder::{best_of, log_sum},
        tiny::{EIGHT_BITS, EXACT, MODELS, RECURRENT, Tiny, argmax, nmse},
    },
};

/// What rounding in another order may cost in single precision, in up to 64 layers.
const ROUNDING: f64 = 1e-9;
/// What it costs besides that matrix units multiply in half precision.
const HALVES: f64 = 2e-6;

pub fn adapters() -> Vec<DeviceInfo> {
    let adapters = Gpu::adapters();
    if adapters.is_empty() {
        eprintln!("skipped: this machine has no adapter, not even a software one");
    }
    adapters
}

fn on(info: &DeviceInfo) -> RunnerBuilder {
    Runner::builder().cache_type(CacheType::F32).device(Device::Gpu(Adapter::Named(info.name.clone())))
}

/// Logits and greedy ids are llama.cpp's, and prompts of the lengths at which kernels change have
/// the CPU's logits.
#[test]
fn tiny_models_compute_what_llama_cpp_and_the_cpu_do() {
    for info in adapters() {
        for tiny in MODELS {
            let mut gpu = on(&info).from_gguf(tiny.path()).unwrap();
            let mut cpu = on_cpu().cache_type(CacheType::F32).from_gguf(tiny.path()).unwrap();
            let rounding = match tiny.1 {
                // Activations in 8 bits differ between the devices.
                EIGHT_BITS => EIGHT_BITS,
                error if gpu.device().details.contains("matrix units") && error > EXACT => HALVES,
                _ => ROUNDING,
            };
            compare_with_llama_cpp(&mut gpu, &mut cpu, tiny, rounding);
            if tiny.1 <= EXACT {
                compare_short_prompts(&mut gpu, &mut cpu, tiny);
            }
        }
    }
}

fn compare_with_llama_cpp(gpu: &mut Runner, cpu: &mut Runner, tiny: Tiny, rounding: f64) {
    let name = format!("{} on {}", tiny.0, gpu.device().name);
    let expected = tiny.expected();
    let error = nmse(&gpu.predict_logits(&expected.prompt).unwrap(), &expected.prompt_logits);
    assert!(error <= tiny.1 + rounding, "{name}: {error:.1e}");
    // As far as rounding cannot have made the choice.
    let least_gap = 30.0 * tiny.1.sqrt() as f32;
    for &id in &expected.greedy {
        let next = gpu.decode_greedy(id).unwrap();
        let following = gpu.tokens().len() - expected.prompt.len();
        if let Some(wanted) = expected.greedy.get(following)
            && expected.gaps[following] > least_gap
        {
            assert_eq!(next, *wanted, "{name}, token {following}");
        }
    }
    let ids = [&*expected.prompt, &expected.greedy, &[0]].concat();
    let error = nmse(gpu.decode(0).unwrap(), &cpu.predict_logits(&ids).unwrap());
    assert!(error <= rounding, "{name} in the end: {error:.1e}");
}

fn compare_short_prompts(gpu: &mut Runner, cpu: &mut Runner, tiny: Tiny) {
    let prompt = tiny.expected().prompt;
    for length in [2, 4, 7, 8, 9, 16, 17].into_iter().filter(|length| *length <= prompt.len()) {
        let logits = |runner: &mut Runner| {
            runner.reset();
            runner.predict_logits(&prompt[..length]).unwrap().to_vec()
        };
        let error = nmse(&logits(gpu), &logits(cpu));
        assert!(error <= ROUNDING, "{} on {}, {length} ids: {error:.1e}", tiny.0, gpu.device().name);
    }
}

#[test]
fn greedy_ids_of_the_storyteller_are_the_references() {
    adapters().iter().for_each(|info| storyteller::check_greedy_ids(on(info)));
}

#[test]
fn greedy_steps_are_those_of_the_logits_whatever_comes_between() {
    for (info, tiny) in adapters().iter().flat_map(|info| [(info, MODELS[0]), (info, RECURRENT)]) {
        let expected = tiny.expected();
        let mut pipelined = on(info).from_gguf(tiny.path()).unwrap();
        let mut plain = on(info).from_gguf(tiny.path()).unwrap();
        let mut id = argmax(pipelined.prefill(&expected.prompt).unwrap());
        plain.prefill(&expected.prompt).unwrap();
        for turn in 0..24 {
            let next = pipelined.decode_greedy(id).unwrap();
            assert_eq!(next, argmax(plain.decode(id).unwrap()), "turn {turn}");
            assert_eq!(pipelined.tokens(), plain.tokens());
            if turn % 6 == 5 && pipelined.decoder_mut().set_profiling(true).is_ok() {
                // Steps are not pipelined while profiling.
                pipelined.decoder_mut().set_profiling(turn % 12 == 5).unwrap();
            }
            // Another token than the one that was chosen, a step back, and a fork, each while a
            // step is under way.
            id = if turn % 5 == 4 { (next + 1) % 300 } else { next };
            if turn % 7 == 6 {
                let len = pipelined.tokens().len() - 2;
                pipelined.truncate(len).unwrap();
                plain.truncate(len).unwrap();
            }
            if turn % 9 == 8 {
                let sequence = pipelined.sequence();
                let twin = pipelined.decoder_mut().fork(sequence).unwrap();
                let logits = pipelined.decoder_mut().step(&[(twin, &[id], LogitsFor::Last)]).unwrap().to_vec();
                pipelined.decoder_mut().close(twin).unwrap();
                let len = plain.tokens().len();
                let error = nmse(plain.decode(id).unwrap(), &logits);
                assert!(error <= ROUNDING, "turn {turn}: {error:.1e}");
                plain.truncate(len).unwrap();
            }
        }
    }
}

/// Among them equal ones, infinite ones, and ones that are not numbers; of vocabularies for one
/// round, two and three.
#[test]
fn the_largest_logits_are_those_of_a_sort() {
    let mut random = Random::new(5);
    for info in adapters() {
        let gpu = Gpu::new(&Adapter::Named(info.name.clone())).unwrap();
        for vocabulary in [1, 63, 64, 1000, 1024, 1025, 20_000, 70_003] {
            let mut logits: Vec<f32> =
                (0..4 * vocabulary).map(|_| (random.below(4001) as f32 - 2000.0) / 16.0).collect();
            logits[..vocabulary].iter_mut().step_by(3).for_each(|logit| *logit = f32::NEG_INFINITY);
            logits[2 * vocabulary - 1] = f32::INFINITY;
            logits[3 * vocabulary - 1] = f32::NAN;
            logits[2 * vocabulary + vocabulary / 2] = -f32::NAN;
            let mut b = Builder::new();
            let tokens = b.tokens();
            let table = b.weight("table", DType::F32, 4, vocabulary);
            let row = b.embed(table, tokens);
            let graph = b.finish(row).unwrap();
            let bytes = quantize(DType::F32, &logits);
            let tensor = Tensor { name: "table".into(), dtype: DType::F32, rows: 4, columns: vocabulary, bytes };
            let cache = CacheLayout::new(&graph, CacheType::F32).unwrap();
            let mut executable = gpu.compile(&graph, &packed(&[tensor]), &cache, 4, 4).unwrap();
            let run = Run { len: 1, ..Default::default() };
            let rows: Vec<_> = logits.chunks(vocabulary).collect();
            // One row, which is a number in all its logits, then all rows.
            for tokens in [&[3u32][..], &[0, 1, 2, 3]] {
                let (runs, outputs): (Vec<_>, Vec<_>) = tokens.iter().enumerate().map(|(i, _)| (run, i)).unzip();
                let step = Step { tokens, runs: &runs, outputs: &outputs, ..Default::default() };
                for count in [1, 40, 64] {
                    let found = executable.best(&step, count).unwrap().expect("a GPU finds this number").to_vec();
                    for (top, token) in found.iter().zip(tokens) {
                        let row = rows[*token as usize];
                        // As text, in which NaN equals itself.
                        let (best, expected) = (format!("{:?}", top.best), format!("{:?}", best_of(row, count)));
                        assert_eq!(best, expected, "{vocabulary} on {}", info.name);
                        let (sum, expected) = (top.log_sum, log_sum(row));
                        let is_same = (sum - expected).abs() < 2e-6 * expected.abs().max(1.0);
                        assert!(is_same || !expected.is_finite(), "{sum}, not {expected}, on {}", info.name);
                    }
                    let last = executable.logits_of_last(tokens.len() - 1).unwrap();
                    assert_eq!(format!("{last:?}"), format!("{:?}", rows[3]));
                }
                assert!(executable.best(&step, 65).unwrap().is_none());
                assert_eq!(executable.run(&step).unwrap().len(), tokens.len() * vocabulary);
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_text_from_the_largest_logits_as_from_all() {
    let samplers = [
        SamplerOptions::default(),
        SamplerOptions { repetition_penalty: 1.2, logit_bias: vec![(300, 2.0)], ..SamplerOptions::default() },
        SamplerOptions { presence_penalty: 1.0, ..SamplerOptions::greedy() },
    ];
    for (info, sampler) in adapters().iter().flat_map(|info| samplers.iter().map(move |sampler| (info, sampler))) {
        let text = |needs_all: bool| {
            let sampler = SamplerOptions { seed: Some(3), ..sampler.clone() };
            let options = GenerateOptions { sampler, max_tokens: Some(40), ..GenerateOptions::default() };
            let mut runner = on(info).from_gguf(data("storyteller/storyteller.gguf")).unwrap();
            let mut generation = runner.generate("Once upon a time", &options).unwrap();
            if needs_all {
                generation = generation.with_processor(|_: &[u32], _: &mut [f32]| Ok(()));
            }
            generation.by_ref().for_each(|piece| drop(piece.unwrap()));
            generation.ids().to_vec()
        };
        assert_eq!(text(false), text(true), "{sampler:?} on {}", info.name);
    }
}

/// Appends a token to sequences of different lengths, of which one is long, in steps of few and of
/// many rows.
#[test]
fn steps_of_many_sequences_equal_steps_of_one() {
    for info in adapters() {
        // Biases, windows, experts, recurrent layers, and a trained model.
        let models =
            ["models/llama_biased", "models/gemma3", "models/qwen3moe", "models/qwen35", "storyteller/storyteller"];
        for path in models.map(|name| data(&format!("{name}.gguf"))) {
            let mut runner = on(&info).cache_type(CacheType::F16).from_gguf(&path).unwrap();
            let vocab_size = runner.config().vocab_size;
            let ids =
                |n: usize, len: usize| -> Vec<u32> { (0..len).map(|i| ((i * 29 + 7 * n) % 300) as u32).collect() };
            let decoder = runner.decoder_mut();
            let open = |n: usize| {
                let sequence = decoder.open();
                let longest = decoder.context_length().min(1100) - 1;
                let len = if n == 17 { longest } else { 1 + n * 5 % 23 };
                decoder.prefill(sequence, &ids(n, len), |_, _| true).unwrap();
                sequence
            };
            let sequences: Vec<_> = (0..36).map(open).collect();
            let tokens: Vec<_> = (0..36).map(|n| ids(n + 1, 1)).collect();
            let mut alone = |n: &usize| {
                let fork = decoder.fork(sequences[*n]).unwrap();
                let logits = decoder.step(&[(fork, &tokens[*n], LogitsFor::Last)]).unwrap().to_vec();
                decoder.close(fork).unwrap();
                logits
            };
            let expected: Vec<_> = [0, 3, 12, 17, 35].iter().map(|n| (*n, alone(n))).collect();
            for size in [13, 18, 36] {
                let forks: Vec<_> = sequences[..size].iter().map(|id| decoder.fork(*id).unwrap()).collect();
                let runs: Vec<_> = (0..size).map(|n| (forks[n], &tokens[n][..], LogitsFor::Last)).collect();
                let logits = decoder.step(&runs).unwrap().to_vec();
                for (n, expected) in expected.iter().filter(|(n, _)| *n < size) {
                    let error = nmse(&logits[n * vocab_size..(n + 1) * vocab_size], expected);
                    // Few rows are multiplied as int8 and many as f16 or f32.
                    assert!(error < 2e-3, "{error} for sequence {n} of {size}, {} on {}", path.display(), info.name);
                }
                forks.into_iter().for_each(|id| decoder.close(id).unwrap());
            }
        }
    }
}

/// Small workgroups, no subgroups, and bindings so small that matrices come in parts: other
/// kernels, the same results.
#[test]
fn results_do_not_depend_on_how_the_work_is_divided() {
    let small = GpuLimits { workgroup: 256, subgroups: false, ..GpuLimits::default() };
    let split = GpuLimits { workgroup: 512, binding_bytes: 1 << 18, matrices: false, ..GpuLimits::default() };
    for info in adapters() {
        for (limits, cases) in [(small, ops::for_workgroups()), (split, ops::for_bindings())] {
            let gpu = Gpu::with_limits(&Adapter::Named(info.name.clone()), &limits).unwrap();
            let failures: Vec<_> = cases.iter().filter_map(|case| case.failure_on(&gpu)).collect();
            assert!(failures.is_empty(), "{limits:?}: {} failures:\n{}", failures.len(), failures.join("\n"));
        }
    }
}

#[test]
fn devices_are_named_and_missing_ones_too() {
    let missing = Device::Gpu(Adapter::Named("no such adapter".into()));
    match Runner::builder().device(missing).from_gguf(MODELS[0].path()) {
        Err(Error::NoDevice(what)) => assert!(what.contains("no such adapter"), "{what}"),
        other => panic!("{other:?}"),
    }
    let runner = Runner::builder().device(Device::Auto).from_gguf(MODELS[0].path()).unwrap();
    let has_gpu = Gpu::new(&Adapter::Best).is_ok();
    assert_eq!(runner.device().fallback.is_some(), !has_gpu, "{:?}", runner.device());
    assert_eq!(on_cpu().from_gguf(MODELS[0].path()).unwrap().device().fallback, None);
    assert_eq!("gpu".parse(), Ok(Device::Gpu(Adapter::Best)));
    assert_eq!("H200".parse(), Ok(Device::Gpu(Adapter::Named("H200".into()))));
    let low = GpuLimits { workgroup: 64, ..GpuLimits::default() };
    assert!(matches!(Gpu::with_limits(&Adapter::Best, &low), Err(Error::Argument { .. })));
}

/// A layer of Mesa's would look for a Wayland session, and libwayland write an error where there is
/// none.
#[test]
fn the_search_for_adapters_writes_nothing() {
    if adapters().is_empty() {
        return;
    }
    let search = Command::new(env::current_exe().unwrap())
        .args(["--exact", "backend::gpu::devices_are_named_and_missing_ones_too"])
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&search.stdout);
    assert!(search.status.success() && printed.contains("1 passed"), "{printed}");
    assert_eq!(String::from_utf8_lossy(&search.stderr), "");
}

/// Tiles staged in a workgroup's memory, many shapes, over and over: a missing barrier shows sooner
/// or later.
#[test]
fn products_with_matrix_units_are_the_same_every_time() {
    for info in adapters() {
        let gpu = Gpu::new(&Adapter::Named(info.name.clone())).unwrap();
        if !gpu.has_matrices() {
            eprintln!("skipped: {} has no matrices of 16 by 16 in half precision", gpu.device().name);
            continue;
        }
        let failures: Vec<_> = ops::tiled(8).iter().filter_map(|case| case.failure_on(&gpu)).collect();
        assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    }
}
