//! Generates the random numbers of a sampler, which are the same on every platform and in every
//! version of this crate.

use std::hash::{BuildHasher, RandomState};

/// xoshiro256++ 1.0 by David Blackman and Sebastiano Vigna
/// (<https://prng.di.unimi.it/xoshiro256plusplus.c>). SplitMix64 expands the seed into the state,
/// as the authors advise.
#[derive(Clone, Debug)]
pub(super) struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    pub(super) fn new(seed: u64) -> Self {
        let mut split_mix = seed;
        Self { state: std::array::from_fn(|_| next_split_mix(&mut split_mix)) }
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number in [0, 1) with 53 random bits.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// Returns the next number of SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>).
fn next_split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a random seed: the standard library seeds its hashers from the system's entropy.
pub(super) fn fresh_seed() -> u64 {
    RandomState::new().hash_one(0u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers come from the crate rand_xoshiro, which took them from the authors' C
    /// code.
    #[test]
    fn xoshiro_gives_the_published_numbers() {
        let mut random = Xoshiro256 { state: [1, 2, 3, 4] };
        let expected = [
            41943041,
            58720359,
            3588806011781223,
            3591011842654386,
            9228616714210784205,
            9973669472204895162,
            14011001112246962877,
            12406186145184390807,
            15849039046786891736,
            10450023813501588000,
        ];
        assert_eq!(expected, std::array::from_fn(|_| random.next()));
    }

    /// The expected numbers are the first outputs of the authors' C code for the seed 1234567.
    #[test]
    fn split_mix_gives_the_published_numbers() {
        let mut state = 1234567;
        let expected =
            [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821];
        assert_eq!(expected, std::array::from_fn(|_| next_split_mix(&mut state)));
    }

    #[test]
    fn fresh_seeds_differ() {
        assert_ne!(fresh_seed(), fresh_seed());
    }
}
