//! Tests which files of a model stay mapped, and files that are truncated while their model is
//! loaded.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use inkstone::{CacheType, GenerateOptions, Runner, RunnerBuilder, SamplerOptions, gguf::Gguf};

use crate::support::{
    checkpoint::Checkpoint,
    data,
    gguf_file::Folder,
    on_cpu,
    tiny::{MODELS, Tiny},
};

const STORYTELLER: &str = "storyteller/storyteller.gguf";

fn exact() -> RunnerBuilder {
    on_cpu().cache_type(CacheType::F32)
}

fn tiny(name: &str) -> Tiny {
    MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap()
}

/// Copies a file of tests/data, so that the test can truncate it.
fn copy_of(folder: &Folder, name: &str) -> PathBuf {
    folder.write("model.gguf", fs::read(data(name)).unwrap())
}

/// Writes models as GGUF files and as directories of safetensors, and returns their paths:
/// quantized, unquantized, with experts in separate tensors, and with norm weights that are
/// transformed on loading.
fn models(folder: &Folder) -> Vec<PathBuf> {
    let gguf = |name: &str| folder.write(&format!("{name}.gguf"), fs::read(tiny(name).path()).unwrap());
    let storyteller = copy_of(folder, STORYTELLER);
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

/// Truncates all files of a model that contain tensors to 0 bytes, and returns their number.
fn truncate(path: &Path) -> usize {
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
fn copied_weights_survive_truncation_of_their_files() {
    let folder = Folder::new();
    for path in models(&folder) {
        let mut expected = exact().from_path(&path).unwrap();
        let (logits, story) = (expected.predict_logits(&[1, 2, 3]).unwrap(), text(&mut expected));
        drop(expected);
        let mut runner = exact().copy_weights(true).from_path(&path).unwrap();
        assert!(truncate(&path) > 0);
        assert_eq!(runner.predict_logits(&[1, 2, 3]).unwrap(), logits, "{}", path.display());
        assert_eq!(text(&mut runner.clone()), story, "{}", path.display());
    }
}

#[test]
fn memory_plans_count_the_mapped_bytes() {
    let planned = |builder: RunnerBuilder, path: &Path| {
        let plan = builder.plan(path).unwrap();
        assert_eq!(*builder.from_path(path).unwrap().memory(), plan, "{}", path.display());
        plan
    };
    let folder = Folder::new();
    for path in models(&folder) {
        let mapped = planned(exact(), &path);
        let copied = planned(exact().copy_weights(true), &path);
        assert_eq!((copied.mapped, copied.weights, copied.total()), (0, mapped.weights, mapped.total()));
        assert!(!copied.to_string().contains("mapped"));
    }
    // All unquantized matrices stay mapped, the embedding counted once although it is also the
    // output matrix; vectors are copied.
    let float = tiny("qwen3").path();
    let gguf = Gguf::open(&float).unwrap();
    let matrices = gguf.tensors().iter().filter(|tensor| tensor.shape.len() > 1);
    let plan = exact().plan(&float).unwrap();
    assert_eq!(plan.mapped, matrices.map(|tensor| tensor.byte_len() as u64).sum::<u64>());
    assert!(plan.mapped < plan.weights && plan.to_string().contains("mapped"));
}

/// Returns whether a file is mapped into this process.
#[cfg(target_os = "linux")]
fn is_mapped(path: &Path) -> bool {
    let path = path.canonicalize().unwrap();
    fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| line.ends_with(path.to_str().unwrap()))
}

/// Returns whether a file is still mapped after up to a second: the read-ahead thread may keep the
/// mapping for a moment after loading.
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
fn files_stay_mapped_only_if_the_plan_says_so() {
    let folder = Folder::new();
    for path in models(&folder) {
        let file = if path.is_dir() { path.join("model.safetensors") } else { path.clone() };
        for copy in [false, true] {
            let runner = exact().copy_weights(copy).from_path(&path).unwrap();
            let mapped = runner.memory().mapped > 0;
            assert_eq!(stays_mapped(&file), mapped, "{}, copied: {copy}", path.display());
            assert!(!(copy && mapped));
        }
    }
    // Its quantized embedding is also the output matrix, so all matrices are copied in any case.
    let packed = copy_of(&folder, STORYTELLER);
    let mut runner = exact().from_gguf(&packed).unwrap();
    let story = text(&mut runner);
    assert_eq!(runner.memory().mapped, 0);
    truncate(&packed);
    assert_eq!(text(&mut runner), story);
}

#[cfg(all(target_os = "linux", feature = "wgpu"))]
#[test]
fn no_file_stays_mapped_for_a_gpu() {
    use inkstone::{Adapter, internals::backend::webgpu::Gpu};
    let folder = Folder::new();
    let adapters = Gpu::adapters();
    if adapters.is_empty() {
        eprintln!("skipped: no adapter is available, not even a software one");
    }
    for info in adapters {
        for copy in [false, true] {
            let path = folder.write("model.gguf", fs::read(tiny("qwen3").path()).unwrap());
            let device = inkstone::Device::Gpu(Adapter::Named(info.name.clone()));
            let builder = Runner::builder().cache_type(CacheType::F32).device(device).copy_weights(copy);
            let mut runner = builder.from_gguf(&path).unwrap();
            assert_eq!(runner.memory().mapped, 0);
            assert!(!stays_mapped(&path), "{}, copied: {copy}", info.name);
            let before = runner.predict_logits(&[1, 2, 3]).unwrap();
            truncate(&path);
            assert_eq!(runner.predict_logits(&[1, 2, 3]).unwrap(), before);
        }
    }
}

/// Confirms the documented danger: without copied weights, truncation of the file ends the process.
#[cfg(target_os = "linux")]
#[test]
fn truncating_a_mapped_file_ends_the_process() {
    use std::{env, os::unix::process::ExitStatusExt, process::Command};
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "gguf::mapping::reading_a_truncated_mapping_ends_the_process"])
        .output()
        .unwrap();
    const SIGBUS: i32 = 7;
    assert_eq!(child.status.signal(), Some(SIGBUS), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
#[ignore = "ends the process; run by truncating_a_mapped_file_ends_the_process"]
fn reading_a_truncated_mapping_ends_the_process() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", fs::read(tiny("qwen3").path()).unwrap());
    let mut runner = exact().from_gguf(&path).unwrap();
    truncate(&path);
    runner.predict_logits(&[1, 2, 3]).unwrap();
}
