//! Adds the matrix unit AMX-INT8 to AVX-512.
//!
//! The intrinsics are unstable in Rust, so the instructions are inline assembly. A tile register
//! holds up to 16 rows of 64 bytes. From activations `[16 tokens, 4 * words]` int8 and codes
//! `[words, 16 rows]`, four per word, one instruction computes the sums `[16 tokens, 16 rows]`,
//! without a change in the order of operands.
//!
//! Source: Intel's Architecture Instruction Set Extensions Programming Reference, chapter 3.

use std::arch::{asm, x86_64::*};

use super::{Avx512, MatrixUnit};

/// x86-64 with AVX-512 and AMX-INT8.
pub(crate) type Avx512Amx = Avx512<Amx>;

/// The matrix unit AMX-INT8.
#[derive(Clone, Copy)]
pub(crate) struct Amx;

/// Operand of `ldtilecfg`.
#[repr(C, align(64))]
struct AmxConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl MatrixUnit for Amx {
    const TOKENS: usize = 16;

    /// # Safety: as [`MatrixUnit::begin`].
    #[inline(always)]
    unsafe fn begin(words: usize) {
        let mut config = AmxConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let [sums, x, codes] = [(16, 64), (16, 4 * words as u16), (words as u8, 64)];
        for (tile, (rows, bytes)) in [sums, x, codes].into_iter().enumerate() {
            config.rows[tile] = rows;
            config.row_bytes[tile] = bytes;
        }
        // SAFETY: by the caller; palette 1 allows this configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly)) };
    }

    /// # Safety: as [`MatrixUnit::multiply`].
    #[inline(always)]
    unsafe fn multiply(_bits: u32, _words: usize, codes: *const u8, x: *const i8, stride: usize, sums: *mut i32) {
        // SAFETY: by the caller, the pointers are valid for tiles of the sizes that `begin`
        // configured.
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

    /// # Safety: as [`MatrixUnit::end`].
    #[inline(always)]
    unsafe fn end() {
        // SAFETY: by the caller; `multiply` leaves no data in the tiles.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Returns whether the machine has AMX-INT8 and the operating system allows this process to use it.
pub(crate) fn detect() -> bool {
    // Leaf 7: bit 24 is AMX-TILE, bit 25 AMX-INT8. Leaf 1: bit 27 is OSXSAVE (`xgetbv`).
    // SAFETY: every x86-64 processor has `cpuid`.
    #[allow(unused_unsafe, reason = "the oldest supported Rust declares both functions unsafe, newer ones do not")]
    let (basic, extended) = unsafe { (__cpuid(1), __cpuid_count(7, 0)) };
    let has_unit = extended.edx >> 24 & 3 == 3 && basic.ecx >> 27 & 1 == 1;
    // SAFETY: the machine has `xgetbv`. Bits 17 and 18: the system saves tile configuration and
    // data.
    has_unit && unsafe { enabled_states() } >> 17 & 3 == 3 && allowed()
}

#[target_feature(enable = "xsave")]
fn enabled_states() -> u64 {
    // SAFETY: register 0 exists on every machine with the instruction.
    unsafe { _xgetbv(0) }
}

/// Requests permission to use AMX from Linux, which allocates its 8 KiB of state on request only.
#[cfg(target_os = "linux")]
fn allowed() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let status: isize;
    // SAFETY: this system call accesses no memory of the process.
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

/// Returns `false`: AMX is untested on other systems.
#[cfg(not(target_os = "linux"))]
fn allowed() -> bool {
    false
}
