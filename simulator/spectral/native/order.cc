#include "order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
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

// A particle that lives on another device; `way` is 0 if its shorter way is up, else 1.
struct Leaving {
  int32_t place, way;
};

// Those of the particles from `begin` to `end`.
static std::vector<Leaving> leaving_of(const double *x, index begin, index end, const Ring &ring) {
  const index owners = (ring.planes + ring.extent - 1) / ring.extent, last = ring.planes - 1;
  std::vector<Leaving> found;
  index i = begin;
  const double low = begin_of(ring.here * ring.extent, ring.spacing);
  const double high = ring.here == owners - 1 ? std::numeric_limits<double>::infinity()
                                              : begin_of((ring.here + 1) * ring.extent, ring.spacing);
  auto look = [&](index until) {
    for (; i < until; ++i) {
      const double scaled = x[i] / ring.spacing;
      const index plane = scaled >= 0 ? scaled < double(last) ? index(scaled) : last : 0;  // 0: not a number
      const index hops = (plane / ring.extent - ring.here + owners) % owners;
      if (hops) found.push_back({int32_t(i), 2 * hops <= owners ? 0 : 1});
    }
  };
  constexpr index MANY = 16;
  while (i + MANY <= end) {
    int away = 0;  // nearly all particles stay
    for (index k = i; k < i + MANY; ++k) away |= int(!(x[k] >= low)) | int(!(x[k] < high));
    if (away)
      look(i + MANY);
    else
      i += MANY;
  }
  look(end);
  return found;
}

index leaving(const double *x, index count, const Ring &ring, index most, index none, int32_t *up, int32_t *down,
              int32_t *both, const Share &share) {
  constexpr index CHUNK = 1 << 14;
  const index chunks = (count + CHUNK - 1) / CHUNK;
  std::vector<std::vector<Leaving>> of_chunks(chunks);
  share(chunks, [&](index begin, index end) {
    for (index i = begin; i < end; ++i)
      of_chunks[i] = leaving_of(x, i * CHUNK, std::min(count, (i + 1) * CHUNK), ring);
  });
  index found[] = {0, 0}, number = 0;
  int32_t *const to[] = {up, down};
  for (const auto &chunk : of_chunks) {
    number += index(chunk.size());
    for (const Leaving &one : chunk) {
      if (found[one.way] == most) continue;
      both[found[0] + found[1]] = one.place;
      to[one.way][found[one.way]++] = one.place;
    }
  }
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

void spans(const Deposit &d, Span *of_batches, const Share &share) {
  constexpr double FAR = 1e9;
  const index below = d.points == 2 ? 0 : 1;
  const double nearest = d.points == 3 ? 0.5 : 0;
  share((d.count + BATCH - 1) / BATCH, [&](index begin, index end) {
    for (index batch = begin; batch < end; ++batch)
      for (int a = 0; a < 2; ++a) {
        const double *x = d.position + d.axes[a] * d.entries;
        const index first = batch * BATCH, last = std::min(d.count, first + BATCH);
        double least = FAR * d.spacing[d.axes[a]], most = -least;
        for (index i = first; i < last; ++i)  // comparisons with NaN are false
          least = x[i] < least ? x[i] : least, most = x[i] > most ? x[i] : most;
        auto point = [&](double at) {
          const double scaled = std::floor(at / d.spacing[d.axes[a]] + nearest);
          return index(std::min(std::max(scaled, -FAR), FAR)) - d.starts[a] - below;
        };
        of_batches[batch].least[a] = point(least);
        of_batches[batch].most[a] = point(most) + d.points - 1;
      }
  });
}

void order(const double *position, index count, index stride, const index *axes, const index *cells,
           const double *spacing, int32_t *places, const Share &share) {
  if (count == 0) return;
  constexpr int DIGIT = 11, DIGITS = 1 << DIGIT;
  constexpr index MOST_CHUNKS = 64;
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
  const auto cell = [&](index i) {
    uint64_t planes[3];
    for (int a = 0; a < 3; ++a) {
      const index axis = axes[a];
      const double scaled = position[axis * stride + i] / spacing[axis];
      // Positions lie in the box; those of lost particles are NaN.
      planes[a] = scaled >= 0 && scaled < double(cells[axis]) ? uint64_t(scaled) : 0;
    }
    uint64_t cell = planes[0] / TILE * uint64_t(columns) + planes[1] / TILE;
    cell = (cell * TILE + planes[0] % TILE) * TILE + planes[1] % TILE;
    return cell * uint64_t(cells[axes[2]]) + planes[2];
  };
  // Each chunk of particles counts its digits, so that chunks find their places by themselves.
  const index chunks = std::min<index>(MOST_CHUNKS, (count + DIGITS - 1) / DIGITS);
  const auto chunk_of = [&](index chunk, const auto &visit) {
    for (index i = chunk * count / chunks; i < (chunk + 1) * count / chunks; ++i) visit(i);
  };
  std::vector<uint32_t> least(chunks, uint32_t(-1)), largest(chunks, 0);
  share(chunks, [&](index begin, index end) {
    for (index chunk = begin; chunk < end; ++chunk)
      chunk_of(chunk, [&](index i) {
        const uint32_t key = uint32_t(cell(i) >> merged);
        entries[i] = {key, int32_t(i)};
        least[chunk] = std::min(least[chunk], key), largest[chunk] = std::max(largest[chunk], key);
      });
  });
  const uint32_t lowest = *std::min_element(least.begin(), least.end());
  const uint32_t range = *std::max_element(largest.begin(), largest.end()) - lowest;
  std::vector<index> first(chunks * DIGITS);
  for (int shift = 0; shift < 32 && range >> shift; shift += DIGIT) {
    auto digit = [&](const Entry &entry) { return ((entry.key - lowest) >> shift) & (DIGITS - 1); };
    std::fill(first.begin(), first.end(), 0);
    share(chunks, [&](index begin, index end) {
      for (index chunk = begin; chunk < end; ++chunk)
        chunk_of(chunk, [&](index i) { ++first[chunk * DIGITS + digit(entries[i])]; });
    });
    index place = 0;
    for (index d = 0; d < DIGITS; ++d)
      for (index chunk = 0; chunk < chunks; ++chunk) place += std::exchange(first[chunk * DIGITS + d], place);
    share(chunks, [&](index begin, index end) {
      for (index chunk = begin; chunk < end; ++chunk)
        chunk_of(chunk, [&](index i) { other[first[chunk * DIGITS + digit(entries[i])]++] = entries[i]; });
    });
    entries.swap(other);
  }
  share(count, [&](index begin, index end) {
    for (index i = begin; i < end; ++i) places[i] = entries[i].place;
  });
}

void permute_rows(uint64_t *rows, index number, index count, index stride, const int32_t *places, const Share &share) {
  std::vector<uint64_t> moved(count);
  for (index row = 0; row < number; ++row) {
    uint64_t *of = rows + row * stride;
    share(count, [&](index begin, index end) {
      for (index i = begin; i < end; ++i) moved[i] = of[places[i]];
    });
    share(count, [&](index begin, index end) { std::copy(moved.begin() + begin, moved.begin() + end, of + begin); });
  }
}

}  // namespace simulator
