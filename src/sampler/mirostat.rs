//! Truncates by Mirostat: keeps tokens below a bound on their surprise, which follows the surprise
//! of the drawn tokens.

use super::{
    Mirostat, MirostatVersion,
    candidates::{Candidate, Candidates},
};

/// Number of most probable tokens from which the first version estimates.
const ESTIMATION_TOKENS: usize = 100;

/// The bound on the surprise of one sequence's tokens.
#[derive(Debug)]
pub(super) struct SurpriseBound {
    options: Mirostat,
    /// The bound in bits.
    mu: f64,
}

impl SurpriseBound {
    pub fn new(options: Mirostat) -> Self {
        Self { options, mu: 2.0 * f64::from(options.tau) }
    }

    /// Returns the candidates within the bound, best first. Their logits are natural logarithms of
    /// probabilities.
    pub fn select<'a>(
        &self,
        candidates: &'a mut Candidates,
        logits: &[f32],
        best: Candidate,
        temperature: f32,
    ) -> &'a [Candidate] {
        let scaled = |logit: f32| f64::from(logit - best.logit) / f64::from(temperature);
        let total: f64 = logits.iter().map(|&logit| scaled(logit).exp()).sum();
        let log_p = |logit: f32| scaled(logit) - total.ln();
        let count = match self.options.version {
            MirostatVersion::One => {
                let best = candidates.best_of(logits, ESTIMATION_TOKENS + 1);
                let log_p: Vec<_> = best.iter().map(|c| log_p(c.logit)).collect();
                kept_by_rank(zipf_exponent(&log_p), self.mu, logits.len())
            }
            MirostatVersion::Two => {
                let within = |logit: &&f32| -log_p(**logit) <= self.mu * std::f64::consts::LN_2;
                logits.iter().filter(within).count()
            }
        };
        let kept = candidates.best_of(logits, count.max(1));
        kept.iter_mut().for_each(|c| c.logit = log_p(c.logit) as f32);
        kept
    }

    /// Moves the bound after a drawn token.
    pub fn update(&mut self, log_p: f32) {
        let surprise = -f64::from(log_p) / std::f64::consts::LN_2;
        self.mu -= f64::from(self.options.eta) * (surprise - f64::from(self.options.tau));
    }
}

/// Returns the exponent of Zipf's law that fits the most probable tokens by least squares.
fn zipf_exponent(log_p: &[f64]) -> f64 {
    let (mut products, mut squares) = (0.0, 0.0);
    for (rank, pair) in log_p.windows(2).enumerate() {
        let step = ((rank + 2) as f64 / (rank + 1) as f64).ln();
        products += step * (pair[0] - pair[1]);
        squares += step * step;
    }
    products / squares
}

/// Returns the number of tokens to keep for a surprise of `mu` bits, if the probabilities of `n`
/// tokens are proportional to `rank^-s`.
fn kept_by_rank(s: f64, mu: f64, n: usize) -> usize {
    let epsilon = s - 1.0;
    let total = match -(-epsilon * (n as f64).ln()).exp_m1() / epsilon {
        sum if sum.is_finite() => sum,
        _ => (n as f64).ln(),
    };
    // NaN if there is only one token; the caller keeps at least one.
    ((mu.exp2() / total).powf(1.0 / s) as usize).min(n)
}
