//! One case of the table: what to run, and how near the result must be to plain loops in f64.

use inkstone::{
    CacheType, DType,
    internals::{
        backend::Backend,
        graph::{Builder, Graph, ValueId},
        quant,
    },
};

use crate::support::{
    drive::{self, Driver, Tensor, dense, label, packed},
    graphs::Random,
    interpret::{Interpreter, Matrix, Run, Step},
    quantize::quantize,
};

/// A relative error of a millionth: what sums in single precision leave.
pub const SINGLE: f64 = 1e-12;

/// What it costs that matrix units multiply in half precision.
const HALVES: f64 = 4e-6;

/// A graph, what it reads, and how near the result must be.
pub struct Case {
    pub name: String,
    pub graph: Graph,
    pub tensors: Vec<Tensor>,
    pub cache_type: CacheType,
    pub steps: Vec<Step>,
    /// The most that the squared error of a step's logits may be, as a share of their squares. A
    /// single logit may be off by eight times the root of that share, times the root mean square.
    pub nmse: f64,
}

impl Case {
    /// The logits of every step, in f64.
    fn expected(&self) -> Vec<Matrix> {
        let weights = dense(&self.tensors);
        let mut interpreter = Interpreter::new(&weights);
        self.steps.iter().map(|step| interpreter.run(&self.graph, step)).collect()
    }

    fn bounds(&self) -> [usize; 2] {
        let most = |count: fn(&Step) -> usize| self.steps.iter().map(count).max().expect("a case has steps");
        [most(|step| step.tokens.len()), most(|step| step.outputs.len())]
    }

    /// Runs the case on every backend and holds it against the interpreter; what fails, by backend.
    pub fn failures(&self) -> Vec<String> {
        let expected = self.expected();
        let run = |backend: Box<dyn Backend>| {
            let result = self.check_on(&*backend, &expected);
            result.map_err(|what| format!("{} on {}: {what}", self.name, label(&*backend))).err()
        };
        drive::backends().into_iter().filter_map(run).collect()
    }

    #[cfg(any(feature = "wgpu", feature = "metal"))]
    /// What fails on one backend.
    pub fn failure_on(&self, backend: &dyn Backend) -> Option<String> {
        self.check_on(backend, &self.expected()).map_err(|what| format!("{}: {what}", self.name)).err()
    }

    /// Runs steps of several tokens, and returns the first difference between the bits of a token's
    /// logits there and in a step of its own.
    pub fn difference_in_company(&self, backend: &dyn Backend, lengths: &[usize]) -> Option<String> {
        let weights = packed(&self.tensors);
        let most = lengths.iter().copied().max().unwrap_or(1);
        let mut driver = Driver::new(backend, &self.graph, &weights, self.cache_type, [most; 2]).expect("a driver");
        let mut bits = |tokens: Vec<u32>| -> Vec<u32> {
            let (runs, outputs) = (vec![Run::new(0, 0, tokens.len())], (0..tokens.len()).collect());
            let logits = driver.run(&Step { tokens, runs, outputs, ..Step::default() }).expect("logits");
            logits.iter().map(|logit| logit.to_bits()).collect()
        };
        let alone: Vec<_> = (0..most as u32).map(|token| bits(vec![token])).collect();
        for len in lengths {
            let together = bits((0..*len as u32).rev().collect());
            let expected = alone[..*len].iter().rev();
            let rows = together.chunks_exact(alone[0].len());
            if let Some(row) = rows.zip(expected).position(|(found, expected)| found != expected) {
                return Some(format!("{} on {}: row {row} of {len}", self.name, label(backend)));
            }
        }
        None
    }

    /// Returns the largest squared error of a step's logits on a backend, as a share of their
    /// squares.
    pub fn error_on(&self, backend: &dyn Backend) -> f64 {
        let weights = packed(&self.tensors);
        let mut driver = Driver::new(backend, &self.graph, &weights, self.cache_type, self.bounds()).expect("a driver");
        let steps = self.steps.iter().zip(self.expected()).map(|(step, expected)| {
            let found = driver.run(step).expect("logits");
            let errors = found.iter().zip(&expected.data).map(|(found, expected)| f64::from(*found) - expected);
            errors.map(|error| error * error).sum::<f64>() / power(&expected)
        });
        steps.fold(0.0, f64::max)
    }

