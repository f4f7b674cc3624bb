use inkstone::{
    gguf::Gguf,
    internals::{backend::cpu::Cpu, models::vision::*, vision::*, weights::Weights},
};
use std::{fs, path::Path};

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
            println!("{name:22} {who:5} {:.2e}", nmse(&rows, &expected));
        }
    }
}
