// Writes rows as int8 in blocks of 32 columns.
//
// A row of n blocks has four words of the first 16 int8 of each block, then four words of the last
// 16 of each, then four f32 for each: the scale; the sum of the first 16 int8, times the scale; the
// sum of the last 16, times the scale; and for rows with a pending norm, the sum of the squares
// before the norm's weights. So invocations that read consecutive blocks read consecutive words.
//
// Macros:
//   q8_word(blocks, block, word) - the place, in a row of `blocks` blocks, of word `word` of eight
//     of a block
//   write_q8(blocks, capacity, subgroup) - declares `write_q8(value, factor, row, block, local,
//     is_active)`, which writes a block of `value * factor` to row `row` of `y_q8`. All invocations
//     of a workgroup must call it. The 32 invocations of a block are consecutive, the first at a
//     multiple of 32; inactive blocks are not written. `blocks` is the number of blocks of a row,
//     `capacity` the largest number of active invocations, `subgroup` the smallest subgroup, if
//     subgroup operations are used
{% macro q8_word(blocks, block, word) %}4u * {{block}} + ({{word}}) % 4u + ({{word}}) / 4u * {{4 * blocks}}u{% endmacro %}

{% macro write_q8(blocks, capacity, subgroup) %}
{% if subgroup and subgroup >= 32 %}
fn write_q8(value: f32, factor: f32, row: u32, block: u32, local: u32, is_active: bool) {
    if !is_active {
        return;
    }
    let y = value * factor;
    var peak = abs(y);
    {% for shift in [1, 2, 4, 8, 16] %}
    peak = max(peak, subgroupShuffleXor(peak, {{shift}}u));
    {% endfor %}
    let code = round(select(127.0 / peak, 0.0, peak == 0.0) * y);
    var word = (u32(i32(code)) & 255u) << (local % 4u * 8u);
    word |= subgroupShuffleXor(word, 1u);
    word |= subgroupShuffleXor(word, 2u);
    var sum = code;
    var squares = value * value;
    {% for shift in [1, 2, 4, 8] %}
    sum += subgroupShuffleXor(sum, {{shift}}u);
    squares += subgroupShuffleXor(squares, {{shift}}u);
    {% endfor %}
    let other_sum = subgroupShuffleXor(sum, 16u);
    squares += subgroupShuffleXor(squares, 16u);
    let i = local % 32u;
    if i % 4u == 0u {
        y_q8[row * {{12 * blocks}}u + {{ q8_word(blocks, "block", "i / 4u") }}] = word;
    }
    if i == 0u {
        let scale = peak / 127.0;
        let head = row * {{12 * blocks}}u + {{8 * blocks}}u + 4u * block;
        y_q8[head] = bitcast<u32>(scale);
        y_q8[head + 1u] = bitcast<u32>(scale * sum);
        y_q8[head + 2u] = bitcast<u32>(scale * other_sum);
        y_q8[head + 3u] = bitcast<u32>(squares);
    }
}
{% else %}
// By invocation, the value times the factor and the value.
var<workgroup> block_values: array<vec2<f32>, {{capacity}}>;

fn write_q8(value: f32, factor: f32, row: u32, block: u32, local: u32, is_active: bool) {
    workgroupBarrier();
    if is_active {
        block_values[local] = vec2(value * factor, value);
    }
    workgroupBarrier();
    let i = local % 32u;
    if !is_active || i % 4u != 0u {
        return;
    }
    var peak = 0.0;
    for (var j = 0u; j < 32u; j++) {
        peak = max(peak, abs(block_values[local - i + j].x));
    }
    let inverse = select(127.0 / peak, 0.0, peak == 0.0);
    let four = vec4(
        block_values[local].x,
        block_values[local + 1u].x,
        block_values[local + 2u].x,
        block_values[local + 3u].x,
    );
    y_q8[row * {{12 * blocks}}u + {{ q8_word(blocks, "block", "i / 4u") }}] = pack4xI8(vec4<i32>(round(inverse * four)));
    if i == 0u {
        var sums = vec2(0.0);
        var squares = 0.0;
        for (var j = 0u; j < 32u; j++) {
            sums[j / 16u] += round(inverse * block_values[local + j].x);
            squares += block_values[local + j].y * block_values[local + j].y;
        }
        let scale = peak / 127.0;
        let head = row * {{12 * blocks}}u + {{8 * blocks}}u + 4u * block;
        y_q8[head] = bitcast<u32>(scale);
        y_q8[head + 1u] = bitcast<u32>(scale * sums.x);
        y_q8[head + 2u] = bitcast<u32>(scale * sums.y);
        y_q8[head + 3u] = bitcast<u32>(squares);
    }
}
{% endif %}
{% endmacro %}
