//! Profiles: their files, how they are found and combined with settings, and that they leave
//! results as they are.

use std::{fs, path::Path};

use inkstone::{CacheType, Device, Error, MadeFor, Profile, Runner, RunnerBuilder};

use crate::support::{data, gguf_file::Folder, on_cpu, tiny::Tiny};

const MODEL: Tiny = Tiny("qwen3", 0.0);

/// Every key with a value other than the default.
const FULL: &str = r#"threads = 3
decode_threads = 2
prefill_chunk = 5
cache_type = "q8_0"
without_passes = ["merge_matmuls", "dead_code"]

[gpu]
row_counts = [2, 16]
tile_rows = [17, 40, 300]
unsplit_positions = 64

[made_for]
device = "CPU"
architecture = "qwen3"
weight_bytes = 12
"#;

fn parsed(folder: &Folder, text: &str) -> Result<Profile, Error> {
    Profile::open(folder.write("a.inkstone.toml", text))
}

#[test]
fn files_are_read_and_written() {
    let folder = Folder::new();
    let profile = parsed(&folder, FULL).unwrap();
    assert_eq!(profile.threads, Some(3));
    assert_eq!(profile.decode_threads, Some(2));
    assert_eq!(profile.prefill_chunk, Some(5));
    assert_eq!(profile.cache_type, Some(CacheType::Q8_0));
    assert_eq!(profile.without_passes, ["merge_matmuls", "dead_code"]);
    assert_eq!(profile.gpu.row_counts, [2, 16]);
    assert_eq!(profile.gpu.tile_rows, [17, 40, 300]);
    assert_eq!(profile.gpu.unsplit_positions, Some(64));
    let made_for = MadeFor { device: "CPU".into(), architecture: "qwen3".into(), weight_bytes: 12 };
    assert_eq!(profile.made_for, Some(made_for));
    assert_eq!(profile.to_toml().unwrap(), FULL);
    assert_eq!(parsed(&folder, "").unwrap(), Profile::default());
    assert_eq!(Profile::default().to_toml().unwrap(), "");
    let mut huge = Profile::default();
    huge.threads = Some(usize::MAX);
    assert!(matches!(huge.to_toml(), Err(Error::Argument { .. })));
    for (model, file) in [
        ("a/Qwen3-0.6B.Q4_K_M.gguf", "a/Qwen3-0.6B.Q4_K_M.inkstone.toml"),
        ("Qwen3-0.6B", "Qwen3-0.6B.inkstone.toml"),
        ("M.GGUF", "M.inkstone.toml"),
    ] {
        assert_eq!(Profile::path_for(model), Path::new(file));
    }
}

