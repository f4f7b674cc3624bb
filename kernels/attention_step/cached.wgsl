// Reads the cache; part of `attention_step.wgsl`, whose parameters it reads.
{% if cache.format == "f32" %}
fn unpacked(word: u32) -> f32 {
    return bitcast<f32>(word);
}
{% elif cache.format == "f16" %}
fn unpacked(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}
{% else %}
// The scales of four positions' keys.
fn key_scales(page_start: u32, head: u32, block: u32, position: u32) -> vec4<f32> {
    let at = page_start + {{cache.scales_at}}u + (head * {{cache.dim // 32}}u + block) * 32u + position / 2u;
    return vec4(unpack2x16float(cache[at]), unpack2x16float(cache[at + 1u]));
}

fn value_scale(page_start: u32, head: u32, position: u32, block: u32) -> f32 {
    let i = (head * 64u + position) * {{cache.dim // 32}}u + block;
    return half_of(cache[page_start + {{cache.scales_at + cache.kv_heads * cache.dim}}u + i / 2u], i);
}

{% include "shared/half" %}
{% endif %}
