// IQ3_XXS: 8 bytes of points a unit, then a word of signs and scale, then an f16 scale of the scales
// for eight units, then the grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[2]}}u + i / 16u], i / 8u);
    let points = vec2(small{{matrix.number}}[2u * i], small{{matrix.number}}[2u * i + 1u]);
    let word = small{{matrix.number}}[{{matrix.planes[1]}}u + i];
    {% for k in range(8) %}
    let signs{{k}} = even_signs(word >> {{k // 2 * 7}}u){{ " >> 4u" if k % 2 }};
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + ((points.{{"xy"[k // 4]}} >> {{k % 4 * 8}}u) & 255u)];
    {% endfor %}
    let lo = vec4({% for k in range(4) %}with_signs(point{{k}}, signs{{k}}), {% endfor %});
    let hi = vec4({% for k in range(4, 8) %}with_signs(point{{k}}, signs{{k}}), {% endfor %});
    return Unit(lo, hi, vec2(0.5 * d * (f32(word >> 28u) + 0.5)), vec2(0.0));
}
