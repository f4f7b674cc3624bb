//! Measures the machine's memory bandwidth and FMA rate, with which kernels are compared.
//!
//! Each is the best of many short measurements. Other processes slow the machine down for moments,
//! so the measurements are spread over the run, before, between and after those of the kernels.

use std::{
    hint::black_box,
    io,
    sync::atomic::{AtomicUsize, Ordering::*},
    thread,
    time::Instant,
};

use memmap2::MmapMut;

/// Total bytes to read: well beyond the shared caches.
const BYTES: usize = 256 << 20;
/// Minimum bytes to read per thread: well beyond its own caches.
const MIN_THREAD_BYTES: usize = 16 << 20;
/// Unit of reading: four cache lines, as 64-bit words.
type Lines = [u64; 32];
/// Access patterns. The fastest one differs between machines.
const PATTERNS: [Pattern; 6] = [
    Pattern { streams: 1, prefetch: 0 },
    Pattern { streams: 1, prefetch: 2048 },
    Pattern { streams: 2, prefetch: 1024 },
    Pattern { streams: 4, prefetch: 0 },
    Pattern { streams: 4, prefetch: 1024 },
    Pattern { streams: 8, prefetch: 1024 },
];
/// Dependent iterations of a measurement of FMA: some milliseconds.
const ITERATIONS: usize = 1_000_000;

/// A way of reading memory.
#[derive(Clone, Copy)]
struct Pattern {
    /// Number of separate ranges that a thread reads in turn.
    streams: usize,
    /// Distance of prefetches in bytes; with 0, a line is prefetched when it is read.
    prefetch: usize,
}

/// The best rates that were measured so far, with all threads together.
pub struct Machine {
    threads: usize,
    memory: MmapMut,
    /// Rate of reading a large array, in GB/s.
    pub read: f64,
    /// Rate of independent f32 fused multiply-adds, in GFLOP/s.
    pub fma: f64,
}

impl Machine {
    /// Allocates memory and takes the first measurements.
    pub fn new(threads: usize) -> io::Result<Self> {
        let share = (BYTES / threads).max(MIN_THREAD_BYTES).next_multiple_of(size_of::<Lines>());
        let mut memory = MmapMut::map_anon(share * threads)?;
        // Small pages cost a few percent; they are used if the system has no large ones.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        // Each thread writes the part that it will read, so that it is allocated near its core.
        thread::scope(|scope| {
            for part in memory.chunks_mut(share) {
                scope.spawn(move || part.fill(1));
            }
        });
        let mut machine = Self { threads, memory, read: 0.0, fma: 0.0 };
        (0..5).for_each(|_| machine.measure());
        Ok(machine)
    }

    /// Measures again, for about 0.1 s, and keeps the best rates.
    pub fn measure(&mut self) {
        // SAFETY: any bytes are valid words, and the memory starts at a page.
        let lines: &[Lines] = unsafe { self.memory.align_to().1 };
        let share = lines.len() / self.threads;
        for pattern in PATTERNS {
            let seconds = self.seconds(|number| read(&lines[number * share..(number + 1) * share], pattern));
            self.read = self.read.max(self.memory.len() as f64 / seconds / 1e9);
        }
        let seconds = self.seconds(|_| multiply_add(ITERATIONS));
        self.fma = self.fma.max((ITERATIONS * self.threads) as f64 * flops_per_iteration() / seconds / 1e9);
    }

    /// Runs `work` on all threads and returns the time from the first start to the last end.
    fn seconds(&self, work: impl Fn(usize) + Sync) -> f64 {
        let arrived = AtomicUsize::new(0);
        let span = |number| {
            arrived.fetch_add(1, AcqRel);
            while arrived.load(Acquire) < self.threads {
                thread::yield_now();
            }
            let started = Instant::now();
            work(number);
            (started, Instant::now())
        };
        let spans: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|number| scope.spawn(move || span(number))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let first = spans.iter().map(|(started, _)| *started).min();
        let last = spans.iter().map(|(_, ended)| *ended).max();
        first.zip(last).map_or(f64::INFINITY, |(first, last)| (last - first).as_secs_f64())
    }
}

fn read(lines: &[Lines], pattern: Pattern) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instruction set.
            return unsafe { read_avx512(lines, pattern) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { read_avx2(lines, pattern) };
        }
    }
    read_lines(lines, pattern);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn read_avx512(lines: &[Lines], pattern: Pattern) {
    read_lines(lines, pattern);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(lines: &[Lines], pattern: Pattern) {
    read_lines(lines, pattern);
}

#[inline(always)]
fn read_lines(lines: &[Lines], Pattern { streams, prefetch: distance }: Pattern) {
    let stream_len = lines.len() / streams;
    let mut sums: Lines = [0; 32];
    for index in 0..stream_len {
        for stream in 0..streams {
            let lines = &lines[stream * stream_len + index];
            prefetch(lines, distance);
            for (sum, word) in sums.iter_mut().zip(lines) {
                *sum |= *word;
            }
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(lines: &Lines, distance: usize) {
    use std::arch::x86_64::*;
    for line in (0..size_of::<Lines>()).step_by(64) {
        // SAFETY: a prefetch can use any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_byte_add(distance + line).cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch(_: &Lines, _: usize) {}

#[cfg(target_arch = "x86_64")]
fn flops_per_iteration() -> f64 {
    if is_x86_feature_detected!("avx512f") { 12.0 * 32.0 } else { 12.0 * 16.0 }
}

#[cfg(not(target_arch = "x86_64"))]
fn flops_per_iteration() -> f64 {
    12.0 * 2.0
}

fn multiply_add(iterations: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instruction set.
            return unsafe { multiply_add_avx512(iterations) };
        }
        if is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return unsafe { multiply_add_fma(iterations) };
        }
    }
    let mut acc = [1.0_f32; 12];
    for _ in 0..iterations {
        for x in &mut acc {
            *x = *x * 0.999 + 0.001;
        }
    }
    black_box(acc);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_add_avx512(iterations: usize) {
    use std::arch::x86_64::*;
    let (a, b) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
    let mut acc = [b; 12];
    for _ in 0..iterations {
        for x in &mut acc {
            *x = _mm512_fmadd_ps(*x, a, b);
        }
    }
    black_box(acc);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_fma(iterations: usize) {
    use std::arch::x86_64::*;
    let (a, b) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
    let mut acc = [b; 12];
    for _ in 0..iterations {
        for x in &mut acc {
            *x = _mm256_fmadd_ps(*x, a, b);
        }
    }
    black_box(acc);
}
