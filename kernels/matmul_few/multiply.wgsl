// Multiplies one unit of `u` of each row of the parts `joined` with the same unit of each row `x`.
//
// Macros, for a `MatMulFew`'s parameters:
//   multiply(joined, rows, tokens, columns, x_units, x_norm) - adds the products to `sums`; `row{r}` are the
//     rows of the parts, `rows` of each part; `q8_{t}` and `f32_{t}` are the starts of the `tokens`
//     rows `x` of `columns` elements, in int8 `x_units` units with all heads; with `x_norm`, also adds their squares
{% macro multiply(joined, rows, tokens, columns, x_units, x_norm) %}
    {% for part in joined %}{% set first = loop.index0 * rows %}{% for r in range(rows) %}
    let w{{first + r}} = {{ "unit" if part.matrix.coded else "values" }}{{part.matrix.number}}(row{{first + r}}, u);
    {% endfor %}{% endfor %}
    {% for t in range(tokens) %}
    {% if joined | selectattr("matrix.coded") %}
    let lo{{t}} = x_q8[q8_{{t}} + u];
    let hi{{t}} = x_q8[q8_{{t}} + {{x_units}}u + u];
    let scales{{t}} = bitcast<vec4<f32>>(x_q8[q8_{{t}} + {{2 * x_units}}u + u]);
    {% if x_norm %}
    sums.squares{{t}} += scales{{t}}.w;
    {% endif %}
    {% elif x_norm %}
    sums.squares{{t}} += bitcast<f32>(x_q8[q8_{{t}} + {{2 * x_units}}u + u].w);
    {% endif %}
    {% if joined | rejectattr("matrix.coded") %}
    {% for v in range(8) %}
    {% if columns % 32 and v * 4 + 4 > columns % 32 %}
    let f{{t}}_{{v}} = only_columns(x_f32[f32_{{t}} + 8u * u + {{v}}u], u, {{4 * v}}u);
    {% else %}
    let f{{t}}_{{v}} = x_f32[f32_{{t}} + 8u * u + {{v}}u];
    {% endif %}
    {% endfor %}
    {% endif %}
    {% for part in joined %}{% set first = loop.index0 * rows %}{% for r in range(rows) %}{% set n = first + r %}
    {% if part.matrix.scales == 1 %}
    {
        let product = w{{n}}.scale.x * f32(dot_half(w{{n}}.lo, lo{{t}}) + dot_half(w{{n}}.hi, hi{{t}}));
        let before = fma(scales{{t}}.x, product, sums.s{{n}}_{{t}});
        sums.s{{n}}_{{t}} = fma(-w{{n}}.min.x, scales{{t}}.y + scales{{t}}.z, before);
    }
    {% elif part.matrix.coded %}
    {
        let low = w{{n}}.scale.x * f32(dot_half(w{{n}}.lo, lo{{t}}));
        let product = fma(w{{n}}.scale.y, f32(dot_half(w{{n}}.hi, hi{{t}})), low);
        let before = fma(scales{{t}}.x, product, sums.s{{n}}_{{t}});
        sums.s{{n}}_{{t}} = fma(-w{{n}}.min.y, scales{{t}}.z, fma(-w{{n}}.min.x, scales{{t}}.y, before));
    }
    {% else %}
    sums.s{{n}}_{{t}} += {% for v in range(8) %}{{ " + " if v }}dot(w{{n}}.v{{v}}, f{{t}}_{{v}}){% endfor %};
    {% endif %}
    {% endfor %}{% endfor %}
    {% endfor %}
{% endmacro %}
