use std::{fs, path::Path, sync::Arc};

use inkstone::{
    CacheType, Decoder,
    gguf::Gguf,
    internals::{
        backend::{Backend, cpu::Cpu},
        generate::*,
        kv_cache::*,
        models::{Model, vision::*},
        optimize::*,
        vision::*,
        weights::Weights,
    },
};

fn nmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mean = b.iter().map(|x| f64::from(*x)).sum::<f64>() / b.len() as f64;
    let var = b.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>() / var
}

#[test]
fn adhoc() {
    let mut cases: Vec<_> = fs::read_dir("/tmp/v/e").unwrap().map(|e| e.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let model = name.split('.').next().unwrap();
        let gguf = Gguf::open(format!("/tmp/v/{model}.mmproj.gguf")).unwrap();
        let mut files: Vec<_> = fs::read_dir(&case).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        for (convention, who) in [(Convention::Transformers, "hf"), (Convention::LlamaCpp, "like")] {
            let vision = VisionModel::from_gguf(&gguf, &Weights::from_gguf(&gguf), convention).unwrap();
            let mut encoder = VisionEncoder::new(vision, &Cpu::new(Some(2)).unwrap(), 4096).unwrap();
            let data: Vec<_> = files
                .iter()
                .map(|f| {
                    let size = f.to_str().unwrap().rsplit('.').nth(1).unwrap();
                    let (w, h) = size.split_once('x').unwrap();
                    (fs::read(f).unwrap(), w.parse().unwrap(), h.parse().unwrap())
                })
                .collect();
            let pictures: Vec<_> =
                data.iter().map(|(rgb, width, height)| Picture { rgb, width: *width, height: *height }).collect();
            let rows: Vec<f32> =
                encoder.encode(&pictures, |_| true).unwrap().unwrap().into_iter().flat_map(|p| p.rows).collect();
            let path = Path::new("/work/shared/vision/expected").join(&name).join(format!("{who}.embd.f32"));
            let bytes = fs::read(path).unwrap();
            let expected: Vec<f32> = bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
            let l = fs::read(Path::new("/work/shared/vision/expected").join(&name).join("llama.embd.f32")).unwrap();
            let l: Vec<f32> = l.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
            println!("{name:22} {who:5} {:.2e} llama {:.3e}", nmse(&rows, &expected), nmse(&rows, &l));
        }
    }
}

fn floats(path: &Path) -> Vec<f32> {
    fs::read(path).unwrap().chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn adhoc_text() {
    let root = Path::new("/work/shared/vision/expected");
    let mut cases: Vec<_> = fs::read_dir("/tmp/v/e").unwrap().map(|e| e.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let model = name.split('.').next().unwrap();
        let info: serde_json::Value =
            serde_json::from_slice(&fs::read(root.join(&name).join("info.json")).unwrap()).unwrap();
        let width = info["embedding_width"].as_u64().unwrap() as usize;
        let gguf = Gguf::open(format!("/tmp/v/{model}.text.gguf")).unwrap();
        let weights = Weights::from_gguf(&gguf);
        for (convention, who) in [(Convention::Transformers, "hf"), (Convention::LlamaCpp, "like")] {
            for chunk in [512, 7] {
                let Model { graph, config } =
                    Model::for_positions(&gguf, &weights, 4096, Some(ImageInputs { row_width: width, convention }))
                        .unwrap();
                let cpu = Cpu::new(Some(2)).unwrap();
                let target = Target {
                    supports: &|op| cpu.supports(op),
                    vector: &|slice, width| weights.vector(slice, width).ok().map(Into::into),
                };
                let graph = optimize(&graph, &target).unwrap().graph;
                let layout = CacheLayout::new(&graph, CacheType::F32).unwrap();
                let executable = cpu.compile(&graph, &weights, &layout, chunk, 1).unwrap();
                let limits = Limits { vocab_size: config.vocab_size, max_tokens: chunk, max_outputs: 1 };
                let mut decoder = Decoder::new(executable, KvCache::new(&layout, 4096), limits);
                let rows = floats(&root.join(&name).join(format!("{who}.embd.f32")));
                let (mut ids, mut images, mut first) = (vec![], vec![], 0);
                for part in info["chunks"].as_array().unwrap() {
                    if part["type"] == "text" {
                        ids.extend(part["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32));
                    } else {
                        let count = part["tokens"].as_u64().unwrap() as usize;
                        let grid = part["grid"]
                            .as_array()
                            .filter(|_| info["mrope"] == true)
                            .map(|g| [g[1].as_u64().unwrap() as usize, g[0].as_u64().unwrap() as usize]);
                        let whole = part["non_causal"] == true;
                        let elements = rows[first * width..(first + count) * width].to_vec();
                        images.push(PlacedImage {
                            start: ids.len(),
                            rows: Arc::new(ImageRows { elements, count, grid, whole }),
                        });
                        ids.extend(vec![0; count]);
                        first += count;
                    }
                }
                let id = decoder.open();
                match decoder.prefill_with_images(id, &ids, &images, |_, _| true) {
                    Ok(_) => println!(
                        "{name:22} {who:5} {chunk} {:.2e}",
                        nmse(decoder.logits_mut(), &floats(&root.join(&name).join(format!("{who}.logits.f32"))))
                    ),
                    Err(e) => println!("{name:22} {who:5} {chunk} {e}"),
                }
            }
        }
    }
}
