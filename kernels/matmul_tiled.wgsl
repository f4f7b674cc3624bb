// Computes products of more than 16 rows, y[t, n] = sum over k of x[t, k] w[n, k], in f32 on any
// adapter.
//
// One dispatch computes the products of one x with several matrices, each of which is a part.
// Workgroup (i, j) computes tile j of the rows w for tile i of the rows x. Its invocations form 16
// columns. Each computes `tile.tokens * 16 / threads` tokens of `tile.rows / 16` rows. With experts
// the rows of the result are slots, and `tiles` lists their tiles.
//
// Parameters (`MatMulTiled`):
//   product: TiledProduct - the product
//
// Buffers:
//   x: vec4<f32>
//   tiles: vec4<u32> - for each tile its expert, or NONE, its first slot, the slot after its last,
//     0
//   token_of: u32 - the token of each slot
//   wide{n}: vec4<u32> - the planes of a matrix
//   small{n}: u32 - the planes of a matrix, word by word
//   biases{n}: f32 - the vector that is added to each row of a part's products
//   out{n}: f32, written - the result of a part

{% from "shared/row_count" import row_count %}
{% from "shared/tiled" import activations, dispatch_part, product_parameters, row_count_of, store, w_row, x_quad, x_row %}
{% set tile = product.tile %}
{% set threads = tile.threads %}
{% set groups = threads // 16 %}
{% set tokens_each = tile.tokens // groups %}
{% set rows_each = tile.rows // 16 %}
{% set x_loads = tile.tokens * 8 // threads %}
{% set w_loads = (tile.rows + threads - 1) // threads %}
{% include "shared/bindings" %}
{% include "shared/units" %}
{{ activations(product) }}

// 32 columns of each token and each row.
var<workgroup> x_tile: array<vec4<f32>, {{tile.tokens * 8}}>;
var<workgroup> w_tile: array<vec4<f32>, {{tile.rows * 8}}>;

// The place of four columns of a row of a tile: neighboring rows start in different banks.
fn place(row: u32, quad: u32) -> u32 {
    return row * 8u + (quad ^ (row % 8u));
}

// Four columns of x; 0 beyond its end.
fn x_at(token: u32, quad: u32) -> vec4<f32> {
    {% if product.width == product.columns %}
    return x[token * {{product.x_stride // 4}}u + quad];
    {% else %}
    let values = x[token * {{product.x_stride // 4}}u + min(quad, {{product.x_stride // 4 - 1}}u)];
    return select(vec4(0.0), values, vec4(quad * 4u) + vec4(0u, 1u, 2u, 3u) < vec4({{product.width}}u));
    {% endif %}
}

{% for part in product.parts %}
{% set matrix = part.matrix %}
{% set n = matrix.number %}
{% include matrix.format %}

fn product{{n}}(first_token: u32, first_row: u32, thread: u32{{ product_parameters(product) }}) {
    {{ row_count_of(product, row_count(product.rows)) }}
    let column = thread % 16u;
    let group = thread / 16u;
    {% for i in range(tokens_each) %}{% for j in range(rows_each) %}
    var sum{{i}}_{{j}} = 0.0;
    {% endfor %}{% endfor %}

    for (var u = 0u; u < {{product.columns // 32}}u; u++) {
        {% for l in range(x_loads) %}
        let token{{l}} = (thread + {{l * threads}}u) / 8u;
        let from{{l}} = min(first_token + token{{l}}, tokens - 1u);
        let x{{l}} = x_at({{ x_row(product, "from" ~ l) }}, {{ x_quad(product, "u * 8u + thread % 8u") }});
        {% endfor %}
        workgroupBarrier();
        {% for l in range(x_loads) %}
        x_tile[place(token{{l}}, thread % 8u)] = x{{l}};
        {% endfor %}
        {% for l in range(w_loads) %}
        {{ "if thread < " ~ (tile.rows - l * threads) ~ "u " if (l + 1) * threads > tile.rows }}{
            let row = thread + {{l * threads}}u;
            let w_row = {{ w_row(part, "first_row + row") }};
            let values = {{ "values_of(unit" ~ n ~ "(w_row, u))" if matrix.coded else "values" ~ n ~ "(w_row, u)" }};
            {% for i in range(8) %}
            w_tile[place(row, {{i}}u)] = values.v{{i}};
            {% endfor %}
        }
        {% endfor %}
        workgroupBarrier();
        for (var quad = 0u; quad < 8u; quad++) {
            {% for j in range(rows_each) %}
            let w{{j}} = w_tile[place({{16 * j}}u + column, quad)];
            {% endfor %}
            {% for i in range(tokens_each) %}
            {
                let values = x_tile[place({{i * groups}}u + group, quad)];
                {% for j in range(rows_each) %}
                sum{{i}}_{{j}} += dot(values, w{{j}});
                {% endfor %}
            }
            {% endfor %}
        }
    }

    {% for i in range(tokens_each) %}{% for j in range(rows_each) %}
    {
        let token = first_token + {{i * groups}}u + group;
        let row = first_row + {{16 * j}}u + column;
        {{ store(part, product.heads, "sum" ~ i ~ "_" ~ j) }}
    }
    {% endfor %}{% endfor %}
}
{% endfor %}

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) tile: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    {{ dispatch_part(product, "thread") }}
}
