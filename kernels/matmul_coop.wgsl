// Computes products of more than 16 rows, y[t, n] = sum over k of x[t, k] w[n, k], on matrix units
// (cooperative matrices of f16 with f32 sums).
//
// One dispatch computes the products of one x with several matrices, each of which is a part.
// Workgroup (i, j) computes tile j of the rows w for tile i of the rows x, and decodes its weights
// once. With experts the rows of the result are slots, and `tiles` lists their tiles.
//
// Parameters (`MatMulCoop`):
//   product: TiledProduct - the product
//   patch: SubgroupTile - the part of the tile that a subgroup computes
//   patch.tokens: u32 - rows x, a multiple of 16
//   patch.rows: u32 - rows w, a multiple of 16
//   patch.slices: u32 - number of subgroups that compute the same rows, each for its slice of the
//     tile's columns
//   subgroup_size: u32 - invocations of a subgroup
//
// Buffers:
//   x: vec4<f16>
//   x_scale: f32 - the scale of each row x
//   tiles: vec4<u32> - for each tile its expert, or NONE, its first slot, the slot after its last,
//     0
//   token_of: u32 - the token of each slot
//   wide{n}: vec4<u32> - the planes of a matrix
//   small{n}: u32 - the planes of a matrix, word by word
//   biases{n}: f32 - the vector that is added to each row of a part's products
//   out{n}: f32, written - the result of a part

enable f16;
enable wgpu_cooperative_matrix;
diagnostic(off, derivative_uniformity);

