//! Holds an open device: its queue, its capabilities, and the pipelines compiled so far.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use super::templates::Templates;
use crate::{
    Error, Result,
    profile::{FEW_ROWS, GpuProfile, MAX_UNSPLIT},
};

/// The time between two questions whether a mapping is delivered.
const MAPPING_POLL: Duration = Duration::from_millis(1);
/// The longest time that the delivery of a mapping may take after its step.
const MAPPING_TIMEOUT: Duration = Duration::from_secs(60);

/// The properties of an adapter that kernels depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// Whether software emulates the GPU.
    pub software: bool,
    /// The smallest subgroup in invocations; `None` if kernels must not use subgroup operations.
    pub subgroup: Option<u32>,
    /// Whether subgroups have matrix units: products of 16 by 16 matrices of f16 with f32 sums.
    pub matrices: bool,
    /// Largest number of invocations in a workgroup.
    pub workgroup: u32,
    /// Bytes of a workgroup's memory.
    pub workgroup_bytes: u32,
    /// Largest number of storage buffers that a kernel binds.
    pub storage_buffers: u32,
    /// Largest size in bytes of a binding: the range of a buffer that a kernel sees.
    pub binding_bytes: u64,
    /// Largest size in bytes of a buffer.
    pub buffer_bytes: u64,
    /// Alignment in bytes of the offset of a binding.
    pub alignment: u64,
    /// Whether kernels can be timed.
    pub timestamps: bool,
    /// The choices that a profile can make.
    pub choices: GpuChoices,
}

/// Choices between kernels, which change the speed of executables.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuChoices {
    /// The largest number of rows of each kernel for products of up to [`FEW_ROWS`] rows; numbers
    /// that repeat have one kernel.
    pub row_counts: [usize; 5],
    /// The largest number of rows of the activations for each tile of matrix units but the last.
    pub tile_rows: [usize; 3],
    /// Largest number of cached positions that a single workgroup attends to for one token. The
    /// positions of longer sequences are split among several workgroups: for them, a dispatch that
    /// merges the results takes less time than it saves.
    pub unsplit_positions: usize,
}

impl GpuChoices {
    /// The choices without a profile.
    pub const DEFAULT: Self =
        Self { row_counts: [1, 2, 4, 8, FEW_ROWS], tile_rows: [32, 64, 256], unsplit_positions: MAX_UNSPLIT };

    /// Makes the choices of a profile.
    pub fn new(profile: &GpuProfile) -> Self {
        let mut choices = Self::DEFAULT;
        if !profile.row_counts.is_empty() {
            let counts = profile.row_counts.iter().copied().chain(std::iter::repeat(FEW_ROWS));
            choices.row_counts.iter_mut().zip(counts).for_each(|(choice, count)| *choice = count);
        }
        if let [small, middle, large] = *profile.tile_rows {
            choices.tile_rows = [small, middle, large];
        }
        choices.unsplit_positions = profile.unsplit_positions.unwrap_or(choices.unsplit_positions);
        choices
    }
}

