// Declares what the two kernels of attention of more than 16 tokens have in common.
//
// Macros:
//   seen(window, seen_range, records) - without a range, declares `seen(position, last, scores)`,
//     which masks the scores of four positions for a token at position `last`: the scores of later
//     positions, and of positions before the window, become LOWEST. With a range,
//     declares `bounds_of(token, position)`, the first position that a token sees and the end, and
//     `seen(position, bounds, scores)`, which masks the scores of positions outside
//   block_range(query_blocks_at, table) - binds the block's `first_token`, number of `tokens`,
//     `first_position` and page table `pages`; the `PositionRange`s of the blocks start at word
//     `query_blocks_at`
//   sight(window, seen_range, tile) - the first position that the block's first token sees, rounded
//     down to a multiple of `tile`
//   block_end(seen_range) - the end of the positions that the block's last token sees
{% from "shared/window" import first_seen %}
{% macro seen(window, seen_range, records) %}
{% if seen_range %}
fn bounds_of(token: u32, position: u32) -> vec2<u32> {
    let at = {{records.at + seen_range.at}}u + token * {{records.words}}u;
    {% if seen_range.past %}
    return vec2({{ first_seen(window, "(position + 1u)") if window else "0u" }}, max(position + 1u, step[at + 1u]));
    {% else %}
    return vec2(step[at], step[at + 1u]);
    {% endif %}
}

fn seen(position: u32, bounds: vec2<u32>, scores: vec4<f32>) -> vec4<f32> {
    let positions = vec4(position) + vec4(0u, 1u, 2u, 3u);
    return select(scores, vec4(LOWEST), (positions < vec4(bounds.x)) | (positions >= vec4(bounds.y)));
}
{% else %}
fn seen(position: u32, last: u32, scores: vec4<f32>) -> vec4<f32> {
    let positions = vec4(position) + vec4(0u, 1u, 2u, 3u);
    {% if window %}
    let first = {{ first_seen(window, "(last + 1u)") }};
    return select(scores, vec4(LOWEST), (positions > vec4(last)) | (positions < vec4(first)));
    {% else %}
    return select(scores, vec4(LOWEST), positions > vec4(last));
    {% endif %}
}
{% endif %}
{% endmacro %}

{% macro block_range(query_blocks_at, table) %}
    // The last blocks of a run have the most positions, so they start first.
    let at = {{query_blocks_at}}u + (count.x - 1u - id.x) * RANGE_WORDS;
    let first_token = step[at + RANGE_FIRST_TOKEN];
    let tokens = step[at + RANGE_TOKENS];
    let first_position = step[at + RANGE_FIRST_POSITION];
    let pages = step[at + RANGE_PAGES] + {{table}}u;
{% endmacro %}

{% macro block_end(seen_range) %}
{%- if seen_range %}bounds_of(first_token + tokens - 1u, first_position + tokens - 1u).y
{%- else %}first_position + tokens
{%- endif %}
{%- endmacro %}

{% macro sight(window, seen_range, tile) %}
{%- if seen_range %}bounds_of(first_token, first_position).x / {{tile}}u * {{tile}}u
{%- elif window %}{{ first_seen(window, "(first_position + 1u)") }} / {{tile}}u * {{tile}}u{% else %}0u{% endif %}
{%- endmacro %}
