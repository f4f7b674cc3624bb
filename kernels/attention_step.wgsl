// Computes attention of single tokens over the cache.
//
// A workgroup attends to a split of up to `shape.split` positions, with `shape.lanes` query heads
// that share a key-value head. First each invocation scores the positions of one word of keys. Keys
// are stored element by element, so this needs no sums across invocations. Then the values of the
// split are summed, with an invocation for each word of elements, or of keys as values with an
// invocation for each element. The positions of a token that sees
// more than `unsplit_positions` are split, and `attention_combine.wgsl` merges the partial results.
//
// With `new`, the token's own key and value are not read from the cache. With `new.appends` they are
// not there yet, and the workgroup of the last split appends them.
//
// Parameters (`AttentionStep`):
//   shape: StepShape - the division of the work
//   shape.workgroup: u32 - invocations of a workgroup
//   shape.split: u32 - largest number of positions that a workgroup attends to
//   shape.group_heads: u32 - query heads that share a key-value head
//   shape.lanes: u32 - query heads of a workgroup: 1, 2 or 4
//   shape.chunks: u32 - workgroups of a key-value head's query heads
//   shape.words_at_once: u32 - words of a value that are read at a time, by an invocation each
//   shape.groups: u32 - positions whose values are read at the same time, a power of two
//   shape.keys_at_once: u32 - words of keys that an invocation reads ahead
//   shape.values_at_once: u32 - words of values that an invocation reads ahead, for each of its
//     words of a position
//   shape.fewest_words: u32 - smallest number of words of keys among which invocations are divided,
//     a power of two
//   shape.shared: u32 - elements of the workgroup's memory for partial scores, weights and partial
//     sums, in turn
//   unsplit_positions: u32 - largest number of positions of a token that are not split
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   cache: PagedCache - the layer's cache
//   heads: u32 - number of query heads
//   scores: ScoreParams - the operations on scores
//   records: Records - the tokens' records
//   tables_at: u32 - the first word, in the step's buffer, of its page tables
//   sinks: BoundBuffer? - a further score of each head, of a value of 0, if there are sinks
//   q: Strided - the queries, `[tokens, heads, head_dim]`; before norm and rotation if there is
//     `new.before`
//   output: AttentionOutput? - the result, if a workgroup attends to all positions of a token
//   new: NewToken? - the tokens' own keys and values
//   new.k: Strided - the keys, `[tokens, kv_heads, head_dim]`
//   new.v: Strided - the values, `[tokens, kv_heads, head_dim]`
//   new.appends: bool - whether this kernel appends the keys and values to the cache
//   new.before: NormedRotation - the operations on queries and keys before attention
//   new.before.norms: HeadNorms? - the norms of queries and keys
//   new.before.norms.eps: F32 - added to the mean square
//   new.before.norms.reciprocal: F32 - 1 / the elements of a head
//   new.before.rotation: Rotation - the rotation of queries and keys, after the norms
//
// Buffers:
//   q: f32
//   cache: u32, written by some - the layer's pages
//   y: f32, written - the result, `[tokens, heads, head_dim]`
//   y_q8: u32, written - the result as int8 (`shared/q8.wgsl`)
//   sinks: f32 - `[heads]`
//   partials: f32, written - for each split and head the maximum score, the sum of the weights, and
//     the weighted sum of the values, `[tokens, splits, heads, dim + 2]`
//   k: f32
//   v: f32
//   q_norm: f32 - the weights of the queries' norm, `[head_dim]`
//   k_norm: f32 - the weights of the keys' norm, `[head_dim]`

