//! Parses and renders the WGSL templates of `kernels/`.

use minijinja::{Environment, UndefinedBehavior, Value};

use crate::{DType, Error, Result, quant};

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        /// The templates with their names, by which they include one another.
        pub(super) const SOURCES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../kernels/", $name, ".wgsl")))),*];
    };
}

sources! {
    "append",
    "append/rotate",
    "argmax",
    "attention_combine",
    "attention_prefill",
    "attention_prefill_coop",
    "attention_step",
    "attention_step/cached",
    "attention_step/queries",
    "attention_step/score",
    "attention_step/sum",
    "attention_step/sum_keys",
    "attention_step/total",
    "attention_step/weigh",
    "attention_step/write",
    "best",
    "combine",
    "deviation",
    "elementwise",
    "gated",
    "gated_delta",
    "gated_delta_chunks",
    "gated_delta_pass",
    "group",
    "heads",
    "layer_norm",
    "matmul_coop",
    "matmul_few",
    "matmul_few/main",
    "matmul_few/multiply",
    "matmul_tiled",
    "mix_streams",
    "route",
    "rows",
    "shared/activations",
    "shared/bindings",
    "shared/delta",
    "shared/entry",
    "shared/half",
    "shared/none",
    "shared/prefill",
    "shared/q8",
    "shared/reduce",
    "shared/rotation",
    "shared/row_count",
    "shared/runs",
    "shared/soft_cap",
    "shared/stack",
    "shared/tiled",
    "shared/units",
    "shared/window",
    "short_conv",
    "state_scan",
    "step_rows",
}

/// All templates.
pub(super) struct Templates(Environment<'static>);

impl Templates {
    /// Parses the templates.
    ///
    /// # Errors
    /// [`Error::Internal`] if a template cannot be parsed, which the tests rule out.
    pub fn new() -> Result<Self> {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        for (name, source) in SOURCES {
            templates.add_template(name, source).map_err(|error| failed(name, &error))?;
        }
        // The decoder of a format is in its row of the table of formats.
        for dtype in DType::ALL {
            let decoder = quant::format(*dtype).planes.decoder;
            templates.add_template(dtype.name(), decoder).map_err(|error| failed(dtype.name(), &error))?;
        }
        Ok(Self(templates))
    }

    /// Renders a template.
    ///
    /// # Errors
    /// [`Error::Internal`] if the template reads a variable that is not in `variables`.
    pub fn render(&self, name: &str, variables: &Value) -> Result<String> {
        let rendered = self.0.get_template(name).and_then(|template| template.render(variables));
        rendered.map_err(|error| failed(name, &error))
    }

    /// Returns the parsed templates.
    #[cfg(test)]
    pub fn environment(&self) -> &Environment<'static> {
        &self.0
    }
}

fn failed(name: &str, error: &minijinja::Error) -> Error {
    Error::internal(format!("kernel `{name}`: {error:#}"))
}
