//! What the machine can do at most: the limits that kernels are measured against.

use std::{hint::black_box, thread, time::Instant};

/// Bytes a thread reads: well past the caches.
const BYTES: usize = 256 << 20;

/// The fastest of several plain reads of a large array by all threads, in GB/s.
pub fn read_bandwidth(threads: usize) -> f64 {
    let array = vec![1_u64; BYTES / 8];
    best_rate(threads, BYTES as f64, |number| {
        let share = array.len() / threads;
        let mut sums = [0_u64; 32];
        for words in array[number * share..(number + 1) * share].chunks_exact(sums.len()) {
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = sum.wrapping_add(*word);
            }
        }
        black_box(sums);
    })
}

/// Independent fused multiply-adds on all threads, in GFLOP/s.
pub fn fma_rate(threads: usize) -> f64 {
    const TURNS: usize = 4_000_000;
    best_rate(threads, (TURNS * threads) as f64 * flops_a_turn(), |_| multiply_add(TURNS))
}

fn best_rate(threads: usize, amount: f64, work: impl Fn(usize) + Sync) -> f64 {
    let once = || {
        let started = Instant::now();
        thread::scope(|scope| {
            for number in 0..threads {
                let work = &work;
                scope.spawn(move || work(number));
            }
        });
        amount / started.elapsed().as_secs_f64() / 1e9
    };
    (0..5).map(|_| once()).fold(0.0, f64::max)
}

#[cfg(target_arch = "x86_64")]
fn flops_a_turn() -> f64 {
    if is_x86_feature_detected!("avx512f") { 12.0 * 32.0 } else { 12.0 * 16.0 }
}

#[cfg(not(target_arch = "x86_64"))]
fn flops_a_turn() -> f64 {
    12.0 * 2.0
}

fn multiply_add(turns: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instruction set.
            return unsafe { multiply_add_avx512(turns) };
        }
        if is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return unsafe { multiply_add_fma(turns) };
        }
    }
    let mut acc = [1.0_f32; 12];
    for _ in 0..turns {
        for x in &mut acc {
            *x = *x * 0.999 + 0.001;
        }
    }
    black_box(acc);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_add_avx512(turns: usize) {
    use std::arch::x86_64::*;
    let (a, b) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
    let mut acc = [b; 12];
    for _ in 0..turns {
        for x in &mut acc {
            *x = _mm512_fmadd_ps(*x, a, b);
        }
    }
    black_box(acc);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_fma(turns: usize) {
    use std::arch::x86_64::*;
    let (a, b) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
    let mut acc = [b; 12];
    for _ in 0..turns {
        for x in &mut acc {
            *x = _mm256_fmadd_ps(*x, a, b);
        }
    }
    black_box(acc);
}
