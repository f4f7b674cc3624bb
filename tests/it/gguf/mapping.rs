//! What stays mapped of a model's files, and files that are shortened while their model is loaded.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use inkstone::{CacheType, Device, GenerateOptions, Runner, RunnerBuilder, SamplerOptions, gguf::Gguf};

use crate::support::{
    checkpoint::Checkpoint,
    data,
    gguf_file::Folder,
    tiny::{MODELS, Tiny},
};

const STORYTELLER: &str = "storyteller/storyteller.gguf";

fn on_cpu() -> RunnerBuilder {
    Runner::builder().cache_type(CacheType::F32).device(Device::Cpu).threads(2)
}

fn tiny(name: &str) -> Tiny {
    MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap()
}

/// A copy of a file of tests/data, to be shortened.
fn copied(folder: &Folder, name: &str) -> PathBuf {
    folder.write("model.gguf", fs::read(data(name)).unwrap())
}

/// The copy of a GGUF file, or a directory of safetensors, of models in several formats: quantised, in plain floats, with
/// experts one by one, and with norms that are stored in another form.
fn models(folder: &Folder) -> Vec<PathBuf> {
    let gguf = |name: &str| folder.write(&format!("{name}.gguf"), fs::read(tiny(name).path()).unwrap());
    let storyteller = copied(folder, STORYTELLER);
    let mut paths = vec![storyteller, gguf("qwen3"), gguf("phi3"), gguf("mixtral")];
    for name in ["qwen3", "mixtral", "gemma3", "qwen35"] {
        let own = Folder::new();
        let directory = Checkpoint::of(tiny(name)).write(&own);
        let moved = folder.path().join(name);
        fs::rename(directory, &moved).unwrap();
        paths.push(moved);
    }
    paths
}

/// Cuts off all of a model's files that hold tensors, and says how many there are.
fn shorten(path: &Path) -> usize {
    let files = if path.is_dir() {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
    } else {
        vec![path.to_owned()]
    };
    let tensors = files.iter().filter(|file| file.extension().is_some_and(|end| end == "gguf" || end == "safetensors"));
    tensors.map(|file| File::options().write(true).open(file).unwrap().set_len(0).unwrap()).count()
}

fn text(runner: &mut Runner) -> String {
    let options =
        GenerateOptions { max_tokens: Some(12), sampler: SamplerOptions::greedy(), ..GenerateOptions::default() };
    runner.generate("Once upon a time", &options).unwrap().map(Result::unwrap).collect()
}

#[test]
fn copied_weights_outlive_their_files() {
    let folder = Folder::new();
    for path in models(&folder) {
        let mut expected = on_cpu().from_path(&path).unwrap();
        let (logits, story) = (expected.predict_logits(&[1, 2, 3]).unwrap(), text(&mut expected));
        drop(expected);
        let mut runner = on_cpu().copy_weights(true).from_path(&path).unwrap();
        assert!(shorten(&path) > 0);
        assert_eq!(runner.predict_logits(&[1, 2, 3]).unwrap(), logits, "{}", path.display());
        assert_eq!(text(&mut runner.clone()), story, "{}", path.display());
    }
}

#[test]
fn plans_count_what_is_read_from_the_mapping() {
    let planned = |builder: RunnerBuilder, path: &Path| {
        let plan = builder.plan(path).unwrap();
        assert_eq!(*builder.from_path(path).unwrap().memory(), plan, "{}", path.display());
        plan
    };
    let folder = Folder::new();
    for path in models(&folder) {
        let mapped = planned(on_cpu(), &path);
        let copied = planned(on_cpu().copy_weights(true), &path);
        assert_eq!((copied.mapped, copied.weights, copied.total()), (0, mapped.weights, mapped.total()));
        assert!(!copied.to_string().contains("mapped"));
    }
    // Every matrix in plain floats, the embedding once though it is the output matrix too; no vector.
    let float = tiny("qwen3").path();
    let gguf = Gguf::open(&float).unwrap();
    let matrices = gguf.tensors().iter().filter(|tensor| tensor.shape.len() > 1);
    let plan = on_cpu().plan(&float).unwrap();
    assert_eq!(plan.mapped, matrices.map(|tensor| tensor.byte_len() as u64).sum::<u64>());
    assert!(plan.mapped < plan.weights && plan.to_string().contains("mapped"));
}

/// Says whether a file is mapped into this process.
#[cfg(target_os = "linux")]
fn is_mapped(path: &Path) -> bool {
    let path = path.canonicalize().unwrap();
    fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| line.ends_with(path.to_str().unwrap()))
}

/// As [`is_mapped`], some time later: the thread that asks the system to read ahead may hold a mapping for a moment more.
#[cfg(target_os = "linux")]
fn stays_mapped(path: &Path) -> bool {
    for _ in 0..100 {
        if !is_mapped(path) {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    true
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_else_stays_mapped() {
    let folder = Folder::new();
    for path in models(&folder) {
        let file = if path.is_dir() { path.join("model.safetensors") } else { path.clone() };
        for copy in [false, true] {
            let runner = on_cpu().copy_weights(copy).from_path(&path).unwrap();
            let mapped = runner.memory().mapped > 0;
            assert_eq!(stays_mapped(&file), mapped, "{}, copied: {copy}", path.display());
            assert!(!(copy && mapped));
        }
    }
    // Its embedding is quantised and the output matrix, so that all matrices are copied in any case.
    let packed = copied(&folder, STORYTELLER);
    let mut runner = on_cpu().from_gguf(&packed).unwrap();
    let story = text(&mut runner);
    assert_eq!(runner.memory().mapped, 0);
    shorten(&packed);
    assert_eq!(text(&mut runner), story);
}

#[cfg(all(target_os = "linux", feature = "wgpu"))]
#[test]
fn nothing_stays_mapped_for_a_gpu() {
    use inkstone::backend::{Adapter, webgpu::Gpu};
    let folder = Folder::new();
    let adapters = Gpu::adapters();
    if adapters.is_empty() {
        eprintln!("skipped: this machine has no adapter, not even a software one");
    }
    for info in adapters {
        for copy in [false, true] {
            let path = folder.write("model.gguf", fs::read(tiny("qwen3").path()).unwrap());
            let device = Device::Gpu(Adapter::Named(info.name.clone()));
            let builder = Runner::builder().cache_type(CacheType::F32).device(device).copy_weights(copy);
            let mut runner = builder.from_gguf(&path).unwrap();
            assert_eq!(runner.memory().mapped, 0);
            assert!(!stays_mapped(&path), "{}, copied: {copy}", info.name);
            let before = runner.predict_logits(&[1, 2, 3]).unwrap();
            shorten(&path);
            assert_eq!(runner.predict_logits(&[1, 2, 3]).unwrap(), before);
        }
    }
}

/// What the documentation warns of: without copies the system ends the process.
#[cfg(target_os = "linux")]
#[test]
fn a_mapped_file_that_is_shortened_ends_the_process() {
    use std::{env, os::unix::process::ExitStatusExt, process::Command};
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "gguf::mapping::reads_a_mapped_file_that_was_shortened"])
        .output()
        .unwrap();
    const SIGBUS: i32 = 7;
    assert_eq!(child.status.signal(), Some(SIGBUS), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
#[ignore = "ends the process, for the test above"]
fn reads_a_mapped_file_that_was_shortened() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", fs::read(tiny("qwen3").path()).unwrap());
    let mut runner = on_cpu().from_gguf(&path).unwrap();
    shorten(&path);
    runner.predict_logits(&[1, 2, 3]).unwrap();
}
