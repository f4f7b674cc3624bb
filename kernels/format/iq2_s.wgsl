// IQ2_S: a word of four points a unit, then a word of signs, then 8 bytes of high bits of points and
// 8 of scales for eight units, then an f16 scale of the scales, then the grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let block = i / 8u;
    let g = i % 8u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[3]}}u + block / 2u], block);
    let high = small{{matrix.number}}[{{matrix.planes[2]}}u + block * 4u + g / 4u] >> (g % 4u * 8u);
    let scales = vec2(small{{matrix.number}}[{{matrix.planes[2]}}u + block * 4u + 2u + g / 4u] >> (g % 4u * 8u)) >> vec2(0u, 4u);
    let points = small{{matrix.number}}[i];
    let signs = small{{matrix.number}}[{{matrix.planes[1]}}u + i];
    {% for k in range(4) %}
    let signs{{k}} = signs >> {{8 * k}}u;
    let index{{k}} = ((points >> {{8 * k}}u) & 255u) | (((high >> {{2 * k}}u) & 3u) << 8u);
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + index{{k}}];
    {% endfor %}
    {% for k in range(4) %}
    let even{{k}} = with_signs(uneven_values(point{{k}}), signs{{k}});
    let odd{{k}} = with_signs(uneven_values(point{{k}} >> 4u), signs{{k}} >> 4u);
    {% endfor %}
    let lo = vec4(even0, odd0, even1, odd1);
    let hi = vec4(even2, odd2, even3, odd3);
    return Unit(lo, hi, 0.25 * d * (vec2<f32>(scales & vec2(15u)) + 0.5), vec2(0.0));
}
