//! Formats: decoding against gguf-py's, and the test quantizers' errors against gguf-py's and
//! llama.cpp's.
//!
//! tests/data/quant/make.py wrote the fixtures and says what they hold.

use std::{fs, path::PathBuf};

use inkstone::{DType, Error, internals::quant};

use crate::support::quantize::quantize;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/quant").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn floats(name: &str) -> Vec<f32> {
    let bytes = fixture(name);
    assert!(bytes.len().is_multiple_of(4));
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn dequantize(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / dtype.block_bytes() * dtype.block_weights()];
    quant::dequantize_row(dtype, bytes, &mut out).unwrap();
    out
}

#[test]
fn table_has_a_row_for_each_format() {
    for &dtype in DType::ALL {
        let format = quant::format(dtype);
        assert_eq!(format.dtype, dtype);
        assert_eq!(format.fields.iter().sum::<usize>(), dtype.block_bytes(), "{dtype}");
        assert!(format.fields.iter().all(|&bytes| bytes == 1 || bytes == 2 || bytes.is_multiple_of(4)), "{dtype}");
    }
}

#[test]
fn decodes_as_gguf_py_does() {
    for &dtype in DType::ALL {
        let name = dtype.name().to_lowercase();
        let (bytes, wanted) = (fixture(&format!("{name}.bin")), floats(&format!("{name}.f32")));
        let got = dequantize(dtype, &bytes);
        assert_eq!(got.len(), wanted.len(), "{dtype}");
        for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            assert_eq!(got.to_bits(), wanted.to_bits(), "{dtype}, weight {i}: {got} instead of {wanted}");
        }
    }
}

#[test]
fn decodes_any_bytes() {
    for &dtype in DType::ALL {
        for byte in 0..=255 {
            dequantize(dtype, &vec![byte; 2 * dtype.block_bytes()]);
        }
    }
}

#[test]
fn refuses_wrong_lengths() {
    for &dtype in DType::ALL {
        let bytes = vec![0; 2 * dtype.block_bytes()];
        let weights = dtype.block_weights();
        let refused = |bytes: &[u8], weights: usize, argument: &str| {
            let result = quant::dequantize_row(dtype, bytes, &mut vec![0.0; weights]);
            assert!(matches!(result, Err(Error::Argument { name, .. }) if name == argument), "{dtype}: {result:?}");
        };
        refused(&bytes[1..], 2 * weights, "bytes");
        refused(&bytes, weights, "bytes");
        refused(&[], weights, "bytes");
        if weights > 1 {
            refused(&bytes, 2 * weights - 1, "out");
        }
        quant::dequantize_row(dtype, &[], &mut []).unwrap();
    }
}

/// The root mean square of the errors over that of the weights.
fn relative_error(weights: &[f32], decoded: &[f32]) -> f64 {
    let errors = weights.iter().zip(decoded).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum::<f64>();
    (errors / weights.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>()).sqrt()
}

#[test]
fn quantizers_err_no_more_than_the_usual_ones() {
    let weights = floats("gaussian.f32");
    let usual = String::from_utf8(fixture("errors.txt")).unwrap();
    for &dtype in DType::ALL {
        let line = usual.lines().find(|line| line.split(' ').next() == Some(dtype.name())).unwrap();
        let usual = line.split(' ').nth(1).unwrap().parse::<f64>().unwrap();
        let error = relative_error(&weights, &dequantize(dtype, &quantize(dtype, &weights)));
        assert!(error <= 1.05 * usual, "{dtype}: {error}, where others reach {usual}");
    }
}

#[test]
fn quantizers_take_degenerate_blocks() {
    for &dtype in DType::ALL {
        let n = 2 * dtype.block_weights();
        assert!(dequantize(dtype, &quantize(dtype, &vec![0.0; n])).iter().all(|&x| x == 0.0), "{dtype}");
        // Halves cannot hold a scale this small: zero is the nearest.
        assert!(
            dequantize(dtype, &quantize(dtype, &vec![1e-30; n])).iter().all(|&x| (0.0..=1e-29).contains(&x)),
            "{dtype}"
        );
        for constant in [1.5, -1.5] {
            let weights = vec![constant; n];
            let error = relative_error(&weights, &dequantize(dtype, &quantize(dtype, &weights)));
            assert!(error < 0.02, "{dtype}: {error}");
        }
    }
}
