//! Measures decoding with drafts, and in turn without.

use std::{
    io::{self, Write},
    time::Instant,
};

use inkstone::{Drafter, GenerateOptions, Result, Runner, SamplerOptions, Speculation, SpeculationSummary};

use crate::{common::Failure, median};

/// The largest number of texts that are generated before drafts are measured.
const MAX_WARM_UPS: usize = 20;

/// The sizes of the measurement, and the drafts.
pub struct Drafts {
    /// Tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Tokens to generate.
    pub tokens: usize,
    /// Number of rounds.
    pub reps: usize,
    pub speculation: Speculation,
    /// The share of drafted tokens to be accepted, by a drafter that knows the text; `None` for the
    /// model's own drafters.
    pub accepted: Option<f64>,
}

/// Drafts a known text, and spoils some of it.
struct Known {
    prompt: usize,
    text: Vec<u32>,
    accepted: f64,
    random: u64,
}

impl Drafter for Known {
    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        let rest = self.text.get(ids.len() - self.prompt..).unwrap_or_default();
        for &id in rest.iter().take(max) {
            // Knuth's linear congruential generator.
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let is_right = ((self.random >> 40) as f64) < self.accepted * f64::from(1 << 24);
            draft.push(if is_right { id } else { id ^ 1 });
        }
        Ok(())
    }
}

impl Drafts {
    /// Measures the model, and prints the result.
    pub fn measure(&self, runner: &mut Runner, json: bool) -> Result<(), Failure> {
        let (mut with, mut without, mut drafts, mut text) = (vec![], vec![], SpeculationSummary::default(), vec![]);
        for rep in 0..=self.reps {
            let (plain, ids, _) = self.generate(runner, Speculation::Off, &text)?;
            text = ids;
            let (drafted, ids, summary) = self.generate(runner, self.speculation, &text)?;
            if rep == 0 && summary.steps == 0 {
                self.warm_up(runner, &text)?;
            }
            if ids != text {
                return Err("the text with drafts is another one: this is a bug of inkstone".into());
            }
            if rep > 0 {
                without.push(plain);
                with.push(drafted);
                drafts = summary;
            }
        }
        let [with, without] = [median(&with), median(&without)];
        let SpeculationSummary { steps, drafted, accepted, off, .. } = &drafts;
        let per_step = drafts.tokens_per_step();
        let mut out = io::stdout();
        if json {
            writeln!(
                out,
                "{{\"plain_tok_s\":{without:.2},\"tok_s\":{with:.2},\"steps\":{steps},\"drafted\":{drafted},\
                 \"accepted\":{accepted},\"tokens_per_step\":{per_step:.2}}}"
            )?;
            return Ok(());
        }
        writeln!(out, "without drafts  {without:.2} tokens/s")?;
        writeln!(out, "with drafts     {with:.2} tokens/s, {:.2} times as fast", with / without)?;
        writeln!(out, "accepted        {accepted} of {drafted} drafts, {per_step:.2} tokens in each of {steps} steps")?;
        writeln!(out, "by position     {:?} of {:?}", drafts.accepted_by_position, drafts.drafted_by_position)?;
        writeln!(out, "drafting        {:?}; steps with drafts {:?}", drafts.drafting, drafts.verifying)?;
        if let Some(why) = off {
            writeln!(out, "no drafts       {why}")?;
        }
        Ok(())
    }

    /// Generates texts until one has drafts: GPUs compile the kernels for them in the background.
    fn warm_up(&self, runner: &mut Runner, text: &[u32]) -> Result<(), Failure> {
        for _ in 0..MAX_WARM_UPS {
            let (_, _, summary) = self.generate(runner, self.speculation, text)?;
            if summary.steps > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the rate in tokens per second, the ids and the statistics of a text.
    fn generate(
        &self,
        runner: &mut Runner,
        speculation: Speculation,
        text: &[u32],
    ) -> Result<(f64, Vec<u32>, SpeculationSummary), Failure> {
        runner.reset();
        let options = GenerateOptions {
            sampler: SamplerOptions::greedy(),
            max_tokens: Some(self.tokens),
            speculation,
            ..Default::default()
        };
        let mut generation = runner.generate(&self.prompt[..], &options)?.past_the_end();
        if let Some(accepted) = self.accepted {
            generation =
                generation.with_drafter(Known { prompt: self.prompt.len(), text: text.to_vec(), accepted, random: 1 });
        }
        generation.prefill(|_, _| true)?;
        let started = Instant::now();
        generation.by_ref().try_for_each(|piece| piece.map(drop))?;
        let rate = generation.ids().len() as f64 / started.elapsed().as_secs_f64();
        Ok((rate, generation.ids().to_vec(), generation.summary().speculation.clone()))
    }
}
