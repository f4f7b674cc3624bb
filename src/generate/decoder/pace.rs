//! Bounds the pieces of prompts in steps that also decode, by the measured times of steps.

use std::time::Duration;

/// The largest ratio of the time of a step with pieces of prompts to the time of its other tokens
/// alone.
const LONGEST: f64 = 1.5;
/// Number of prompt tokens in a step before the times of steps are known.
const FIRST_PIECE: usize = 8;
/// Number of steps without a text's tokens after which none is expected.
const PAUSE: usize = 4;
/// The weight of a new measurement.
const WEIGHT: f64 = 0.2;

/// The times of steps that several calls share, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The time of a step without pieces of prompts.
    decode: Option<f64>,
    /// The time of a prompt token in a step that also decodes.
    prompt_token: Option<f64>,
    /// Number of steps since the last one that decodes.
    since_decode: usize,
}

impl Pace {
    /// Returns the number of prompt tokens that lengthen a step at most by half.
    pub fn piece(&self) -> usize {
        match (self.decode, self.prompt_token) {
            (Some(decode), Some(token)) if token > 0.0 => (((LONGEST - 1.0) * decode / token) as usize).max(1),
            _ => FIRST_PIECE,
        }
    }

    /// Returns whether a text is likely to want the next step, or the one after it.
    pub fn decodes(&self) -> bool {
        self.decode.is_some() && self.since_decode < PAUSE
    }

    /// Takes note of a step with tokens of prompts alone.
    pub fn record_prompt(&mut self) {
        self.since_decode += 1;
    }

    /// Takes the time of a step that decodes, with `prompt` tokens of prompts beside.
    pub fn record(&mut self, prompt: usize, time: Duration) {
        self.since_decode = 0;
        let time = time.as_secs_f64();
        match (prompt, self.decode) {
            (0, _) => average(&mut self.decode, time),
            (_, Some(decode)) => average(&mut self.prompt_token, (time - decode).max(0.05 * decode) / prompt as f64),
            (_, None) => {}
        }
    }
}

fn average(known: &mut Option<f64>, new: f64) {
    *known = Some(known.map_or(new, |old| old + WEIGHT * (new.min(2.0 * old) - old)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lengthen_a_step_by_half() {
        let mut pace = Pace::default();
        assert_eq!(pace.piece(), FIRST_PIECE);
        let time = |prompt: usize| Duration::from_micros(10_000 + 250 * prompt as u64);
        for _ in 0..100 {
            pace.record(0, time(0));
            let piece = pace.piece();
            pace.record(piece, time(piece));
        }
        assert!((19..=20).contains(&pace.piece()), "{}", pace.piece());
        // A device that takes as long for more tokens has no reason to wait with them.
        (0..100).for_each(|_| pace.record(50, time(0)));
        assert!(pace.piece() > 400, "{}", pace.piece());
        // A prompt goes on however slow it is.
        (0..100).for_each(|_| pace.record(1, Duration::from_secs(1)));
        assert_eq!(pace.piece(), 1);
    }
}
