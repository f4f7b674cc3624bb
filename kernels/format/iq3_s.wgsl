// IQ3_S: 8 bytes of points a unit, then a word of signs, then 8 bytes of high bits of points and a
// word of scales for eight units, then an f16 scale of the scales, then the grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let block = i / 8u;
    let g = i % 8u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[3]}}u + block / 2u], block);
    let scale = f32((small{{matrix.number}}[{{matrix.planes[2]}}u + block * 3u + 2u] >> (4u * g)) & 15u);
    let high = small{{matrix.number}}[{{matrix.planes[2]}}u + block * 3u + g / 4u] >> (g % 4u * 8u);
    let points = vec2(small{{matrix.number}}[2u * i], small{{matrix.number}}[2u * i + 1u]);
    let signs = small{{matrix.number}}[{{matrix.planes[1]}}u + i];
    {% for k in range(8) %}
    let index{{k}} = ((points.{{"xy"[k // 4]}} >> {{k % 4 * 8}}u) & 255u) | (((high >> {{k}}u) & 1u) << 8u);
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + index{{k}}];
    {% endfor %}
    let lo = vec4({% for k in range(4) %}with_signs(point{{k}}, signs >> {{4 * k}}u), {% endfor %});
    let hi = vec4({% for k in range(4, 8) %}with_signs(point{{k}}, signs >> {{4 * k}}u), {% endfor %});
    return Unit(lo, hi, vec2(d * (2.0 * scale + 1.0)), vec2(0.0));
}
