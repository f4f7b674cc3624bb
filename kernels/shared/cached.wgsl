// Reads the pages of the cache. A page has 64 positions: the keys of each head, element by element,
// then the values of each head, position by position. In q8_0 the scales of the page follow, in the
// same order.
{% if cache == "f32" %}
fn unpacked(word: u32) -> f32 {
    return bitcast<f32>(word);
}
{% elif cache == "f16" %}
fn unpacked(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}
{% else %}
// The scales of four positions' keys.
fn key_scales(page_start: u32, head: u32, block: u32, position: u32) -> vec4<f32> {
    let at = page_start + {{scales_at}}u + (head * {{dim // 32}}u + block) * 32u + position / 2u;
    return vec4(unpack2x16float(cache[at]), unpack2x16float(cache[at + 1u]));
}

fn value_scale(page_start: u32, head: u32, position: u32, block: u32) -> f32 {
    let i = (head * 64u + position) * {{dim // 32}}u + block;
    return half_of(cache[page_start + {{scales_at + kv_heads * dim}}u + i / 2u], i);
}

fn half_of(word: u32, i: u32) -> f32 {
    let pair = unpack2x16float(word);
    return select(pair.x, pair.y, i % 2u == 1u);
}
{% endif %}
