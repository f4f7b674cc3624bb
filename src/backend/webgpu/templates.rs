//! The kernels as text: templates in WGSL, and what they come to for a shape.

use minijinja::{Environment, UndefinedBehavior, value::Serde};
use serde_json::Value;

use crate::{Error, Result};

/// The kernels, by name.
const TEMPLATES: &[(&str, &str)] = &[
    ("prelude", include_str!("../../../kernels/prelude.wgsl")),
    ("reduce", include_str!("../../../kernels/reduce.wgsl")),
    ("codes", include_str!("../../../kernels/codes.wgsl")),
    ("soft_cap", include_str!("../../../kernels/soft_cap.wgsl")),
    ("cached", include_str!("../../../kernels/cached.wgsl")),
    ("matmul_few", include_str!("../../../kernels/matmul_few.wgsl")),
    ("group", include_str!("../../../kernels/group.wgsl")),
    ("combine", include_str!("../../../kernels/combine.wgsl")),
    ("route", include_str!("../../../kernels/route.wgsl")),
    ("matmul_tiled", include_str!("../../../kernels/matmul_tiled.wgsl")),
    ("matmul_coop", include_str!("../../../kernels/matmul_coop.wgsl")),
    ("attention_step", include_str!("../../../kernels/attention_step.wgsl")),
    ("attention_combine", include_str!("../../../kernels/attention_combine.wgsl")),
    ("attention_prefill", include_str!("../../../kernels/attention_prefill.wgsl")),
    ("attention_prefill_coop", include_str!("../../../kernels/attention_prefill_coop.wgsl")),
    ("append", include_str!("../../../kernels/append.wgsl")),
    ("heads", include_str!("../../../kernels/heads.wgsl")),
    ("rows", include_str!("../../../kernels/rows.wgsl")),
    ("short_conv", include_str!("../../../kernels/short_conv.wgsl")),
    ("gated_delta", include_str!("../../../kernels/gated_delta.wgsl")),
    ("gated_delta_chunks", include_str!("../../../kernels/gated_delta_chunks.wgsl")),
    ("gated_delta_pass", include_str!("../../../kernels/gated_delta_pass.wgsl")),
    ("elementwise", include_str!("../../../kernels/elementwise.wgsl")),
    ("argmax", include_str!("../../../kernels/argmax.wgsl")),
    ("best", include_str!("../../../kernels/best.wgsl")),
];

/// All templates.
pub(super) struct Templates(Environment<'static>);

impl Templates {
    pub fn new() -> Result<Self> {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Chainable);
        for (name, source) in TEMPLATES {
            let added = templates.add_template(name, source);
            added.map_err(|error| Error::Graph(format!("kernel `{name}`: {error:#}")))?;
        }
        Ok(Self(templates))
    }

    /// The kernel of this name for these values.
    pub fn render(&self, template: &str, values: &Value) -> Result<String> {
        let wrong = |error: minijinja::Error| Error::Graph(format!("kernel `{template}`: {error:#}"));
        let template = self.0.get_template(template).map_err(wrong)?;
        template.render(minijinja::Value::from(Serde(values))).map_err(wrong)
    }

    /// A text that is itself a template.
    pub fn render_text(&self, text: &str, values: &Value) -> Result<String> {
        let rendered = self.0.render_str(text, minijinja::Value::from(Serde(values)));
        rendered.map_err(|error| Error::Graph(format!("a format's decoder: {error:#}")))
    }
}
