// Sorts the particles of a buffer by the cells of the grid, and selects those that live on another device.

#ifndef SIMULATOR_ORDER_H
#define SIMULATOR_ORDER_H

#include <cstdint>
#include <functional>

#include "plan.h"

namespace simulator {

// A ring of devices, each with `extent` of the `planes` of a periodic axis, the last one perhaps with fewer.
struct Ring {
  double spacing;
  index planes, extent, here;
};

// Shares the numbers from 0 to `units` out among threads: calls work(begin, end) for consecutive ranges.
typedef std::function<void(index units, const std::function<void(index, index)> &work)> Share;

// The number of the `count` particles at `x`, within the box, that live on other devices of the ring. The places of the
// first `most` whose shorter way is up, and of the first `most` whose way is down, and the 2 `most` places of both,
// ascending; the remaining entries of all results are `none`.
index leaving(const double *x, index count, const Ring &ring, index most, index none, int32_t *up, int32_t *down,
              int32_t *both, const Share &share);

// Copies an array that is rarely read again, past the caches where the processor can.
void copy_aside(char *to, const char *from, index bytes);

// Of each BATCH particles, the positions along the first two axes of a block between which their points lie.
void spans(const Deposit &d, Span *of_batches, const Share &share);

// The places of the `count` particles in the order of their cells. The box has `cells` cells of the size `spacing`
// along x, y and z. Columns of TILE x TILE lines of cells follow each other, numbered in the order `axes`; so are the
// cells of a column: what particles need of the grid stays in cache while they move by a few cells. Positions are (3,
// stride). The sort is stable.
constexpr index TILE = 16;
void order(const double *position, index count, index stride, const index *axes, const index *cells,
           const double *spacing, int32_t *places, const Share &share);

// Permutes the first `count` entries of every row (number, stride) of 8-byte numbers: entry i is then entry places[i].
void permute_rows(uint64_t *rows, index number, index count, index stride, const int32_t *places, const Share &share);

}  // namespace simulator

#endif
