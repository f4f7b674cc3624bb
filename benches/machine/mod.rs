//! What the machine can do at most: the limits that kernels are measured against.
//!
//! Both are the best of many short tries. Other processes take cores and memory for moments, which a single try would
//! take for the machine's limit; so tries are spread over the run, before, between and after what is measured.

use std::{
    hint::black_box,
    io,
    sync::atomic::{AtomicUsize, Ordering::*},
    thread,
    time::Instant,
};

use memmap2::MmapMut;

/// Bytes that are read: well past the caches, also those of a thread's own.
const BYTES: usize = 256 << 20;
const BYTES_A_THREAD: usize = 16 << 20;
/// What a thread reads at a time: four cache lines, in 64-bit words.
type Lines = [u64; 32];
/// Ways to read: streams that a thread follows side by side, each a stretch of its own, and bytes ahead of each that
/// memory is asked for, 0 being the plain scan. Which is the fastest differs from machine to machine.
const WAYS: [(usize, usize); 6] = [(1, 0), (1, 2048), (2, 1024), (4, 0), (4, 1024), (8, 1024)];
/// Multiply-adds that follow one another in a try: some milliseconds.
const TURNS: usize = 1_000_000;

/// The limits of so many threads, as far as they are known by now.
pub struct Machine {
    threads: usize,
    memory: MmapMut,
    /// The fastest read of a large array, in GB/s.
    pub read: f64,
    /// Independent fused multiply-adds in single precision, in GFLOP/s.
    pub fma: f64,
}

impl Machine {
    /// Takes the memory and measures for the first times.
    pub fn new(threads: usize) -> io::Result<Self> {
        let share = (BYTES / threads).max(BYTES_A_THREAD).next_multiple_of(size_of::<Lines>());
        let mut memory = MmapMut::map_anon(share * threads)?;
        // Small pages cost a few percent; where the system has no others, it stays with them.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        // Each thread fills what it will read, so that it lies near its core.
        thread::scope(|scope| {
            for part in memory.chunks_mut(share) {
                scope.spawn(move || part.fill(1));
            }
        });
        let mut machine = Self { threads, memory, read: 0.0, fma: 0.0 };
        (0..5).for_each(|_| machine.measure());
        Ok(machine)
    }

    /// Tries everything once more, which takes about a tenth of a second, and keeps the best.
    pub fn measure(&mut self) {
        // SAFETY: any bytes are words, and the memory begins with a page.
        let lines: &[Lines] = unsafe { self.memory.align_to().1 };
        let share = lines.len() / self.threads;
        for (streams, ahead) in WAYS {
            let seconds = self.seconds(|number| read(&lines[number * share..(number + 1) * share], streams, ahead));
            self.read = self.read.max(self.memory.len() as f64 / seconds / 1e9);
        }
        let seconds = self.seconds(|_| multiply_add(TURNS));
        self.fma = self.fma.max((TURNS * self.threads) as f64 * flops_a_turn() / seconds / 1e9);
    }

    /// The time from the first thread's start to the last one's end.
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

fn read(lines: &[Lines], streams: usize, ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instruction set.
            return unsafe { read_avx512(lines, streams, ahead) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { read_avx2(lines, streams, ahead) };
        }
    }
    read_lines(lines, streams, ahead);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn read_avx512(lines: &[Lines], streams: usize, ahead: usize) {
    read_lines(lines, streams, ahead);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(lines: &[Lines], streams: usize, ahead: usize) {
    read_lines(lines, streams, ahead);
}

#[inline(always)]
fn read_lines(lines: &[Lines], streams: usize, ahead: usize) {
    let stretch = lines.len() / streams;
    let mut sums: Lines = [0; 32];
    for at in 0..stretch {
        for stream in 0..streams {
            let lines = &lines[stream * stretch + at];
            prefetch(lines, ahead);
            for (sum, word) in sums.iter_mut().zip(lines) {
                *sum |= *word;
            }
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(lines: &Lines, ahead: usize) {
    use std::arch::x86_64::*;
    for line in (0..size_of::<Lines>()).step_by(64) {
        // SAFETY: a prefetch may point anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_byte_add(ahead + line).cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch(_: &Lines, _: usize) {}

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
