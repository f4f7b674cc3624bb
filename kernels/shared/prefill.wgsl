// Declares what the two kernels of attention of more than 16 tokens have in common.
//
// Macros:
//   seen(window) - declares `seen(position, last, scores)`, which masks the scores of four
//     positions for a token at position `last`: the scores of later positions, and of positions
//     before the last `window` ones, become LOWEST
//   block_range(query_blocks_at, table) - binds the block's `first_token`, number of `tokens`,
//     `first_position` and page table `pages`; the `PositionRange`s of the blocks start at word
//     `query_blocks_at`
//   sight(window, tile) - the first position that the block's first token sees, rounded down to a
//     multiple of `tile`
{% macro seen(window) %}
fn seen(position: u32, last: u32, scores: vec4<f32>) -> vec4<f32> {
    let positions = vec4(position) + vec4(0u, 1u, 2u, 3u);
    {% if window %}
    return select(scores, vec4(LOWEST), (positions > vec4(last)) | (positions + {{window}}u <= vec4(last)));
    {% else %}
    return select(scores, vec4(LOWEST), positions > vec4(last));
    {% endif %}
}
{% endmacro %}

{% macro block_range(query_blocks_at, table) %}
    // The last blocks of a run have the most positions, so they start first.
    let at = {{query_blocks_at}}u + (count.x - 1u - id.x) * RANGE_WORDS;
    let first_token = step[at + RANGE_FIRST_TOKEN];
    let tokens = step[at + RANGE_TOKENS];
    let first_position = step[at + RANGE_FIRST_POSITION];
    let pages = step[at + RANGE_PAGES] + {{table}}u;
{% endmacro %}

{% macro sight(window, tile) %}
{%- if window %}(max(first_position + 1u, {{window}}u) - {{window}}u) / {{tile}}u * {{tile}}u{% else %}0u{% endif %}
{%- endmacro %}
