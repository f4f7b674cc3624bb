//! Encodes the dispatches of programs. Pipelines and bind groups are created at their first use.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use super::{
    context::{Context, Pipeline},
    kernel::{Kernel, Resource, StepSizes},
    lower::Command,
    weight_buffers::WeightBuffers,
};
use crate::{Error, Result};

/// The usage of the buffers that steps read and write.
pub(super) const STORAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

/// A kernel of a program: the index of its command, and of its variant there.
#[derive(Clone, Copy)]
pub(super) struct KernelIndex {
    command: usize,
    variant: usize,
}

/// The kernels of a program, and their pipelines as far as they are compiled.
pub(super) struct Kernels {
    commands: Vec<Command>,
    /// The pipelines by command and variant.
    pipelines: Vec<Vec<OnceLock<Pipeline>>>,
}

impl Kernels {
    /// Returns the pipeline of a kernel, which is compiled if it is missing.
    pub fn pipeline(&self, context: &Context, index: KernelIndex) -> Result<&Pipeline> {
        let place = &self.pipelines[index.command][index.variant];
        if let Some(pipeline) = place.get() {
            return Ok(pipeline);
        }
        let command = &self.commands[index.command];
        let kernel = &command.variants[index.variant];
        let pipeline = context.pipeline(command.op, &kernel.source(&context.templates)?, &kernel.writes())?;
        Ok(place.get_or_init(|| pipeline))
    }
}

/// A list of commands with their pipelines and bind groups.
pub(super) struct GpuProgram {
    kernels: Arc<Kernels>,
    /// The bind groups by command and variant.
    bind_groups: Vec<Vec<Option<wgpu::BindGroup>>>,
}

impl GpuProgram {
    pub fn new(commands: Vec<Command>) -> Self {
        fn by_variant<T>(commands: &[Command], empty: impl Fn() -> T) -> Vec<Vec<T>> {
            commands.iter().map(|command| command.variants.iter().map(|_| empty()).collect()).collect()
        }
        let (pipelines, bind_groups) = (by_variant(&commands, OnceLock::new), by_variant(&commands, || None));
        Self { kernels: Arc::new(Kernels { commands, pipelines }), bind_groups }
    }

    pub fn commands(&self) -> &[Command] {
        &self.kernels.commands
    }

    /// Returns the program's kernels, for threads that compile them.
    pub fn kernels(&self) -> Arc<Kernels> {
        self.kernels.clone()
    }

    /// Returns all kernels.
    pub fn all(&self) -> impl Iterator<Item = KernelIndex> {
        let commands = self.commands().iter().enumerate();
        commands.flat_map(|(command, kernels)| {
            (0..kernels.variants.len()).map(move |variant| KernelIndex { command, variant })
        })
    }

    /// Returns the kernels of steps with one row.
    pub fn single_row(&self) -> impl Iterator<Item = KernelIndex> {
        (0..self.commands().len()).map(|command| KernelIndex { command, variant: 0 })
    }

    /// Returns the kernels that a step of these sizes dispatches, in order.
    pub fn kernels_of(&self, sizes: &StepSizes) -> Vec<KernelIndex> {
        let commands = self.commands().iter().enumerate();
        let dispatched = commands.filter(|(_, command)| command.condition.holds(sizes));
        let index =
            |(index, command): (usize, &Command)| KernelIndex { command: index, variant: command.variant(sizes) };
        dispatched.map(index).collect()
    }

    pub fn kernel(&self, index: KernelIndex) -> &Kernel {
        &self.command(index).variants[index.variant]
    }

    pub fn command(&self, index: KernelIndex) -> &Command {
        &self.commands()[index.command]
    }

    /// Drops all bind groups, so that buffers can be replaced.
    pub fn unbind(&mut self) {
        self.bind_groups.iter_mut().flatten().for_each(|group| *group = None);
    }

    /// Returns the pipeline and the bind group of a kernel, which are created if they are missing.
    fn prepare(
        &mut self,
        context: &Context,
        buffers: &Buffers,
        weight_buffers: &WeightBuffers,
        index: KernelIndex,
    ) -> Result<(&wgpu::ComputePipeline, &wgpu::BindGroup)> {
        let Self { kernels, bind_groups } = self;
        let pipeline = kernels.pipeline(context, index)?;
        let place = &mut bind_groups[index.command][index.variant];
        let group = match place {
            Some(group) => group,
            None => {
                let kernel = &kernels.commands[index.command].variants[index.variant];
                place.insert(bind(context, buffers, weight_buffers, kernel, pipeline)?)
            }
        };
        Ok((&pipeline.pipeline, group))
    }