#[test]
fn errors_name_the_file_and_the_line() {
    let folder = Folder::new();
    for (text, line, word) in [
        ("thread = 2", 1, "thread"),
        ("\n# threads\nthreads = 0", 3, "from 1 to 1024"),
        ("threads = 1025", 1, "1025"),
        ("threads = -1", 1, "-1"),
        ("threads = \"two\"", 1, "two"),
        ("threads = 2\nthreads = 2", 2, "duplicate key"),
        ("threads = 2\n\n\ndecode_threads = 0", 4, "from 1 to 1024"),
        ("prefill_chunk = 20000", 1, "16384"),
        ("cache_type = \"q4_0\"", 1, "q4_0"),
        ("without_passes = [\"magic\"]", 1, "magic"),
        ("[gpu]\nrows = 2", 2, "rows"),
        ("[gpu]\nrow_counts = [1, 8]", 2, "16"),
        ("[gpu]\nrow_counts = [0, 16]", 2, "from 1 on"),
        ("[gpu]\nrow_counts = [1, 2, 3, 4, 5, 16]", 2, "five"),
        ("[gpu]\nrow_counts = [4, 2, 16]", 2, "increasing"),
        ("[gpu]\ntile_rows = [16, 64, 256]", 2, "17"),
        ("[gpu]\ntile_rows = [32, 64]", 2, "three"),
        ("[gpu]\n\nunsplit_positions = 2000", 3, "1024"),
        ("[made_for]\ndevice = \"CPU\"", 1, "architecture"),
        ("threads = 2\n[made_for", 2, "table"),
    ] {
        match parsed(&folder, text) {
            Err(Error::InvalidFile { path, what }) => {
                assert!(path.ends_with("a.inkstone.toml"));
                assert!(what.starts_with(&format!("line {line}: ")) && what.contains(word), "{text:?}: {what}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
    assert!(matches!(Profile::open(folder.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn impossible_values_are_refused() {
    let mut wrong = vec![Profile::default(); 4];
    wrong[0].threads = Some(0);
    wrong[1].gpu.row_counts = vec![16, 16];
    wrong[2].without_passes = vec!["dead code".into()];
    wrong[3].made_for = Some(MadeFor { device: "CPU".into(), architecture: "llama".into(), weight_bytes: 1 });
    for (profile, word) in wrong.into_iter().zip(["threads", "row_counts", "dead code", "run the example `tune`"]) {
        let error = on_cpu().profile(profile).from_gguf(MODEL.path()).unwrap_err();
        assert!(matches!(&error, Error::Argument { .. }) && error.to_string().contains(word), "{error}");
    }
}

#[test]
fn settings_precede_profiles_and_profiles_precede_files() {
    let folder = Folder::new();
    let path = folder.write("model.v1.gguf", fs::read(MODEL.path()).unwrap());
    let builder = || Runner::builder().device(Device::Cpu);
    let own = builder().from_gguf(&path).unwrap();
    assert!(own.device().profile.is_none());
    let file = Profile::path_for(&path);
    assert!(file.ends_with("model.v1.inkstone.toml"));

    let mut profile = own.profile().clone();
    assert!(profile.made_for.is_some());
    (profile.threads, profile.decode_threads, profile.prefill_chunk) = (Some(3), Some(1), Some(7));
    fs::write(&file, profile.to_toml().unwrap()).unwrap();
    let runner = builder().from_gguf(&path).unwrap();
    assert_eq!(runner.profile(), &profile);
    assert_eq!(runner.device().threads, 3);
    let found = runner.device().profile.as_ref().unwrap();
    assert_eq!((&found.path, &found.unused), (&file, &None));

    let set = builder().threads(2).cache_type(CacheType::F32).from_gguf(&path).unwrap();
    assert_eq!(set.device().threads, 2);
    let in_force = set.profile();
    assert_eq!(
        (in_force.threads, in_force.decode_threads, in_force.prefill_chunk, in_force.cache_type),
        (Some(2), None, Some(7), Some(CacheType::F32))
    );
    let without = builder().profile(Profile::default()).from_gguf(&path).unwrap();
    assert_eq!(without.profile(), own.profile());
    assert!(without.device().profile.is_none());

    // A file that was made for another model is not used, and the runner says so.
    profile.made_for.as_mut().unwrap().weight_bytes += 1;
    fs::write(&file, profile.to_toml().unwrap()).unwrap();
    let runner = builder().from_gguf(&path).unwrap();
    assert_eq!(runner.profile(), own.profile());
    let found = runner.device().profile.as_ref().unwrap();
    assert!(found.unused.as_ref().is_some_and(|why| why.contains("tune")), "{found:?}");

    fs::write(&file, "\nthread = 3").unwrap();
    let error = builder().from_gguf(&path).unwrap_err();
    assert!(matches!(&error, Error::InvalidFile { path, what } if *path == file && what.contains("line 2")), "{error}");
}

/// Returns the logits after a prompt and after each of some tokens.
fn logits(builder: RunnerBuilder, model: &str) -> Vec<f32> {
    let mut runner = builder.from_gguf(data(&format!("models/{model}.gguf"))).unwrap();
    let ids: Vec<u32> = (3..3 + 90).collect();
    let mut logits = runner.prefill(&ids).unwrap().to_vec();
    for id in [5, 9, 11] {
        logits.extend_from_slice(runner.decode(id).unwrap());
    }
    logits
}

#[test]
fn choices_leave_the_results_of_cpus_as_they_are() {
    let mut profiles = vec![Profile::default(); 3];
    (profiles[0].threads, profiles[0].decode_threads) = (Some(3), Some(2));
    profiles[1].prefill_chunk = Some(7);
    profiles[2].without_passes = Profile::passes().map(String::from).collect();
    for pass in Profile::passes() {
        let mut profile = Profile::default();
        profile.without_passes = vec![pass.into()];
        profiles.push(profile);
    }
    for model in ["qwen3", "gemma3", "qwen35", "qwen3moe"] {
        let expected = logits(on_cpu(), model);
        for profile in &profiles {
            let found = logits(on_cpu().profile(profile.clone()), model);
            assert!(found == expected, "{model} with {profile:?}");
        }
    }
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
#[test]
fn choices_leave_the_results_of_gpus_within_rounding() {
    use crate::support::tiny::nmse;

    let Some(gpu) = Device::gpus().into_iter().next() else {
        eprintln!("skipped: this machine has no GPU, not even in software");
        return;
    };
    let device: Device = gpu.name.parse().unwrap();
    let builder = || Runner::builder().device(device.clone());
    let mut profiles = vec![Profile::default(); 3];
    profiles[0].gpu.row_counts = vec![3, 16];
    profiles[0].gpu.tile_rows = vec![20, 30, 300];
    profiles[1].gpu.unsplit_positions = Some(64);
    profiles[2].without_passes = Profile::passes().map(String::from).collect();
    for model in ["qwen3", "qwen35"] {
        let expected = logits(builder(), model);
        for profile in &profiles {
            let found = logits(builder().profile(profile.clone()), model);
            let error = nmse(&found, &expected);
            assert!(error < 1e-4, "{model} with {profile:?}: {error:e}");
        }
    }
}
