//! Programs made ready: their pipelines, made when they are first needed, and the buffers that they work in.

use std::collections::HashMap;

use super::{
    arena::Arena,
    context::{Context, Pipeline},
    kernel::{Kernel, Resource, Sizes},
    lower::{Command, variant},
};
use crate::{Error, Result};

/// What the buffers of steps are for.
pub(super) const STORAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

/// A dispatch made ready.
struct Ready {
    pipeline: Pipeline,
    group: Option<wgpu::BindGroup>,
}

/// Commands, and what has been made ready of them.
pub(super) struct Program {
    pub commands: Vec<Command>,
    /// By command and variant.
    ready: Vec<Vec<Option<Ready>>>,
}

impl Program {
    pub fn new(commands: Vec<Command>) -> Self {
        let ready = commands.iter().map(|command| command.variants.iter().map(|_| None).collect()).collect();
        Self { commands, ready }
    }

    /// The commands of a step, with the number of the variant.
    pub fn for_step(&self, sizes: &Sizes) -> Vec<(usize, usize)> {
        let commands = self.commands.iter().enumerate();
        let held = commands.filter(|(_, command)| command.when.holds(sizes));
        held.map(|(index, command)| {
            let rows = if command.by_outputs { sizes.outputs } else { sizes.tokens };
            (index, if command.variants.len() > 1 { variant(rows) } else { 0 })
        })
        .collect()
    }

    pub fn kernel(&self, (command, variant): (usize, usize)) -> &Kernel {
        &self.commands[command].variants[variant]
    }

    /// Forgets how buffers are bound: some have been replaced.
    pub fn unbind(&mut self) {
        for ready in self.ready.iter_mut().flatten().flatten() {
            ready.group = None;
        }
    }

    /// The pipeline and the bindings of a dispatch, made now if they were not before.
    fn ready(
        &mut self,
        context: &Context,
        buffers: &Buffers,
        arena: &Arena,
        at @ (command, variant): (usize, usize),
    ) -> Result<(&wgpu::ComputePipeline, &wgpu::BindGroup)> {
        if self.ready[command][variant].is_none() {
            let kernel = self.kernel(at);
            let pipeline =
                context.pipeline(self.commands[command].op, &kernel.source(&context.templates)?, &kernel.writes())?;
            self.ready[command][variant] = Some(Ready { pipeline, group: None });
        }
        let kernel = &self.commands[command].variants[variant];
        let Some(ready) = &mut self.ready[command][variant] else { return Err(unready()) };
        if ready.group.is_none() {
            ready.group = Some(bind(context, buffers, arena, kernel, &ready.pipeline)?);
        }
        ready.group.as_ref().map(|group| (&ready.pipeline.pipeline, group)).ok_or_else(unready)
    }
}

impl Program {
    pub fn command(&self, (command, _): (usize, usize)) -> &Command {
        &self.commands[command]
    }

    /// Encodes a step's dispatches; their number.
    pub fn encode(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        context: &Context,
        buffers: &Buffers,
        arena: &Arena,
        sizes: &Sizes,
    ) -> Result<u64> {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        let mut dispatches = 0;
        for at in self.for_step(sizes) {
            dispatches += u64::from(self.dispatch(&mut pass, context, buffers, arena, at, sizes)?);
        }
        Ok(dispatches)
    }

    /// Encodes a dispatch; whether there was anything to do.
    pub fn dispatch(
        &mut self,
        pass: &mut wgpu::ComputePass<'_>,
        context: &Context,
        buffers: &Buffers,
        arena: &Arena,
        at: (usize, usize),
        sizes: &Sizes,
    ) -> Result<bool> {
        let groups = self.kernel(at).groups.map(|count| count.of(sizes));
        let (pipeline, group) = self.ready(context, buffers, arena, at)?;
        if groups.contains(&0) {
            return Ok(false);
        }
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, group, &[]);
        pass.dispatch_workgroups(groups[0], groups[1], groups[2]);
        Ok(true)
    }
}

fn unready() -> Error {
    Error::internal("a dispatch was not made ready")
}

fn bind(
    context: &Context,
    buffers: &Buffers,
    arena: &Arena,
    kernel: &Kernel,
    pipeline: &Pipeline,
) -> Result<wgpu::BindGroup> {
    let resources = std::iter::once(Resource::Step).chain(kernel.bindings.iter().map(|binding| binding.resource));
    let mut entries = vec![];
    for (binding, resource) in (0u32..).zip(resources) {
        let buffer = match resource {
            Resource::Weight(buffer, offset, size) => {
                wgpu::BufferBinding { buffer: &arena.buffers[buffer], offset, size: wgpu::BufferSize::new(size) }
            }
            other => buffers.get(other)?.as_entire_buffer_binding(),
        };
        entries.push(wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(buffer) });
    }
    context.guarded(|device| {
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.name()),
            layout: &pipeline.layout,
            entries: &entries,
        })
    })
}

/// The buffers that steps work in.
#[derive(Default)]
pub(super) struct Buffers(HashMap<Resource, wgpu::Buffer>);

impl Buffers {
    pub fn get(&self, resource: Resource) -> Result<&wgpu::Buffer> {
        self.0.get(&resource).ok_or_else(|| Error::internal(format!("no buffer for {resource:?}")))
    }

    pub fn set(&mut self, resource: Resource, buffer: wgpu::Buffer) {
        self.0.insert(resource, buffer);
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(wgpu::Buffer::size).sum()
    }
}

/// Waits for a buffer, and looks at the beginning of it.
pub(super) fn read(context: &Context, buffer: &wgpu::Buffer, bytes: u64, look: impl FnOnce(&[u8])) -> Result<()> {
    let slice = buffer.slice(..bytes);
    let (sender, receiver) = std::sync::mpsc::channel();
    slice.map_async(wgpu::MapMode::Read, move |result| {
        // Nobody waits for it where the step has failed by then.
        let _ = sender.send(result);
    });
    context.wait()?;
    match receiver.try_recv() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(context.error(error.to_string())),
        Err(error) => return Err(context.error(error.to_string())),
    }
    let view = slice.get_mapped_range().map_err(|error| context.error(error.to_string()))?;
    look(&view);
    drop(view);
    buffer.unmap();
    Ok(())
}
