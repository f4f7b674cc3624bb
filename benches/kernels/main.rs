//! Measures matrix products by format, instruction set and number of tokens, and attention.
//!
//! Decode is limited by memory, so it is reported in GB/s of weights or cache, and as a share of
//! the fastest read so far in the same run. Larger batches are limited by arithmetic and reported
//! in GFLOP/s, with the f32 FMA rate for comparison.
//!
//!     cargo bench --bench kernels -- --help

mod attention;
#[path = "../../examples/common/mod.rs"]
mod common;
#[path = "../machine/mod.rs"]
mod machine;

use std::{hint::black_box, process::ExitCode, time::Instant};

use inkstone::{
    CacheType, DType, Result,
    internals::{
        backend::{Backend, Executable, Run, Step, cpu::Cpu},
        graph::Builder,
        kv_cache::{CacheLayout, KvCache},
        weights::Weights,
    },
};

use machine::Machine;

const USAGE: &str = "
Usage: cargo bench --bench kernels -- [OPTIONS]

  --threads N     CPU threads (one per core)
  --format NAME   measures only products with one format, such as Q4_K
  --attention     measures only attention
  --set NAME      measures only one instruction set, such as AVX2
  --reps N        repetitions, of which the median counts (7)";

/// Rows of the matrix. With 64 MB at four bits it is well beyond the caches.
const ROWS: usize = 32_768;
/// Columns of the matrix, about as many as in real models.
const COLUMNS: usize = 4096;
/// Numbers of tokens.
const BATCHES: [usize; 6] = [1, 4, 8, 16, 64, 256];

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let threads: Option<usize> = args.value("--threads")?;
        let format: Option<String> = args.value("--format")?;
        let only_attention = args.flag("--attention");
        let set: Option<String> = args.value("--set")?;
        let reps = args.value("--reps")?.unwrap_or(7);
        args.finish()?;

        let threads = Cpu::new(threads)?.device().threads;
        let mut machine = Machine::new(threads)?;
        let sets = Cpu::instruction_sets().into_iter().filter(|name| set.as_deref().is_none_or(|set| set == *name));
        let cpus = sets.map(|name| Cpu::with_instruction_set(Some(threads), name)).collect::<Result<Vec<_>>>()?;
        if !only_attention {
            println!("{:<14} {:<8} decode GB/s  of reads   GFLOP/s at {BATCHES:?} tokens", "set", "format");
            for cpu in &cpus {
                let mut formats =
                    DType::ALL.iter().filter(|dtype| format.as_deref().is_none_or(|name| name == dtype.name()));
                formats.try_for_each(|dtype| measure(cpu, *dtype, reps, &mut machine))?;
            }
        }
        if format.is_none() {
            attention::print_header();
            cpus.iter().try_for_each(|cpu| attention::measure(cpu, reps, &mut machine))?;
        }
        println!("{threads} threads; reads {:.1} GB/s; f32 FMA {:.0} GFLOP/s", machine.read, machine.fma);
        Ok(())
    })
}

fn measure(cpu: &Cpu, dtype: DType, reps: usize, machine: &mut Machine) -> Result<()> {
    let weights = weights(dtype)?;
    let bytes = (ROWS * dtype.row_bytes(COLUMNS).unwrap_or(0)) as f64;
    let (mut executable, layout) = executable(cpu, &weights, dtype)?;
    let mut rates = Vec::new();
    for tokens in BATCHES {
        let ids = vec![0; tokens];
        let mut cache = KvCache::new(&layout, tokens);
        let sequence = cache.open();
        cache.extend(sequence, tokens)?;
        let runs = [Run { len: tokens, start: 0, pages: cache.pages(sequence)?, ..Run::default() }];
        let step = Step { tokens: &ids, runs: &runs, outputs: &[0], copies: &[], ..Default::default() };
        let seconds = median_seconds(&mut *executable, &step, if tokens > 8 { reps.div_ceil(3) } else { reps })?;
        rates.push((bytes / seconds / 1e9, 2e-9 * (ROWS * COLUMNS * tokens) as f64 / seconds));
    }
    machine.measure();
    let flops: Vec<_> = rates.iter().map(|(_, flops)| format!("{flops:6.0}")).collect();
    let decode = rates[0].0;
    let set = &cpu.device().details;
    println!(
        "{set:<14} {:<8} {decode:11.1}  {:7.0}%   {}",
        dtype.name(),
        100.0 * decode / machine.read,
        flops.join(" ")
    );
    Ok(())
}

/// Returns an embedding of one row, and a matrix of pseudo-random codes with small scales.
fn weights(dtype: DType) -> Result<Weights> {
    let block = dtype.block_bytes();
    let mut state = 1_u32;
    let mut matrix: Vec<u8> = Vec::with_capacity(ROWS * COLUMNS / dtype.block_weights() * block);
    matrix.resize_with(matrix.capacity(), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Floats of any format are finite if their bytes are less than 0x38.
        (state >> 24) as u8 % 0x38
    });
    let row: Vec<u8> = (0..COLUMNS).flat_map(|i| ((i % 17) as f32 - 8.0).to_le_bytes()).collect();
    Weights::from_memory([
        ("table".into(), DType::F32, vec![1, COLUMNS], row),
        ("matrix".into(), dtype, vec![ROWS, COLUMNS], matrix),
    ])
}

fn executable(cpu: &Cpu, weights: &Weights, dtype: DType) -> Result<(Box<dyn Executable>, CacheLayout)> {
    let mut builder = Builder::new();
    let tokens = builder.tokens();
    let table = builder.weight("table", DType::F32, 1, COLUMNS);
    let x = builder.embed(table, tokens);
    let matrix = builder.weight("matrix", dtype, ROWS, COLUMNS);
    let y = builder.matmul(x, matrix);
    let graph = builder.finish(y)?;
    let layout = CacheLayout::new(&graph, CacheType::F32)?;
    Ok((cpu.compile(&graph, weights, &layout, 256, 1)?, layout))
}

/// Returns the median time of a step, after a warm-up step.
fn median_seconds(executable: &mut dyn Executable, step: &Step<'_>, reps: usize) -> Result<f64> {
    black_box(executable.run(step)?);
    let mut seconds = Vec::with_capacity(reps);
    for _ in 0..reps {
        let started = Instant::now();
        black_box(executable.run(step)?);
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}