{% from "shared/row_count" import row_count %}
{% from "shared/tiled" import activations, dispatch_part, product_parameters, row_count_of, store, w_row, x_quad, x_row %}
{% set tile = product.tile %}
{% set threads = tile.threads %}
{% set subgroups = threads // subgroup_size %}
{% set quads = tile.columns // 4 %}
{% set tile_units = tile.columns // 32 %}
{% set x_loads = tile.tokens * quads // threads %}
{% set w_units = tile.rows * tile_units %}
{% set w_loads = (w_units + threads - 1) // threads %}
{% set tall = patch.tokens // 16 %}
{% set wide = patch.rows // 16 %}
{% set slices = patch.slices %}
// Four columns beyond the tile keep the rows of a 16 by 16 load in different banks.
const PITCH = {{quads + 2}}u;

{% include "shared/bindings" %}
{% include "shared/units" %}
{{ activations(product) }}

var<workgroup> x_tile: array<vec4<f16>, {{tile.tokens * (quads + 2)}}>;
var<workgroup> w_tile: array<vec4<f16>, {{tile.rows * (quads + 2)}}>;
// Where each subgroup lays a 16 by 16 block of sums to reach its elements.
var<workgroup> sums: array<f32, {{subgroups * 256}}>;

{% for part in product.parts %}
{% set matrix = part.matrix %}
{% set n = matrix.number %}
{% include matrix.format %}

fn product{{n}}(
    first_token: u32,
    first_row: u32,
    thread: u32,
    subgroup: u32,
    lane: u32{{ product_parameters(product) }},
) {
    let patch_index = subgroup / {{slices}}u;
    let slice = subgroup % {{slices}}u;
    let patch_token = patch_index / {{tile.rows // patch.rows}}u * {{patch.tokens}}u;
    let patch_row = patch_index % {{tile.rows // patch.rows}}u * {{patch.rows}}u;
    let slice_at = slice * {{quads // slices}}u;
    {% for i in range(tall) %}{% for j in range(wide) %}
    var sum{{i}}_{{j}} = coop_mat16x16<f32, C>();
    {% endfor %}{% endfor %}

    {% for l in range(x_loads) %}
    {% if product.experts %}
    let from{{l}} = min(first_token + (thread + {{l * threads}}u) / {{quads}}u, tokens - 1u);
    {% else %}
    let from{{l}} = first_token + (thread + {{l * threads}}u) / {{quads}}u;
    {% endif %}
    let x_at{{l}} = {{ x_row(product, "from" ~ l) }} * {{product.x_stride // 4}}u + {{ x_quad(product, "thread % " ~ quads ~ "u") }};
    var x{{l}} = x[x_at{{l}}];
    {% endfor %}
    {% for l in range(w_loads) %}
    let row{{l}} = min((thread + {{l * threads}}u) / {{tile_units}}u, {{tile.rows - 1}}u);
    let w_row{{l}} = {{ w_row(part, "first_row + row" ~ l) }};
    var w{{l}} = {{ "unit" if matrix.coded else "values" }}{{n}}(w_row{{l}}, thread % {{tile_units}}u);
    {% endfor %}

    for (var k = {{tile.columns}}u; k <= {{product.columns}}u; k += {{tile.columns}}u) {
        workgroupBarrier();
        {% for l in range(x_loads) %}
        x_tile[(thread + {{l * threads}}u) / {{quads}}u * PITCH + thread % {{quads}}u] = x{{l}};
        {% endfor %}
        {% for l in range(w_loads) %}
        {{ "if thread < " ~ (w_units - l * threads) ~ "u " if (l + 1) * threads > w_units }}{
            let values = {{ "values_of(w" ~ l ~ ")" if matrix.coded else "w" ~ l }};
            let at = row{{l}} * PITCH + thread % {{tile_units}}u * 8u;
            {% for i in range(8) %}
            w_tile[at + {{i}}u] = vec4<f16>(values.v{{i}});
            {% endfor %}
        }
        {% endfor %}
        workgroupBarrier();

        // The next tile is loaded while this one is multiplied; the last tile is loaded twice.
        let next = min(k, {{product.columns - tile.columns}}u);
        {% for l in range(x_loads) %}
        x{{l}} = x[x_at{{l}} + next / 4u];
        {% endfor %}
        {% for l in range(w_loads) %}
        w{{l}} = {{ "unit" if matrix.coded else "values" }}{{n}}(w_row{{l}}, next / 32u + thread % {{tile_units}}u);
        {% endfor %}

        {% for s in range(tile.columns // 16 // slices) %}
        {
            {% for i in range(tall) %}
            let x_corner{{i}} = (patch_token + {{16 * i}}u) * PITCH + slice_at + {{4 * s}}u;
            let left{{i}} = coopLoadT<coop_mat16x16<f16, A>>(&x_tile[x_corner{{i}}], PITCH);
            {% endfor %}
            {% for j in range(wide) %}
            let w_corner{{j}} = (patch_row + {{16 * j}}u) * PITCH + slice_at + {{4 * s}}u;
            let right{{j}} = coopLoad<coop_mat16x16<f16, B>>(&w_tile[w_corner{{j}}], PITCH);
            {% for i in range(tall) %}
            sum{{i}}_{{j}} = coopMultiplyAdd(left{{i}}, right{{j}}, sum{{i}}_{{j}});
            {% endfor %}{% endfor %}
        }
        {% endfor %}
    }

    {{ row_count_of(product, row_count(product.rows)) }}
    let corner = subgroup * 256u;
    let pitch = 16u;
    {% for i in range(tall) %}{% for j in range(wide) %}
    {
        let block = sum{{i}}_{{j}};
        workgroupBarrier();
        coopStoreT(block, &sums[corner], pitch);
        workgroupBarrier();
        // The subgroups of a patch divide the elements of its block.
        for (var e = slice * {{subgroup_size}}u + lane; e < 256u; e += {{slices * subgroup_size}}u) {
            let token = first_token + patch_token + {{16 * i}}u + e / 16u;
            let row = first_row + patch_row + {{16 * j}}u + e % 16u;
            {% if slices == 1 %}
            let total = sums[corner + e];
            {% else %}
            let first = patch_index * {{256 * slices}}u + e;
            let total = {% for s in range(slices) %}{{ " + " if s }}sums[first + {{256 * s}}u]{% endfor %};
            {% endif %}
            {{ store(part, product.heads, "x_scale[" ~ x_row(product, "token") ~ "] * total") }}
        }
    }
    {% endfor %}{% endfor %}
}
{% endfor %}

@compute @workgroup_size({{threads}})
fn main(
    @builtin(workgroup_id) tile: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    {{ dispatch_part(product, "thread, subgroup, lane") }}
}
