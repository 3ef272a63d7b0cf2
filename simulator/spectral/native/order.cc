#include "order.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace simulator {

void select(const int8_t *marks, index count, index most, int32_t *ones, int32_t *twos) {
  index found[] = {0, 0};
  int32_t *const to[] = {ones, twos};
  index i = 0;
  auto look = [&](index end) {
    for (; i < end; ++i) {
      const int which = marks[i] - 1;
      if (which >= 0 && found[which] < most) to[which][found[which]++] = int32_t(i);
    }
  };
  while (i + 8 <= count) {
    uint64_t eight;  // nearly all marks are 0
    std::memcpy(&eight, marks + i, 8);
    if (eight)
      look(i + 8);
    else
      i += 8;
  }
  look(count);
  for (int which = 0; which < 2; ++which) std::fill(to[which] + found[which], to[which] + most, int32_t(count));
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
  const double total = double(cells[0]) * double(cells[1]) * double(cells[2]);
  while (total / double(uint64_t(1) << merged) >= double(uint32_t(-1))) ++merged;
  std::vector<Entry> entries(count), other(count);
  uint32_t least = uint32_t(-1), largest = 0;
  for (index i = 0; i < count; ++i) {
    uint64_t cell = 0;
    for (int a = 0; a < 3; ++a) {
      const index axis = axes[a];
      const double scaled = position[axis * stride + i] / spacing[axis];
      // Positions lie in the box; those of lost particles are NaN.
      const index plane = scaled >= 0 && scaled < double(cells[axis]) ? index(scaled) : 0;
      cell = cell * uint64_t(cells[axis]) + uint64_t(plane);
    }
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
