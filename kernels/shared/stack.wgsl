// Locates rows of experts' matrices, which are stacked in one matrix.
//
// Macros, for a part's `ExpertStack?`:
//   stack_row(stack, row) - row `row` of the matrix of `expert`, or of the only matrix if there is
//     no stack
{% macro stack_row(stack, row) %}
{%- if stack %}expert * {{stack.stride}}u + {{stack.offset}}u + {% endif %}{{row}}
{%- endmacro %}
