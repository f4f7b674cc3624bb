//! One step's walk: where everything lies, and how a thread does its share of each task.

mod experts;

use std::{ptr, sync::atomic::AtomicUsize};

use crate::{
    Result,
    backend::{
        Step,
        cpu::{
            kernels::{
                Kernels,
                attention::{self, Queries},
                product::Input,
                quantize::Activations,
                recurrent::{self, CONV_CHANNELS, Convolution, Delta, StatePlace},
                rope,
            },
            memory::{aligned::AlignedBytes, pages::Pages},
            program::{
                executable::{Memory, SlotPlace, layer_pages},
                experts::route,
                task::{BinaryOp, Buffer, Finish, GatedDelta, Product, Side, Task},
            },
            threads::pool::Worker,
            weights::{
                matrix::Matrix,
                prepare::{Prepared, Table},
            },
        },
    },
    graph::{AttentionSpec, ConvSpec, Rows},
    kv_cache::{CacheLayout, PageTable, StateId},
    quant::ROWS,
};

/// What all threads know of a step.
pub(crate) struct Walk<'a> {
    step: &'a Step<'a>,
    kernels: &'a Kernels,
    prepared: &'a Prepared,
    cache: &'a CacheLayout,
    slots: &'a [SlotPlace],
    memory: *mut f32,
    activations: &'a AlignedBytes,
    angles: Vec<(*mut f32, usize)>,
    scratch: &'a [AlignedBytes],
    partials: *mut f32,
    /// What layers of experts work in.
    experts: &'a AlignedBytes,
    /// For each run and key-value head, what [`Queries::done`] says.
    done: Vec<AtomicUsize>,
    runs: Vec<RunPlace>,
    /// The run of each token.
    run_of: Vec<usize>,
}

/// Where one run's tokens, cache pages and states lie.
struct RunPlace {
    first: usize,
    len: usize,
    start: usize,
    /// The first byte of each page, by group.
    pages: Vec<Vec<*mut u8>>,
    state: Option<StateBytes>,
}

/// Where the states of a run lie, those of all ops.
struct StateBytes {
    from: Option<*mut u8>,
    to: *mut u8,
    /// After how many of the run's tokens, and where.
    checkpoints: Vec<(usize, *mut u8)>,
}

// SAFETY: the pointers lead to memory that the executable owns; the threads divide it among themselves.
unsafe impl Sync for Walk<'_> {}

impl<'a> Walk<'a> {
    pub fn new(
        step: &'a Step<'a>,
        kernels: &'a Kernels,
        prepared: &'a Prepared,
        cache: &'a CacheLayout,
        (pages, states): (&[Pages], &Pages),
        memory: &'a mut Memory,
        slots: &'a [SlotPlace],
    ) -> Self {
        let tokens = memory.tokens;
        let angles = memory.angles.iter_mut().map(|table| (table.as_mut_ptr(), table.len() / tokens)).collect();
        let (mut runs, mut run_of) = (Vec::with_capacity(step.runs.len()), Vec::with_capacity(step.tokens.len()));
        for run in step.runs {
            let start = |(table, pages): (&PageTable, &Pages)| {
                let starts =
                    table.entries().iter().map(|page| page.map_or(ptr::null_mut(), |id| pages.start(id.index())));
                starts.collect()
            };
            let pages = run.pages.iter().zip(pages).map(start).collect();
            let place = |id: &StateId| states.start(id.index());
            let state = run.state.map(|state| StateBytes {
                from: state.from.as_ref().map(place),
                to: place(&state.to),
                checkpoints: state.checkpoints.iter().map(|(at, id)| (at - run.start, place(id))).collect(),
            });
            run_of.extend(std::iter::repeat_n(runs.len(), run.len));
            runs.push(RunPlace { first: run_of.len() - run.len, len: run.len, start: run.start, pages, state });
        }
        let kv_heads = cache.layers.iter().map(|layer| layer.kv_heads).max().unwrap_or(0);
        Self {
            step,
            kernels,
            prepared,
            cache,
            slots,
            memory: memory.slots.as_ptr().cast(),
            activations: &memory.activations,
            angles,
            scratch: &memory.scratch,
            partials: memory.partials.as_ptr().cast(),
            experts: &memory.experts,
            done: (0..runs.len() * kv_heads).map(|_| AtomicUsize::new(0)).collect(),
            runs,
            run_of,
        }
    }

    fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => self.step.tokens.len(),
            Rows::Outputs => self.step.outputs.len(),
        }
    }

    /// A row of a value.
    fn row(&self, buffer: Buffer, row: usize) -> *mut f32 {
        let SlotPlace { offset, stride } = self.slots[buffer.slot];
        self.memory.wrapping_add(offset + row * stride)
    }

    fn position(&self, token: usize) -> usize {
        let run = &self.runs[self.run_of[token]];
        run.start + token - run.first
    }

    /// The cosines and sines of a token in a table.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    unsafe fn angles(&self, index: usize, token: usize) -> &[f32] {
        let (table, width) = self.angles[index];
        // SAFETY: the table has a row for each token.
        unsafe { std::slice::from_raw_parts(table.add(token * width), width) }
    }

    /// The bytes of weights or cache that a task has to read.
    pub fn bytes_of(&self, task: &Task) -> usize {
        task.bytes(
            self.cache,
            self.runs.len(),
            |window| self.step.runs.iter().map(|run| run.sees(window)).sum(),
            |experts| self.active_experts(experts),
        )
    }

    /// Does this thread's share of a task, which is number `index` of the step.
    ///
    /// # Safety
    /// The step fits the memory, the cache pages and the tasks, and all threads are at the same task or at one that
    /// needs no barrier before it.
    pub unsafe fn perform(&self, index: usize, task: &Task, worker: Worker<'_>) -> Result<()> {
        let kernels = self.kernels;
        // SAFETY: rows are divided among the threads; widths are those that the plan's shapes promise.
        unsafe {
            match task {
                Task::Embed { table, out } => return self.embed(table, *out, worker),
                Task::Angles { frequencies, index } => {
                    let (table, width) = self.angles[*index];
                    for token in worker.share(self.step.tokens.len()) {
                        let out = std::slice::from_raw_parts_mut(table.add(token * width), width);
                        rope::angles(self.position(token), frequencies, out);
                    }
                }
                Task::Quantize { x } => {
                    let rows = self.rows(x.rows);
                    debug_assert!(Activations::bytes(rows, x.width) <= self.activations.len());
                    let to = Activations::new(self.activations, rows, x.width);
                    worker.share(rows).for_each(|row| (kernels.quantize)(self.row(*x, row), &to, row));
                }
                Task::Product(product) => self.product(index, product, worker),
                Task::Binary { op, a, b, out } => self.binary(*op, *a, b, *out, worker),
                Task::Activate { activation, x, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        (kernels.activate(*activation).alone)(self.row(*x, row), self.row(*out, row), out.width);
                    }
                }
                Task::SoftCap { cap, x, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        (kernels.soft_cap)(self.row(*x, row), *cap, self.row(*out, row), out.width);
                    }
                }
                Task::Slice { first, len, every, x, out } => self.slice([*first, *len, *every], *x, *out, worker),
                Task::RmsNorm { x, w, eps, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        let [x, out_row] = [self.row(*x, row), self.row(*out, row)];
                        for at in (0..out.width).step_by(w.len()) {
                            (kernels.rms_norm)(x.add(at), w.as_ptr(), *eps, out_row.add(at), w.len());
                        }
                    }
                }
                Task::AddRmsNorm { a, b, w, eps, sum, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        let sum = self.row(*sum, row);
                        (kernels.add)(self.row(*a, row), self.row(*b, row), sum, out.width);
                        (kernels.rms_norm)(sum, w.as_ptr(), *eps, self.row(*out, row), out.width);
                    }
                }
                Task::Rope { spec, x, angles, out } => {
                    for row in worker.share(self.rows(out.rows)) {
                        let angles = self.angles(*angles, row);
                        rope::rotate(*spec, self.row(*x, row), angles, self.row(*out, row), out.width);
                    }
                }
                Task::Route { used, logits, out } => {
                    let mut taken = Vec::with_capacity(*used);
                    for row in worker.share(self.rows(out.rows)) {
                        let logits = std::slice::from_raw_parts(self.row(*logits, row), out.width);
                        let out = std::slice::from_raw_parts_mut(self.row(*out, row), out.width);
                        route(logits, *used, &mut taken, out);
                    }
                }
                Task::Experts(stage, experts) => self.experts(index, *stage, experts, worker),
                Task::Append { spec, k, v } => self.append(spec, *k, *v, worker),
                Task::Attend { spec, q, out } => self.attend(index, spec, *q, *out, worker),
                Task::ShortConv { spec, x, w, out } => self.short_conv(index, spec, *x, w, *out, worker),
                Task::GatedDelta(delta) => self.gated_delta(index, delta, worker),
                Task::Select { x, out } => {
                    for row in worker.share(self.step.outputs.len()) {
                        let from = self.row(*x, self.step.outputs[row]);
                        self.row(*out, row).copy_from_nonoverlapping(from, out.width);
                    }
                }
            }
        }
        Ok(())
    }

    unsafe fn embed(&self, table: &Table, out: Buffer, worker: Worker<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for token in worker.share(self.step.tokens.len()) {
            // SAFETY: the row is this thread's alone.
            let row = unsafe { std::slice::from_raw_parts_mut(self.row(out, token), out.width) };
            self.prepared.read_row(table, self.step.tokens[token] as usize, &mut bytes, row)?;
        }
        Ok(())
    }

    unsafe fn slice(&self, [first, len, every]: [usize; 3], x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.rows(out.rows)) {
            for group in 0..out.width / len {
                // SAFETY: by the caller.
                unsafe {
                    let from = self.row(x, row).add(group * every + first);
                    self.row(out, row).add(group * len).copy_from_nonoverlapping(from, len);
                }
            }
        }
    }

    unsafe fn binary(&self, op: BinaryOp, a: Buffer, b: &Side, out: Buffer, worker: Worker<'_>) {
        let kernel = match op {
            BinaryOp::Add => self.kernels.add,
            BinaryOp::Mul => self.kernels.mul,
            BinaryOp::Div => self.kernels.div,
        };
        for row in worker.share(self.rows(out.rows)) {
            let b = match b {
                Side::Row(b) => b.as_ptr(),
                Side::Rows(b) => self.row(*b, row).cast_const(),
            };
            // SAFETY: by the caller.
            unsafe { kernel(self.row(a, row), b, self.row(out, row), out.width) };
        }
    }

    /// Groups of sixteen rows are divided among the threads, each with all tokens.
    unsafe fn product(&self, index: usize, task: &Product, worker: Worker<'_>) {
        let Product { x, matrices, finish, outs } = task;
        let tokens = self.rows(x.rows);
        // Plain floats have no room there.
        let columns = if matrices.iter().any(|matrix| matrix.is_quantized()) { x.width } else { 0 };
        let quantized = Activations::new(self.activations, tokens, columns);
        let input = Input { quantized, plain: self.row(*x, 0), stride: self.slots[x.slot].stride, tokens };
        let c: *mut f32 = self.scratch[worker.number].as_ptr().cast();
        // SAFETY: the scratch holds two results of sixteen rows; a group's results are this thread's alone.
        let each = |group| unsafe {
            let product = |matrix: &Matrix, group, c| (self.kernels.product)(matrix, group, &input, c);
            match finish {
                Finish::Store => {
                    let (number, group) = task.locate(group);
                    product(&matrices[number], group, c);
                    self.write(outs[number], group, c, tokens);
                }
                Finish::Add(residual) => {
                    product(&matrices[0], group, c);
                    self.add(*residual, outs[0], group, c, tokens);
                }
                Finish::Glu(activation) => {
                    let up = c.add(ROWS * tokens);
                    product(&matrices[0], group, c);
                    product(&matrices[1], group, up);
                    (self.kernels.activate(*activation).times)(c, up, c, ROWS * tokens);
                    self.write(outs[0], group, c, tokens);
                }
            }
        };
        worker.each_part(index, task.groups(), task.step(tokens), |groups| groups.for_each(each));
    }

    /// Copies a group's results `[tokens, 16]` to their columns.
    unsafe fn write(&self, out: Buffer, group: usize, c: *const f32, tokens: usize) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for token in 0..tokens {
            // SAFETY: by the caller.
            unsafe { self.row(out, token).add(first).copy_from_nonoverlapping(c.add(token * ROWS), len) };
        }
    }

    /// As `write`, adding them to `residual`, which may be `out`.
    unsafe fn add(&self, residual: Buffer, out: Buffer, group: usize, c: *const f32, tokens: usize) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for token in 0..tokens {
            // SAFETY: by the caller.
            unsafe {
                let [residual, out] = [self.row(residual, token).add(first), self.row(out, token).add(first)];
                (self.kernels.add)(residual, c.add(token * ROWS), out, len);
            }
        }
    }

    unsafe fn append(&self, spec: &AttentionSpec, k: Buffer, v: Buffer, worker: Worker<'_>) {
        for index in worker.share(self.step.tokens.len() * spec.kv_heads) {
            let (token, head) = (index / spec.kv_heads, index % spec.kv_heads);
            let run = &self.runs[self.run_of[token]];
            let layer = layer_pages(self.cache, spec.layer, &run.pages);
            // SAFETY: the run's pages hold its positions, each of which is one token's.
            unsafe {
                let rows = [k, v].map(|rows| self.row(rows, token).add(head * spec.head_dim).cast_const());
                (self.kernels.append)(&layer, head, self.position(token), rows);
            }
        }
    }

    /// Parts are divided among the threads, those of a run one after the other.
    unsafe fn attend(&self, index: usize, spec: &AttentionSpec, q: Buffer, out: Buffer, worker: Worker<'_>) {
        let scratch = self.scratch[worker.number].as_ptr().cast();
        // What all runs before each of them come to.
        let (mut places, mut parts, mut partials) = (Vec::with_capacity(self.runs.len()), 0, self.partials);
        for run in &self.runs {
            places.push((parts, partials));
            parts += attention::parts(*spec, run.start, run.len);
            partials = partials.wrapping_add(attention::partials_len(*spec, run.start, run.len));
        }
        let each = |part| {
            let number = places.partition_point(|(first, _)| *first <= part) - 1;
            let (run, (first, partials)) = (&self.runs[number], places[number]);
            let queries = Queries {
                spec: *spec,
                cache: layer_pages(self.cache, spec.layer, &run.pages),
                q: self.row(q, run.first),
                q_stride: self.slots[q.slot].stride,
                out: self.row(out, run.first),
                out_stride: self.slots[out.slot].stride,
                start: run.start,
                tokens: run.len,
                partials,
                done: &self.done[number * spec.kv_heads..][..spec.kv_heads],
            };
            // SAFETY: each part is one thread's, with a scratch of its own.
            unsafe { (self.kernels.attend)(&queries, part - first, scratch) };
        };
        worker.each_part(index, parts, 1, |parts| parts.for_each(each));
    }

    fn rows_from(&self, buffer: Buffer, first: usize) -> recurrent::Rows {
        recurrent::Rows { start: self.row(buffer, first), stride: self.slots[buffer.slot].stride }
    }

    /// Where a run has the state of the op with this number.
    fn state(&self, run: &RunPlace, number: usize) -> StatePlace {
        let place = |start: *mut u8| start.wrapping_add(self.cache.state_offsets[number]).cast::<f32>();
        let null = StatePlace { from: ptr::null(), to: ptr::null_mut(), checkpoints: Vec::new() };
        run.state.as_ref().map_or(null, |state| StatePlace {
            from: state.from.map_or(ptr::null(), |from| place(from).cast_const()),
            to: place(state.to),
            checkpoints: state.checkpoints.iter().map(|(tokens, to)| (*tokens, place(*to))).collect(),
        })
    }

    /// Channels are divided among the threads, each with all tokens of a run.
    unsafe fn short_conv(&self, index: usize, spec: &ConvSpec, x: Buffer, w: &[f32], out: Buffer, worker: Worker<'_>) {
        let parts = spec.channels.div_ceil(CONV_CHANNELS);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| Convolution {
                spec: *spec,
                x: self.rows_from(x, run.first),
                w,
                out: self.rows_from(out, run.first),
                tokens: run.len,
                state: self.state(run, spec.state),
            })
            .collect();
        // SAFETY: each part is one thread's.
        let each = |part: usize| unsafe { (self.kernels.short_conv)(&runs[part / parts], part % parts) };
        worker.each_part(index, runs.len() * parts, 1, |range| range.for_each(each));
    }

    /// Columns of heads are divided among the threads, each with all tokens of a run.
    unsafe fn gated_delta(&self, index: usize, delta: &GatedDelta, worker: Worker<'_>) {
        let parts = recurrent::delta_parts(&delta.spec);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| Delta {
                spec: delta.spec,
                qkv: self.rows_from(delta.qkv, run.first),
                alpha: self.rows_from(delta.alpha, run.first),
                beta: self.rows_from(delta.beta, run.first),
                a: &delta.a,
                dt: &delta.dt,
                out: self.rows_from(delta.out, run.first),
                tokens: run.len,
                state: self.state(run, delta.spec.state),
            })
            .collect();
        // SAFETY: each part is one thread's.
        let each = |part: usize| unsafe { (self.kernels.gated_delta)(&runs[part / parts], part % parts) };
        worker.each_part(index, runs.len() * parts, 1, |range| range.for_each(each));
    }
}
