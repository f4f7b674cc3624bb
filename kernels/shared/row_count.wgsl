// The number of a step's rows.
//
// Macros:
//   row_count(rows) - the number, for a `RowCount`
{% macro row_count(rows) %}{{ "step[OUTPUTS]" if rows == "outputs" else "step[TOKENS]" }}{% endmacro %}