impl Default for GpuChoices {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An open device.
pub(super) struct Context {
    pub name: String,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub traits: Traits,
    pub templates: Arc<Templates>,
    pipelines: Arc<Mutex<PipelinesBySource>>,
    /// The first error that the driver reported outside of a call.
    failure: Arc<Mutex<Option<String>>>,
}

/// The pipeline of each source, locked while it is compiled.
type PipelinesBySource = HashMap<String, Arc<Mutex<Option<Pipeline>>>>;

/// A compiled kernel, and the layout of its bind group.
#[derive(Clone)]
pub(super) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

impl Context {
    pub fn new(name: String, device: wgpu::Device, queue: wgpu::Queue, traits: Traits) -> Result<Self> {
        let failure = Arc::new(Mutex::new(None));
        let note = |failure: &Arc<Mutex<Option<String>>>, what: String| {
            lock(failure).get_or_insert(what);
        };
        let lost = failure.clone();
        device.set_device_lost_callback(move |reason, what| {
            note(&lost, format!("the device was lost ({reason:?}): {what}"))
        });
        let uncaptured = failure.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(&uncaptured, error.to_string())));
        let (templates, pipelines) = (Arc::new(Templates::new()?), Arc::default());
        Ok(Self { name, device, queue, traits, templates, pipelines, failure })
    }

    /// Returns a context of the same device, with the same pipelines, for executables with other
    /// choices.
    pub fn with_choices(&self, choices: GpuChoices) -> Self {
        Self {
            name: self.name.clone(),
            device: self.device.clone(),
            queue: self.queue.clone(),
            traits: Traits { choices, ..self.traits },
            templates: self.templates.clone(),
            pipelines: self.pipelines.clone(),
            failure: self.failure.clone(),
        }
    }

    /// Returns the pipeline of a source, which is compiled at its first use. `writes` says for each
    /// binding, in order, whether the kernel writes it.
    pub fn pipeline(&self, label: &str, source: &str, writes: &[bool]) -> Result<Pipeline> {
        let place = lock(&self.pipelines).entry(source.into()).or_default().clone();
        let mut place = lock(&place);
        if let Some(pipeline) = &*place {
            return Ok(pipeline.clone());
        }
        let pipeline = self.validated(|device| make_pipeline(device, label, source, writes))?;
        Ok(place.insert(pipeline).clone())
    }

    /// Allocates a buffer of zeros.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] if the device has too little memory for `bytes` bytes.
    pub fn buffer(&self, what: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        let size = bytes.next_multiple_of(16).max(16);
        let too_large = || Error::DeviceMemory { device: self.name.clone(), what: what.into(), needed: size };
        if size > self.traits.buffer_bytes {
            return Err(too_large());
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size,
            usage,
            mapped_at_creation: false,
        });
        match pollster::block_on(scope.pop()) {
            Some(_) => Err(too_large()),
            None => Ok(buffer),
        }
    }

    /// Calls `act` with the device, and returns the validation error of its calls, if there is one.
    pub fn validated<T>(&self, act: impl FnOnce(&wgpu::Device) -> T) -> Result<T> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let result = act(&self.device);
        match pollster::block_on(scope.pop()) {
            Some(error) => Err(self.error(error.to_string())),
            None => self.check().map(|()| result),
        }
    }

    /// Waits until the device has finished all submitted work.
    pub fn wait(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Waits until the device has finished a submission and all earlier ones.
    pub fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    fn poll(&self, until: wgpu::PollType) -> Result<()> {
        let polled = self.device.poll(until);
        polled.map_err(|error| self.error(error.to_string()))?;
        self.check()
    }

    /// Waits for the result of a mapping whose step the device has finished.
    ///
    /// The wait for the step usually delivers it. It can come later, for example if another thread
    /// that uses the device delivers it.
    ///
    /// # Errors
    /// [`Error::Device`] if the mapping failed or is not delivered within a minute.
    pub fn finish_mapping(&self, mapped: &Receiver<Result<(), wgpu::BufferAsyncError>>) -> Result<()> {
        let started = Instant::now();
        loop {
            match mapped.recv_timeout(MAPPING_POLL) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => return Err(self.error(error.to_string())),
                Err(RecvTimeoutError::Timeout) if started.elapsed() < MAPPING_TIMEOUT => self.wait()?,
                Err(error) => return Err(self.error(error.to_string())),
            }
        }
    }

    /// Returns the first error that the driver reported outside of a call, such as a lost device.
    pub fn check(&self) -> Result<()> {
        match &*lock(&self.failure) {
            Some(what) => Err(self.error(what.clone())),
            None => Ok(()),
        }
    }

    pub fn error(&self, what: String) -> Error {
        Error::Device { device: self.name.clone(), what }
    }
}

fn make_pipeline(device: &wgpu::Device, label: &str, source: &str, writes: &[bool]) -> Pipeline {
    let entries: Vec<_> = (0u32..).zip(writes).map(|(binding, writes)| entry(binding, *writes)).collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(label), entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(label),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let module = wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(source.into()) };
    // SAFETY: kernels stay within their buffers: their loops are bounded by the shapes in their
    // parameters, and token ids and pages are checked before each step. The tests of all ops run
    // the same kernels.
    let module = unsafe { device.create_shader_module_trusted(module, wgpu::ShaderRuntimeChecks::unchecked()) };
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    Pipeline { pipeline, layout }
}

fn entry(binding: u32, writes: bool) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: !writes },
            has_dynamic_offset: false,
            // Every buffer has 16 bytes, and no element is larger. Stating the minimum here saves a
            // check at every dispatch.
            min_binding_size: wgpu::BufferSize::new(16),
        },
        count: None,
    }
}

/// Locks a mutex, also after a panic of a thread that held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
