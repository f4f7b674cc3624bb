//! AMX: tiles of bytes, on top of AVX-512.
//!
//! The intrinsics are not in stable Rust, so the instructions are written out. A tile register holds up to 16 rows of
//! 64 bytes. With activations `[16 tokens, 4 * words]` in one and codes `[words, 16 rows]`, four to a word, in another,
//! one instruction gives the sums `[16 tokens, 16 rows]`: just what is wanted, in the order that both already have.
//!
//! Source: Intel's Architecture Instruction Set Extensions Programming Reference, chapter 3.

use std::arch::{asm, x86_64::*};

use super::{Avx512, MatrixUnit};

/// AVX-512 with AMX's tiles of bytes.
pub(crate) type Avx512Amx = Avx512<Amx>;

/// The unit of AMX-INT8.
#[derive(Clone, Copy)]
pub(crate) struct Amx;

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_of_a_row: [u16; 16],
    rows: [u8; 16],
}

impl MatrixUnit for Amx {
    const TOKENS: usize = 16;

    #[inline(always)]
    unsafe fn begin(words: usize) {
        let mut config =
            TileConfig { palette: 1, start_row: 0, reserved: [0; 14], bytes_of_a_row: [0; 16], rows: [0; 16] };
        let [sums, x, codes] = [(16, 64), (16, 4 * words as u16), (words as u8, 64)];
        for (tile, (rows, bytes)) in [sums, x, codes].into_iter().enumerate() {
            config.rows[tile] = rows;
            config.bytes_of_a_row[tile] = bytes;
        }
        // SAFETY: the configuration is one that palette 1 allows.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly)) };
    }

    #[inline(always)]
    unsafe fn multiply(_bits: u32, _words: usize, codes: *const u8, x: *const i8, stride: usize, sums: *mut i32) {
        // SAFETY: by the caller, the tiles of the sizes that `begin` set lie in what the pointers lead to.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm1, [{x} + {stride}]",
                "tileloadd tmm2, [{codes} + {line}]",
                "tdpbsud tmm0, tmm1, tmm2",
                "tilestored [{sums} + {line}], tmm0",
                x = in(reg) x,
                stride = in(reg) stride,
                codes = in(reg) codes,
                line = in(reg) 64_usize,
                sums = in(reg) sums,
                out("tmm0") _,
                out("tmm1") _,
                out("tmm2") _,
                options(nostack),
            );
        }
    }

    #[inline(always)]
    unsafe fn end() {
        // SAFETY: nothing of the tiles is needed any more.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Whether the machine has AMX-INT8 and the system lets this process use it.
pub(crate) fn detect() -> bool {
    // Function 7: bit 24 for the tiles, 25 for products of bytes. Function 1: bit 27 for `xgetbv`.
    // SAFETY: every x86-64 processor has `cpuid`.
    #[allow(unused_unsafe, reason = "the oldest supported Rust declares both functions unsafe, newer ones do not")]
    let (basic, extended) = unsafe { (__cpuid(1), __cpuid_count(7, 0)) };
    let has_unit = extended.edx >> 24 & 3 == 3 && basic.ecx >> 27 & 1 == 1;
    // SAFETY: the machine has `xgetbv`. Bits 17 and 18: the system saves the tiles and their configuration.
    has_unit && unsafe { enabled_states() } >> 17 & 3 == 3 && allowed()
}

#[target_feature(enable = "xsave")]
fn enabled_states() -> u64 {
    // SAFETY: register 0 is there wherever the instruction is.
    unsafe { _xgetbv(0) }
}

/// Asks Linux for the tiles, whose 8 KiB of state a process gets only when it asks.
#[cfg(target_os = "linux")]
fn allowed() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let status: isize;
    // SAFETY: this system call touches no memory of the process.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => status,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    status == 0
}

/// Other systems give the tiles to all that use them, but that has not been tried.
#[cfg(not(target_os = "linux"))]
fn allowed() -> bool {
    false
}
