// F32: 128 bytes a unit.
fn values{{p}}(row: u32, u: u32) -> Values {
    let i = (row * {{units}}u + u) * 8u;
    return Values(
        {% for k in range(8) %}bitcast<vec4<f32>>(wide{{p}}[i + {{k}}u]),{% endfor %}
    );
}
