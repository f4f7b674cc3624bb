// Writes values in 8 bits, 32 neighbours a block: an invocation for each. A block's neighbours are neighbouring
// invocations, the first at a multiple of 32. All of a workgroup come here together; blocks that are not `active` are
// left out.
{% if subgroup and subgroup >= 32 %}
fn write_codes(value: f32, factor: f32, row: u32, block: u32, local: u32, active_: bool) {
    if !active_ {
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
        y_codes[row * {{12 * out_blocks}}u + 8u * block + i / 4u] = word;
    }
    if i == 0u {
        let scale = peak / 127.0;
        let head = row * {{12 * out_blocks}}u + {{8 * out_blocks}}u + 4u * block;
        y_codes[head] = bitcast<u32>(scale);
        y_codes[head + 1u] = bitcast<u32>(scale * sum);
        y_codes[head + 2u] = bitcast<u32>(scale * other_sum);
        y_codes[head + 3u] = bitcast<u32>(squares);
    }
}
{% else %}
var<workgroup> block_values: array<vec2<f32>, {{emitting}}>;

fn write_codes(value: f32, factor: f32, row: u32, block: u32, local: u32, active_: bool) {
    workgroupBarrier();
    if active_ {
        block_values[local] = vec2(value * factor, value);
    }
    workgroupBarrier();
    let i = local % 32u;
    if !active_ || i % 4u != 0u {
        return;
    }
    var peak = 0.0;
    for (var j = 0u; j < 32u; j++) {
        peak = max(peak, abs(block_values[local - i + j].x));
    }
    let inverse = select(127.0 / peak, 0.0, peak == 0.0);
    let four = vec4(block_values[local].x, block_values[local + 1u].x, block_values[local + 2u].x, block_values[local + 3u].x);
    y_codes[row * {{12 * out_blocks}}u + 8u * block + i / 4u] = pack4xI8(vec4<i32>(round(inverse * four)));
    if i == 0u {
        var sums = vec2(0.0);
        var squares = 0.0;
        for (var j = 0u; j < 32u; j++) {
            sums[j / 16u] += round(inverse * block_values[local + j].x);
            squares += block_values[local + j].y * block_values[local + j].y;
        }
        let scale = peak / 127.0;
        let head = row * {{12 * out_blocks}}u + {{8 * out_blocks}}u + 4u * block;
        y_codes[head] = bitcast<u32>(scale);
        y_codes[head + 1u] = bitcast<u32>(scale * sums.x);
        y_codes[head + 2u] = bitcast<u32>(scale * sums.y);
        y_codes[head + 3u] = bitcast<u32>(squares);
    }
}
{% endif %}