{% from "shared/entry" import entry, index, invocation %}
{% from "shared/q8" import write_q8 %}
{% from "shared/reduce" import head_squares, invocation_struct, reductions %}
{% from "shared/rotation" import is_first, pair, partner, rotated %}
{% from "shared/soft_cap" import soft_cap %}
{% from "shared/window" import first_seen %}
{% set heads_type = "f32" if shape.lanes == 1 else "vec" ~ shape.lanes ~ "<f32>" %}
{% set before = new.before if new else none %}
{% set appends = new and new.appends %}
{% set writes_q8 = output and output.kind == "q8" %}
{% set dim = cache.dim %}
{% set head_dim = cache.head_dim %}
{% set per_word = cache.per_word %}
{# Words of a value, rounds in which its invocations read it, and words of a head in a page. #}
{% set words = dim // per_word %}
{% set passes = (words + shape.words_at_once - 1) // shape.words_at_once %}
{% set head_words = 64 * words %}
{# The score of a position that is masked: below every score, but finite. #}
{% set lowest = "-3.0e38f" %}
{% include "shared/bindings" %}

alias Heads = {{heads_type}};

{{ invocation_struct(subgroup) }}
{{ reductions("_heads", "Heads", shape.workgroup, subgroup) }}
{% if before and before.norms %}
{{ reductions("", "f32", shape.workgroup, subgroup) }}
{% endif %}
{% include "attention_step/cached" %}
{% if scores.soft_cap %}
{{ soft_cap(scores.soft_cap, heads_type) }}
{% endif %}
{% if writes_q8 %}
{{ write_q8(output.blocks, dim, subgroup) }}
{% endif %}

// The queries, element by element; 0 for heads beyond the last.
var<workgroup> queries: array<Heads, {{dim}}>;
{% if new %}
var<workgroup> new_key: array<f32, {{dim}}>;
{% endif %}
// The first words of the split's pages.
var<workgroup> page_starts: array<u32, {{shape.split // 64}}>;
// In turn the parts of scores, the weights of positions, the parts of the sums.
var<workgroup> shared_heads: array<Heads, {{shape.shared}}>;
{% if subgroup %}
var<workgroup> totals: array<Heads, {{shape.workgroup // subgroup}}>;
{% endif %}
{% if new %}
// The score of the token's own position, then its weight.
var<workgroup> own_score: Heads;
{% endif %}

{% set batch = shape.groups * shape.values_at_once %}
{# Reads the values of a batch of positions; for positions past the last, the last value again. #}
{% macro read_values(start) %}
    if {{start}} + {{batch}}u <= old {
        {% for page in range((batch + 63) // 64) %}
        let at{{page}} = page_starts[({{start}}) / 64u + {{page}}u]
            + values_at + (({{start}}) % 64u + row) * {{words}}u;
        {% endfor %}
        {% for j in range(shape.values_at_once) %}{% for w in range(passes) %}
        value{{j}}_{{w}} = cache[at{{j * shape.groups // 64}} + {{j * shape.groups % 64 * words}}u + column{{w}}];
        {% endfor %}{% endfor %}
    } else {
        {% for j in range(shape.values_at_once) %}
        {
            let i = min({{start}} + {{j * shape.groups}}u + row, last_old);
            let at = page_starts[i / 64u] + values_at + i % 64u * {{words}}u;
            {% for w in range(passes) %}
            value{{j}}_{{w}} = cache[at + column{{w}}];
            {% endfor %}
        }
        {% endfor %}
    }
{% endmacro %}

{{ entry(shape.workgroup, subgroup, numbered=true) }} {
    let index = {{ index(subgroup) }};
    let at = {{ invocation(subgroup) }};
    let token = group.z;
    let record = {{records.at}}u + token * {{records.words}}u;
    let length = step[record + TOKEN_POSITION] + 1u;
    // The first token's page table is the first one, so its start is known without a load.
    var pages = {{tables_at + cache.table}}u;
    if token > 0u {
        pages = step[record + TOKEN_PAGE_TABLE] + {{cache.table}}u;
    }
    let base = group.x * {{shape.split}}u;
    if base >= length || length {{ ">" if output else "<=" }} {{unsplit_positions}}u {
        return;
    }
    {% if scores.window %}
    // The first position in the attention window.
    let sight = {{ first_seen(scores.window, "length") }};
    if base + {{shape.split}}u <= sight {
        return;
    }
    let hidden = max(sight, base) - base;
    {% endif %}
    let kv_head = group.y / {{shape.chunks}}u;
    let chunk = group.y % {{shape.chunks}}u;
    let first_head = chunk * {{shape.lanes}}u;
    let q_at = kv_head * {{shape.group_heads}}u * {{head_dim}}u;
    let end = min(length - base, {{shape.split}}u);
    {% if new %}
    let is_last = base + {{shape.split}}u >= length;
    let old = select(end, end - 1u, is_last);
    {% else %}
    let old = end;
    {% endif %}

    {% if appends %}
    // Loading of the cache's words that receive the token's own key starts here; they are used
    // later.
    let position_now = length - 1u;
    let page_now = step[pages + position_now / 64u * {{cache.tables}}u] * {{cache.page_words}}u;
    let keys_now = page_now + kv_head * {{head_words}}u + position_now % 64u / {{per_word}}u;
    {% endif %}
    if index < {{shape.split // 64}}u && base + index * 64u < length {
        page_starts[index] = step[pages + (base / 64u + index) * {{cache.tables}}u] * {{cache.page_words}}u;
    }

    // For scores an invocation has one word of keys and some of the elements. With fewer words,
    // more invocations share one.
    let words_of_keys = (end + {{per_word - 1}}u) / {{per_word}}u;
    let words_now = max(1u << (32u - countLeadingZeros(words_of_keys - 1u)), {{shape.fewest_words}}u);
    let parts_now = {{shape.workgroup}}u / words_now;
    let word = index % words_now;
    let part = index / words_now;
    let position = word * {{per_word}}u;
    let stretch = ({{dim // shape.keys_at_once}}u + parts_now - 1u) / parts_now * {{shape.keys_at_once}}u;
    {% if cache.matrices == 2 %}
    // For sums an invocation has some words of elements of each `shape.groups`th position.
    let row = min(index / {{shape.words_at_once}}u, {{shape.groups - 1}}u);
    {% for w in range(passes) %}
    let column{{w}} = min({{w * shape.words_at_once}}u + index % {{shape.words_at_once}}u, {{words - 1}}u);
    {% endfor %}
    let values_at = ({{cache.kv_heads}}u + kv_head) * {{head_words}}u;
    let last_old = max(old, 1u) - 1u;
    {% endif %}
    // The first keys are loaded while the queries are computed.
    let own_page = step[pages + (base / 64u + min(position, end - 1u) / 64u) * {{cache.tables}}u];
    let own_keys = own_page * {{cache.page_words}}u + kv_head * {{head_words}}u + position % 64u / {{per_word}}u;
    {% for j in range(shape.keys_at_once) %}
    var key{{j}} =
        cache[own_keys + (min(part * stretch, {{dim - shape.keys_at_once}}u) + {{j}}u) * {{64 // per_word}}u];
    {% endfor %}
    {% include "attention_step/queries" %}
    {% include "attention_step/score" %}
    {% include "attention_step/weigh" %}
    {% if cache.matrices == 1 %}
    {% include "attention_step/sum_keys" %}
    {% else %}
    {% include "attention_step/sum" %}
    {% endif %}
    {% include "attention_step/write" %}
}

{% if not output %}
// Where a head's part lies: its maximum, its total, and its sums.
fn partial_at(token: u32, split: u32, head: u32) -> u32 {
    return ((token * step[SPLITS] + split) * {{heads}}u + head) * {{dim + 2}}u;
}
{% endif %}

// Element `d` of the heads.
fn query(token: u32, at: u32, first_head: u32, d: u32) -> Heads {
    return Heads({% for l in range(shape.lanes) %}head_value(token, at, first_head + {{l}}u, d), {% endfor %});
}

fn head_value(token: u32, at: u32, head: u32, d: u32) -> f32 {
    {% if shape.group_heads % shape.lanes %}
    if head >= {{shape.group_heads}}u {
        return 0.0;
    }
    {% endif %}
    {% if dim > head_dim and not new %}
    if d >= {{head_dim}}u {
        return 0.0;
    }
    {% endif %}
    return q[token * {{q.stride}}u + at + head * {{head_dim}}u + d];
}

{% if before %}
// The cosine and the sine of a pair's rotation.
fn angle(record: u32, pair: u32) -> vec2<f32> {
    let at = record + {{before.rotation.angles_at}}u + 2u * pair;
    return bitcast<vec2<f32>>(vec2(step[at], step[at + 1u]));
}
{% endif %}

{% if new %}
// A number as the cache holds it.
fn kept(x: f32) -> f32 {
    return {{ "unpack2x16float(pack2x16float(vec2(x, 0.0))).x" if cache.format == "f16" else "x" }};
}
{% endif %}