    /// Returns whether kernels of many tokens compute a step. For encoders and spans there are no
    /// other kernels.
    fn is_long(&self, step: &Step) -> bool {
        let attention = self.graph.nodes().iter().filter_map(|node| node.op.properties().attention);
        step.tokens.len() > drive::FEW
            || step.runs.iter().any(|run| !run.spans.is_empty())
            || attention.into_iter().any(|spec| spec.scores.sees.only_the_step())
    }

    fn check_on(&self, backend: &dyn Backend, expected: &[Matrix]) -> Result<(), String> {
        if let Some(op) = self.graph.nodes().iter().filter_map(|node| node.op.fused()).find(|op| !backend.supports(op))
        {
            eprintln!("skipped: {}, because {} has no {}", self.name, label(backend), op.name());
            return Ok(());
        }
        let weights = packed(&self.tensors);
        let mut driver = Driver::new(backend, &self.graph, &weights, self.cache_type, self.bounds())
            .map_err(|e| format!("does not compile: {e}"))?;
        for (index, (step, expected)) in self.steps.iter().zip(expected).enumerate() {
            let found = driver.run(step).map_err(|e| e.to_string());
            let in_halves = drive::has_halves(backend) && self.is_long(step);
            let nmse = if in_halves { self.nmse.max(HALVES) } else { self.nmse };
            let result = found.and_then(|found| compare(&found, expected, nmse));
            result.map_err(|what| format!("step {index} of {} tokens: {what}", step.tokens.len()))?;
        }
        Ok(())
    }
}

fn power(expected: &Matrix) -> f64 {
    expected.data.iter().map(|x| x * x).sum()
}

/// What is wrong where `found` is too far from `expected`; [`Case::nmse`] says when it is.
pub fn compare(found: &[f32], expected: &Matrix, nmse: f64) -> Result<(), String> {
    if found.len() != expected.data.len() {
        return Err(format!("{} logits instead of {}", found.len(), expected.data.len()));
    }
    let power = power(expected);
    let errors = found.iter().zip(&expected.data).map(|(found, expected)| (f64::from(*found) - expected).abs());
    let limit = 8.0 * (nmse * power / found.len().max(1) as f64).sqrt();
    let share = errors.clone().map(|error| error * error).sum::<f64>() / power.max(f64::MIN_POSITIVE);
    if let Some(index) = errors.clone().position(|error| error.is_nan() || error > limit) {
        let (row, column) = (index / expected.width, index % expected.width);
        let [found, expected] = [f64::from(found[index]), expected.data[index]];
        return Err(format!("row {row}, column {column} is {found}, not {expected} (an NMSE of {share:e} in all)"));
    }
    if share <= nmse { Ok(()) } else { Err(format!("an NMSE of {share:e} instead of {nmse:e}")) }
}

/// A graph in the making, with the tensors that it names.
pub struct Maker {
    pub b: Builder,
    pub random: Random,
    tensors: Vec<Tensor>,
    tokens: ValueId,
}

impl Maker {
    pub fn new(seed: u64) -> Self {
        let mut b = Builder::new();
        let tokens = b.tokens();
        Self { b, random: Random::new(seed), tensors: Vec::new(), tokens }
    }

    /// A weight of these bytes.
    pub fn weight(&mut self, dtype: DType, rows: usize, columns: usize, bytes: Vec<u8>) -> ValueId {
        let name = format!("weight{}", self.tensors.len());
        let id = self.b.weight(&name, dtype, rows, columns);
        self.tensors.push(Tensor { name, dtype, rows, columns, bytes });
        id
    }

    /// A weight of blocks with random bytes, so that every code and scale occurs.
    pub fn random_weight(&mut self, dtype: DType, rows: usize, columns: usize) -> ValueId {
        let bytes = random_blocks(dtype, rows * columns, &mut self.random);
        self.weight(dtype, rows, columns, bytes)
    }

    /// A weight in single precision.
    pub fn floats(&mut self, columns: usize, elements: &[f32]) -> ValueId {
        self.weight(DType::F32, elements.len() / columns, columns, quantize(DType::F32, elements))
    }

    /// Activations: the rows of a table of `elements` that the tokens choose.
    pub fn rows_of(&mut self, columns: usize, elements: &[f32]) -> ValueId {
        let table = self.floats(columns, elements);
        self.embed(table)
    }

    pub fn embed(&mut self, table: ValueId) -> ValueId {
        self.b.embed(table, self.tokens)
    }

    /// Activations from the normal distribution.
    pub fn normal_rows(&mut self, columns: usize, vocabulary: usize) -> ValueId {
        let elements = normal(vocabulary * columns, &mut self.random);
        self.rows_of(columns, &elements)
    }

