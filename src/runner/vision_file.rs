//! Finds the file of a model's vision encoder.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, Result};

/// The file of the vision encoder that a builder loads with a model.
#[derive(Clone, Debug, Default)]
pub(super) enum VisionFile {
    /// The only file `mmproj*.gguf` beside the model, if there is one and it fits the model.
    #[default]
    Beside,
    /// This file.
    At(PathBuf),
    /// None.
    Without,
}

/// The reason why a runner has no vision encoder.
#[derive(Clone, Debug)]
pub(super) enum NoVision {
    /// There is none beside the model.
    Missing,
    /// The program did not want it.
    Unwanted,
    /// It cannot be used with the model.
    Unusable { path: PathBuf, error: Arc<Error> },
}

/// Returns the file `mmproj*.gguf` in the folder of a model; `None` if there is none.
///
/// # Errors
/// [`Error::Argument`] if there are several, with their names.
pub(super) fn beside(model: &Path) -> Result<Option<PathBuf>> {
    let folder = if model.is_dir() { Some(model) } else { model.parent() };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A folder that cannot be listed has no file that is known to be there.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| is_encoder(path) && path != model).collect();
    found.sort();
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|path| format!("`{}`", path.display())).collect();
        let what = format!(
            "has several candidates beside `{}`: {}; choose one with `Runner::builder().vision(..)`, or none with \
             `without_vision()`",
            model.display(),
            names.join(", ")
        );
        return Err(Error::argument("vision", what));
    }
    Ok(found.pop())
}

fn is_encoder(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.starts_with("mmproj") && name.ends_with(".gguf")
}
