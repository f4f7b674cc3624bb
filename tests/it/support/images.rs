//! Interprets the ops that image encoders need with plain loops in f64, and the parts of a step
//! that belong to images.

use std::ops::Range;

use inkstone::internals::graph::{AttentionSpec, RopeAxes, Sees, Window};

use super::interpret::{Matrix, Step};

impl Step {
    /// Returns the positions that the token of a row sees.
    pub fn seen(&self, spec: &AttentionSpec, row: usize, position: usize) -> Range<usize> {
        let mut first = 0;
        let run = self.runs.iter().find(|run| {
            let found = row < first + run.len;
            first += if found { 0 } else { run.len };
            found
        });
        let run = run.expect("each row belongs to a run");
        let token = row - first;
        let span = run.spans.iter().find(|span| span.contains(&token));
        let end = |token: usize| run.start + token;
        let left = match spec.scores.window {
            None => 0,
            Some(Window::Sliding(size)) => (position + 1).saturating_sub(size),
            Some(Window::Chunk(size)) => position / size * size,
        };
        match (spec.scores.sees, span) {
            (Sees::Run, _) => run.start..end(run.len),
            (Sees::Span, Some(span)) => end(span.start)..end(span.end),
            (Sees::Span, None) => position..position + 1,
            (Sees::PastAndSpan, Some(span)) => left..end(span.end),
            (Sees::PastAndSpan, None) | (Sees::Past, _) => left..position + 1,
        }
    }

    /// Returns the rotary positions of each token.
    pub fn rotary_positions(&self) -> Vec<[u32; 3]> {
        let of_run = |run: &super::interpret::Run| match run.rotary.as_slice() {
            [] => (run.start..run.start + run.len).map(|position| [position as u32; 3]).collect(),
            given => given.to_vec(),
        };
        self.runs.iter().flat_map(of_run).collect()
    }
}

/// Returns the position that turns a pair.
pub fn position(axes: RopeAxes, pair: usize, positions: [u32; 3]) -> f64 {
    let axis = match axes {
        RopeAxes::First => 0,
        RopeAxes::Sections(pairs) => {
            let owners: Vec<_> = (0..3).flat_map(|axis| vec![axis; usize::from(pairs[axis])]).collect();
            owners[pair]
        }
        RopeAxes::Interleaved([_, second, third]) => match pair % 3 {
            1 if pair < 3 * usize::from(second) => 1,
            2 if pair < 3 * usize::from(third) => 2,
            _ => 0,
        },
    };
    f64::from(positions[axis])
}

/// Returns the error function: its series near 0, and the continued fraction of its complement.
pub fn erf(x: f64) -> f64 {
    let root = std::f64::consts::PI.sqrt();
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 2.0 / root * sum;
    }
    let fraction = (1..60).rev().fold(x.abs(), |below, n| x.abs() + f64::from(n) / 2.0 / below);
    (1.0 - (-x * x).exp() / root / fraction).copysign(x)
}

pub fn concat(operands: &[Matrix], groups: usize) -> Matrix {
    let rows = operands[0].rows;
    let group = |x: &Matrix, index: usize| x.data[x.width / groups * index..][..x.width / groups].to_vec();
    let data = (0..rows * groups).flat_map(|index| operands.iter().flat_map(move |x| group(x, index))).collect();
    Matrix::new(rows, operands.iter().map(|x| x.width).sum(), data)
}

pub fn layer_norm(x: &Matrix, [w, b]: [&Matrix; 2], eps: f32, groups: usize) -> Matrix {
    let len = x.width / groups;
    let normed = |index: usize| {
        let first = index % groups * len;
        let row = &x.data[index * len..][..len];
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let root = (variance + f64::from(eps)).sqrt();
        let affine = |(x, (w, b)): (&f64, (&f64, &f64))| (x - mean) / root * w + b;
        row.iter().zip(w.data[first..].iter().zip(&b.data[first..])).map(affine).collect::<Vec<_>>()
    };
    Matrix::new(x.rows, x.width, (0..x.rows * groups).flat_map(normed).collect())
}

pub fn join_rows(x: &Matrix, count: usize, step: &Step) -> Matrix {
    let rows = step.outputs.iter().flat_map(|first| (*first..first + count).flat_map(|row| x.row(row).to_vec()));
    Matrix::new(step.outputs.len(), count * x.width, rows.collect())
}

pub fn input_rows(width: usize, step: &Step) -> Matrix {
    let zeros = Matrix::new(step.tokens.len(), width, vec![0.0; step.tokens.len() * width]);
    mix_rows(&zeros, 0, step, |_, given| given)
}

/// Returns `x` with `mix(element, given element)` in the rows of tokens that the step gives rows
/// for.
pub fn mix_rows(x: &Matrix, first: usize, step: &Step, mix: impl Fn(f64, f64) -> f64) -> Matrix {
    let mut mixed = x.clone();
    for (token, given) in &step.rows {
        let row = &mut mixed.data[token * x.width..][..x.width];
        row.iter_mut().zip(&given[first..]).for_each(|(x, given)| *x = mix(*x, f64::from(*given)));
    }
    mixed
}

/// Returns `x` with elements of the rows that the step gives in the place of its own; if `marked`,
/// only of rows whose element before these is not 0.
pub fn place_rows(x: &Matrix, first: usize, marked: bool, step: &Step) -> Matrix {
    let rows = step.rows.iter().filter(|(_, given)| !marked || given[first - 1] != 0.0);
    let placed = Step { rows: rows.cloned().collect(), ..step.clone() };
    mix_rows(x, first, &placed, |_, given| given)
}

pub fn interpolate(table: &Matrix, taps: usize, step: &Step) -> Matrix {
    let sum = |taps: &[(u32, f32); 4]| {
        let part = |column: usize| {
            taps.iter().map(|(row, weight)| f64::from(*weight) * table.row(*row as usize)[column]).sum::<f64>()
        };
        (0..table.width).map(part).collect::<Vec<_>>()
    };
    Matrix::new(step.tokens.len(), table.width, step.taps[taps].iter().flat_map(sum).collect())
}
