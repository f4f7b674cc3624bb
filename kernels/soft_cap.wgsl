// c tanh(x / c), in a form that no large number upsets.
fn soft_cap(x: {{type}}) -> {{type}} {
    return {{cap}} - {{type}}({{twice_cap}}) / (exp(min(x * {{two_over_cap}}, {{type}}(80.0))) + 1.0);
}
