#include "order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace simulator {

// The smallest x that lies on `plane` or beyond: x / spacing >= plane, with the division's rounding.
static double begin_of(index plane, double spacing) {
  constexpr double all = std::numeric_limits<double>::infinity();
  if (!plane) return -all;
  const double number = double(plane);
  double x = number * spacing;
  while (x / spacing >= number) x = std::nextafter(x, -all);
  while (x / spacing < number) x = std::nextafter(x, all);
  return x;
}

index leaving(const double *x, index count, const Ring &ring, index most, index none, int32_t *up, int32_t *down,
              int32_t *both) {
  const index owners = (ring.planes + ring.extent - 1) / ring.extent, last = ring.planes - 1;
  index found[] = {0, 0}, number = 0, i = 0;
  int32_t *const to[] = {up, down};
  const double low = begin_of(ring.here * ring.extent, ring.spacing);
  const double high = ring.here == owners - 1 ? std::numeric_limits<double>::infinity()
                                              : begin_of((ring.here + 1) * ring.extent, ring.spacing);
  auto look = [&](index end) {
    for (; i < end; ++i) {
      const double scaled = x[i] / ring.spacing;
      const index plane = scaled >= 0 ? scaled < double(last) ? index(scaled) : last : 0;  // 0: not a number
      const index hops = (plane / ring.extent - ring.here + owners) % owners;
      if (!hops) continue;
      ++number;
      const int which = 2 * hops <= owners ? 0 : 1;
      if (found[which] == most) continue;
      both[found[0] + found[1]] = int32_t(i);
      to[which][found[which]++] = int32_t(i);
    }
  };
  constexpr index MANY = 16;
  while (i + MANY <= count) {
    int away = 0;  // nearly all particles stay
    for (index k = i; k < i + MANY; ++k) away |= int(!(x[k] >= low)) | int(!(x[k] < high));
    if (away)
      look(i + MANY);
    else
      i += MANY;
  }
  look(count);
  for (int which = 0; which < 2; ++which) std::fill(to[which] + found[which], to[which] + most, int32_t(none));
  std::fill(both + found[0] + found[1], both + 2 * most, int32_t(none));
  return number;
}

void copy_aside(char *to, const char *from, index bytes) {
  index i = 0;
#if defined(__SSE2__)
  const index misplaced = -reinterpret_cast<intptr_t>(to) & index(sizeof(__m128i) - 1);
  if (misplaced <= bytes) {
    for (; i < misplaced; ++i) to[i] = from[i];
    for (; i + index(sizeof(__m128i)) <= bytes; i += index(sizeof(__m128i)))
      _mm_stream_si128(reinterpret_cast<__m128i *>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i)));
    _mm_sfence();
  }
#endif
  std::copy(from + i, from + bytes, to + i);
}

void order(const double *position, index count, index stride, const index *axes, const index *cells,
           const double *spacing, int32_t *places) {
  constexpr int DIGIT = 11;
  struct Entry {
    uint32_t key;
    int32_t place;
  };
  // Cells are merged until their numbers fit.
  int merged = 0;
  const index columns = (cells[axes[1]] + TILE - 1) / TILE;
  const index lines = (cells[axes[0]] + TILE - 1) / TILE * columns * TILE * TILE;
  const double total = double(lines) * double(cells[axes[2]]);
  while (total / double(uint64_t(1) << merged) >= double(uint32_t(-1))) ++merged;
  std::vector<Entry> entries(count), other(count);
  uint32_t least = uint32_t(-1), largest = 0;
  for (index i = 0; i < count; ++i) {
    uint64_t planes[3];
    for (int a = 0; a < 3; ++a) {
      const index axis = axes[a];
      const double scaled = position[axis * stride + i] / spacing[axis];
      // Positions lie in the box; those of lost particles are NaN.
      planes[a] = scaled >= 0 && scaled < double(cells[axis]) ? uint64_t(scaled) : 0;
    }
    uint64_t cell = planes[0] / TILE * uint64_t(columns) + planes[1] / TILE;
    cell = (cell * TILE + planes[0] % TILE) * TILE + planes[1] % TILE;
    cell = cell * uint64_t(cells[axes[2]]) + planes[2];
    const uint32_t key = uint32_t(cell >> merged);
    entries[i] = {key, int32_t(i)};
    least = std::min(least, key), largest = std::max(largest, key);
  }
  for (int shift = 0; count && shift < 32 && (largest - least) >> shift; shift += DIGIT) {
    std::vector<index> first((1 << DIGIT) + 1, 0);
    auto digit = [&](const Entry &entry) { return ((entry.key - least) >> shift) & ((1 << DIGIT) - 1); };
    for (const Entry &entry : entries) ++first[digit(entry) + 1];
    for (size_t d = 1; d < first.size(); ++d) first[d] += first[d - 1];
    for (const Entry &entry : entries) other[first[digit(entry)]++] = entry;
    entries.swap(other);
  }
  for (index i = 0; i < count; ++i) places[i] = entries[i].place;
}

void permute_rows(uint64_t *rows, index number, index count, index stride, const int32_t *places) {
  std::vector<uint64_t> moved(count);
  for (index row = 0; row < number; ++row) {
    uint64_t *of = rows + row * stride;
    for (index i = 0; i < count; ++i) moved[i] = of[places[i]];
    std::copy(moved.begin(), moved.end(), of);
  }
}

}  // namespace simulator
