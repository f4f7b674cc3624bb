// BF16: 64 bytes a unit.
fn values{{p}}(row: u32, u: u32) -> Values {
    let i = (row * {{units}}u + u) * 4u;
    {% for k in range(4) %}
    let w{{k}} = wide{{p}}[i + {{k}}u];
    {% endfor %}
    return Values(
        {% for k in range(4) %}upper_halves(w{{k}}.xy), upper_halves(w{{k}}.zw),{% endfor %}
    );
}