    /// Activations that 8 bits represent exactly, in every 32 columns: integers up to 127, which is
    /// among them, times a power of two.
    pub fn exact_rows(&mut self, columns: usize, vocabulary: usize) -> ValueId {
        let elements = exact(vocabulary, columns, &mut self.random);
        self.rows_of(columns, &elements)
    }

    /// The case whose logits are `result`.
    pub fn finish(self, name: impl Into<String>, result: ValueId, steps: Vec<Step>, nmse: f64) -> Case {
        let name = name.into();
        let graph = self.b.finish(result).unwrap_or_else(|e| panic!("{name}: {e}"));
        Case { name, graph, tensors: self.tensors, cache_type: CacheType::F32, steps, nmse }
    }
}

/// One step for each of these numbers of tokens, all of whose results are wanted.
pub fn steps_of(lengths: &[usize], vocabulary: usize) -> Vec<Step> {
    let step = |(index, &len): (usize, &usize)| Step {
        tokens: (0..len).map(|i| ((i + 5 * index) % vocabulary) as u32).collect(),
        runs: vec![Run::new(0, 0, len)],
        outputs: (0..len).collect(),
        ..Step::default()
    };
    lengths.iter().enumerate().map(step).collect()
}

/// A step of runs `(sequence, start, len)`, all of whose results are wanted. A token is `sequence *
/// 31 + position`.
pub fn ragged(runs: &[(usize, usize, usize)], vocabulary: usize) -> Step {
    let runs: Vec<_> = runs.iter().map(|&(sequence, start, len)| Run::new(sequence, start, len)).collect();
    let token = |sequence: usize, position: usize| ((sequence * 31 + position) % vocabulary) as u32;
    let tokens: Vec<_> =
        runs.iter().flat_map(|run| (run.start..run.start + run.len).map(|p| token(run.sequence, p))).collect();
    let outputs = (0..tokens.len()).collect();
    Step { tokens, runs, outputs, ..Step::default() }
}

/// Numbers of the normal distribution.
pub fn normal(count: usize, random: &mut Random) -> Vec<f32> {
    // The sum of twelve uniform numbers has variance 1 and is near enough.
    (0..count).map(|_| (0..12).map(|_| random.between(-0.5, 0.5)).sum()).collect()
}

fn exact(rows: usize, columns: usize, random: &mut Random) -> Vec<f32> {
    let mut elements = Vec::with_capacity(rows * columns);
    for _ in 0..rows {
        for first in (0..columns).step_by(32) {
            let len = 32.min(columns - first);
            let unit = [1.0 / 128.0, 1.0 / 64.0, 1.0 / 32.0][random.below(3)];
            let peak = random.below(len);
            for i in 0..len {
                let code = if i == peak { [127.0, -127.0][random.below(2)] } else { random.below(255) as f32 - 127.0 };
                elements.push(code * unit);
            }
        }
    }
    elements
}

/// Blocks of `dtype` with random bytes, but with scales of about 2^-8; numbers of the normal
/// distribution in the plain formats.
fn random_blocks(dtype: DType, count: usize, random: &mut Random) -> Vec<u8> {
    if dtype.is_float() {
        return quantize(dtype, &normal(count, random));
    }
    let mut bytes = Vec::new();
    for _ in 0..count / dtype.block_weights() {
        for (index, &field) in quant::format(dtype).fields.iter().enumerate() {
            match (dtype, field, index) {
                (DType::MXFP4, 1, 0) => bytes.push(116 + random.below(8) as u8),
                (DType::NVFP4, 4, 0) => bytes.extend((0..4).map(|_| 4 + random.below(12) as u8)),
                // The last field of IQ1_M has four bits of the scale in each of four pairs.
                (DType::IQ1_M, 8, 2) => {
                    let scale = half::f16::from_f32(random.between(0.5, 2.0) / 256.0).to_bits();
                    let pair = |i: usize| (random.below(4096) as u16 | ((scale >> (4 * i)) << 12)).to_le_bytes();
                    bytes.extend((0..4).flat_map(pair));
                }
                // The second field of IQ4_XS holds bits of its scales.
                (_, 2, _) if !(dtype == DType::IQ4_XS && index == 1) => {
                    let scale = random.between(0.5, 2.0) / 256.0 * [1.0, -1.0][random.below(2)];
                    bytes.extend(half::f16::from_f32(scale).to_le_bytes());
                }
                _ => bytes.extend((0..field).map(|_| random.below(256) as u8)),
            }
        }
    }
    bytes
}
