// Sorts the particles of a buffer by the cells of the grid, and selects marked particles.

#ifndef SIMULATOR_ORDER_H
#define SIMULATOR_ORDER_H

#include <cstdint>

#include "plan.h"

namespace simulator {

// The places of the first `most` marks 1 and of the first `most` marks 2 among `count` marks; the remaining entries of
// both results are `count`.
void select(const int8_t *marks, index count, index most, int32_t *ones, int32_t *twos);

// The places of the `count` particles in the order of their cells. The box has `cells` cells of the size `spacing`
// along x, y and z, numbered in the order `axes`. Positions are (3, stride). The sort is stable.
void order(const double *position, index count, index stride, const index *axes, const index *cells,
           const double *spacing, int32_t *places);

// Permutes the first `count` entries of every row (number, stride) of 8-byte numbers: entry i is then entry places[i].
void permute_rows(uint64_t *rows, index number, index count, index stride, const int32_t *places);

}  // namespace simulator

#endif
