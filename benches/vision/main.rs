//! Measures the time from the RGB bytes of a picture to its rows, with random weights of the sizes
//! of real vision encoders.
//!
//!     cargo bench --bench vision -- --help

#[path = "../../examples/common/mod.rs"]
mod common;
mod encoders;
#[path = "../machine/mod.rs"]
mod machine;
#[path = "../../examples/common/profile.rs"]
mod profile;

use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use inkstone::{
    DType, Device, Image,
    internals::{
        backend::{Backend, cpu::Cpu},
        vision::{ImagePictures, Picture, VisionEncoder},
    },
};

use common::Failure;
use encoders::Shape;
use machine::Machine;
use profile::Profile;

const USAGE: &str = "
Usage: cargo bench --bench vision -- [OPTIONS]

  --device NAME   cpu, gpu, or a part of a GPU's name (cpu)
  --threads N     CPU threads (one per core)
  --encoder NAME  measures only one encoder: qwen3-vl-2b or gemma-3
  --format NAME   measures only one format of the matrices: F16 or Q8_0
  --size WxH      measures only pictures of this size in pixels
  --reps N        repetitions, of which the median counts (3)
  --profile       reports the time of each op; measuring costs a little time";

const FORMATS: [DType; 2] = [DType::F16, DType::Q8_0];
/// Widths and heights of pictures in pixels.
const SIZES: [[usize; 2]; 3] = [[448, 448], [896, 896], [1344, 1008]];

struct Settings {
    reps: usize,
    profile: bool,
}

fn main() -> ExitCode {
    common::run(USAGE, |mut args| {
        // Cargo passes this flag to every benchmark.
        args.flag("--bench");
        let device: Device = args.value("--device")?.unwrap_or(Device::Cpu);
        let threads: Option<usize> = args.value("--threads")?;
        let encoder: Option<String> = args.value("--encoder")?;
        let format: Option<String> = args.value("--format")?;
        let size: Option<String> = args.value("--size")?;
        let settings = Settings { reps: args.value("--reps")?.unwrap_or(3).max(1), profile: args.flag("--profile") };
        args.finish()?;

        let sizes = size.map_or(Ok(SIZES.to_vec()), |size| parse_size(&size).map(|size| vec![size]))?;
        let backend = backend(&device, threads)?;
        let info = backend.device();
        println!("{} ({}), {} threads", info.name, info.details, info.threads);
        let mut machine = if device == Device::Cpu { Some(Machine::new(info.threads)?) } else { None };
        println!(
            "{:<12} {:<6} {:>10} {:>8} {:>6} {:>10} {:>9}",
            "encoder", "format", "picture", "patches", "rows", "ms", "GFLOP/s"
        );
        for shape in Shape::ALL.iter().filter(|shape| encoder.as_deref().is_none_or(|name| name == shape.name)) {
            for dtype in FORMATS.into_iter().filter(|dtype| format.as_deref().is_none_or(|name| name == dtype.name())) {
                measure(shape, dtype, &sizes, &*backend, &settings)?;
                machine.iter_mut().for_each(Machine::measure);
            }
        }
        if let Some(machine) = machine {
            println!("reads {:.1} GB/s; f32 FMA {:.0} GFLOP/s", machine.read, machine.fma);
        }
        Ok(())
    })
}

fn parse_size(text: &str) -> Result<[usize; 2], Failure> {
    let parsed = text.split_once('x').and_then(|(width, height)| Some([width.parse().ok()?, height.parse().ok()?]));
    parsed.ok_or_else(|| format!("--size must be WIDTHxHEIGHT, such as 896x896, not {text}").into())
}

fn backend(device: &Device, threads: Option<usize>) -> Result<Box<dyn Backend>, Failure> {
    match device {
        Device::Cpu | Device::Auto => Ok(Box::new(Cpu::new(threads)?)),
        #[cfg(any(feature = "wgpu", feature = "metal"))]
        Device::Gpu(adapter) => Ok(Box::new(inkstone::internals::backend::webgpu::Gpu::new(adapter)?)),
        #[cfg(not(any(feature = "wgpu", feature = "metal")))]
        Device::Gpu(_) => Err("a GPU needs the feature `wgpu`".into()),
    }
}

/// Measures pictures of all sizes, and prints a line for each.
fn measure(
    shape: &Shape,
    dtype: DType,
    sizes: &[[usize; 2]],
    backend: &dyn Backend,
    settings: &Settings,
) -> Result<(), Failure> {
    let mut encoder = VisionEncoder::new(shape.model(dtype)?, backend, shape.max_patches)?;
    encoder.set_profiling(settings.profile)?;
    for &[width, height] in sizes {
        let image = photo(width, height)?;
        let (mut seconds, mut profile, mut last) = (vec![], Profile::default(), (0, 0));
        for rep in 0..=settings.reps {
            encoder.take_profile();
            let start = Instant::now();
            last = encode(&mut encoder, black_box(&image))?;
            let wall = start.elapsed();
            // The first picture of a size allocates memory.
            if rep > 0 {
                seconds.push(wall);
                profile.add(1, wall, encoder.take_profile());
            }
        }
        let (patches, rows) = last;
        let time = median(seconds).as_secs_f64();
        println!(
            "{:<12} {:<6} {:>10} {patches:>8} {rows:>6} {:>10.1} {:>9.0}",
            shape.name,
            dtype.name(),
            format!("{width}x{height}"),
            1e3 * time,
            1e-9 * shape.operations(patches) / time,
        );
        if settings.profile {
            println!("{profile}");
        }
    }
    let usage = encoder.usage();
    if usage.device_bytes > 0 {
        println!("{} dispatches, {:.0} MB on the device", usage.dispatches, usage.device_bytes as f64 / 1e6);
    }
    Ok(())
}

/// Encodes an image, and returns the number of its patches and of its rows.
fn encode(encoder: &mut VisionEncoder, image: &Image) -> Result<(usize, usize), Failure> {
    let pictures = ImagePictures::new(encoder.config(), image)?.pictures;
    let pictures: Vec<_> = pictures.iter().map(Picture::from).collect();
    let encoded = encoder.encode(&pictures, |_| true)?.unwrap_or_default();
    let rows = encoded.iter().map(|picture| picture.grid[0] * picture.grid[1]).sum::<usize>();
    black_box(encoded);
    Ok((rows * encoder.config().block.pow(2), rows))
}

/// Returns an image of pseudo-random bytes.
fn photo(width: usize, height: usize) -> Result<Image, Failure> {
    let bytes = (0..width * height * 3).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    Ok(Image::from_rgb(bytes.collect::<Vec<_>>(), width, height)?)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
