// Stands for no expert, no slot and no token id.
const NONE = 0xffffffffu;