    /// Encodes the dispatches of a step, and returns their number.
    pub fn encode(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        context: &Context,
        buffers: &Buffers,
        weight_buffers: &WeightBuffers,
        sizes: &StepSizes,
    ) -> Result<u64> {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        let mut dispatches = 0;
        for index in self.kernels_of(sizes) {
            dispatches += u64::from(self.dispatch(&mut pass, context, buffers, weight_buffers, index, sizes)?);
        }
        Ok(dispatches)
    }

    /// Encodes the dispatch of a kernel, and returns whether it has any workgroups.
    pub fn dispatch(
        &mut self,
        pass: &mut wgpu::ComputePass<'_>,
        context: &Context,
        buffers: &Buffers,
        weight_buffers: &WeightBuffers,
        index: KernelIndex,
        sizes: &StepSizes,
    ) -> Result<bool> {
        let workgroups = self.kernel(index).workgroups.map(|count| count.of(sizes));
        let (pipeline, bind_group) = self.prepare(context, buffers, weight_buffers, index)?;
        if workgroups.contains(&0) {
            return Ok(false);
        }
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, bind_group, &[]);
        pass.dispatch_workgroups(workgroups[0], workgroups[1], workgroups[2]);
        Ok(true)
    }
}

/// Creates the bind group of a kernel's buffers.
fn bind(
    context: &Context,
    buffers: &Buffers,
    weight_buffers: &WeightBuffers,
    kernel: &Kernel,
    pipeline: &Pipeline,
) -> Result<wgpu::BindGroup> {
    let resources = std::iter::once(Resource::Step).chain(kernel.bindings.iter().map(|binding| binding.resource));
    let mut entries = vec![];
    for (binding, resource) in (0u32..).zip(resources) {
        let buffer = match resource {
            Resource::Weight(buffer, offset, size) => wgpu::BufferBinding {
                buffer: &weight_buffers.buffers[buffer],
                offset,
                size: wgpu::BufferSize::new(size),
            },
            other => buffers.get(other)?.as_entire_buffer_binding(),
        };
        entries.push(wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(buffer) });
    }
    context.validated(|device| {
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.name()),
            layout: &pipeline.layout,
            entries: &entries,
        })
    })
}

/// The buffers that steps read and write, except the buffers of weights.
#[derive(Default)]
pub(super) struct Buffers(HashMap<Resource, wgpu::Buffer>);

impl Buffers {
    pub fn get(&self, resource: Resource) -> Result<&wgpu::Buffer> {
        self.0.get(&resource).ok_or_else(|| Error::internal(format!("no buffer for {resource:?}")))
    }

    pub fn set(&mut self, resource: Resource, buffer: wgpu::Buffer) {
        self.0.insert(resource, buffer);
    }

    /// Frees a buffer as soon as no submitted step uses it.
    pub fn free(&mut self, resource: Resource) {
        if let Some(buffer) = self.0.remove(&resource) {
            buffer.destroy();
        }
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(wgpu::Buffer::size).sum()
    }
}

/// Waits for the device, and passes the first bytes of a mappable buffer to `use_bytes`.
pub(super) fn read_buffer(
    context: &Context,
    buffer: &wgpu::Buffer,
    bytes: u64,
    use_bytes: impl FnOnce(&[u8]),
) -> Result<()> {
    let slice = buffer.slice(..bytes);
    map_buffer(context, &slice, wgpu::MapMode::Read)?;
    let view = slice.get_mapped_range().map_err(|error| context.error(error.to_string()))?;
    use_bytes(&view);
    drop(view);
    buffer.unmap();
    Ok(())
}

/// Waits for the device, and maps a part of a buffer.
pub(super) fn map_buffer(context: &Context, slice: &wgpu::BufferSlice<'_>, mode: wgpu::MapMode) -> Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    slice.map_async(mode, move |result| {
        // Sending fails if the step failed meanwhile and dropped the receiver.
        let _ = sender.send(result);
    });
    context.wait()?;
    context.finish_mapping(&receiver)
}
