// The order of particles in a buffer: sorted by the cells of the grid, and which of them leave.

#ifndef SIMULATOR_ORDER_H
#define SIMULATOR_ORDER_H

#include <cstdint>

#include "plan.h"

namespace simulator {

// The first `most` places of the marks 1 and of the marks 2 among `count`; what remains is filled with `count`.
void select(const int8_t *marks, index count, index most, int32_t *ones, int32_t *twos);

// The places of the `count` particles in the order of their cells, of which `cells` lie along x, y and z in a box with
// this `spacing`. Positions are (3, stride). The order of particles in one cell remains.
void order(const double *position, index count, index stride, const index *axes, const index *cells,
           const double *spacing, int32_t *places);

// Rows (rows, stride) of 8-byte numbers, of which the first `count` follow `places`.
void permute_rows(uint64_t *rows, index number, index count, index stride, const int32_t *places);

}  // namespace simulator

#endif
