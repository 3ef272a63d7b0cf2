// Values of a field at the positions of particles, and masses of particles on the points of the grid: the nearest points
// of a block, with the weights of B-splines of degree 1, 2 or 3 along every axis.
//
// The components of a field's point lie together, so that a particle needs one short run of numbers of every line of
// points: few cache lines, which moreover do not compete for one set of the cache if lines are a power of two long. The
// weights of a few particles are computed side by side in the processor's vectors.

#ifndef SIMULATOR_PARTICLES_H
#define SIMULATOR_PARTICLES_H

#include <cstdint>
#include <cstring>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "lanes.h"
#include "order.h"

namespace SIMULATOR_ISA {

using simulator::Advance;
using simulator::BATCH;
using simulator::Deposit;
using simulator::Drift;
using simulator::Gather;
using simulator::Kick;
using simulator::Places;
using simulator::Weave;
using simulator::index;

// ---- components side by side -----------------------------------------------------------------------------------------

template <class T, int COMPONENTS> static void weave_components(const Weave &w) {
  const index *from = w.extents, *to = w.room;
  const index size = from[0] * from[1] * from[2];
  for (index number = w.begin; number < w.end; ++number) {
    const index a = number / from[1], b = number % from[1];
    const T *line = static_cast<const T *>(w.block) + number * from[2];
    T *row = static_cast<T *>(w.woven) + ((a + w.below[0]) * to[1] + b + w.below[1]) * to[2] * COMPONENTS;
    T *inner = row + w.below[2] * COMPONENTS;
    for (index i = 0; i < from[2]; ++i)
      for (int c = 0; c < COMPONENTS; ++c) inner[i * COMPONENTS + c] = line[c * size + i];
    if (!w.around) continue;
    const index n = from[2], above = to[2] - n - w.below[2];
    for (index i = 0; i < w.below[2]; ++i)
      for (int c = 0; c < COMPONENTS; ++c) row[i * COMPONENTS + c] = line[c * size + ((i - w.below[2]) % n + n) % n];
    for (index i = 0; i < above; ++i)
      for (int c = 0; c < COMPONENTS; ++c) inner[(n + i) * COMPONENTS + c] = line[c * size + i % n];
  }
}

template <class T> static void weave(const Weave &w) {
  if (w.components == 1) weave_components<T, 1>(w);
  if (w.components == 3) weave_components<T, 3>(w);
}

// ---- sums over points --------------------------------------------------------------------------------------------------

// N numbers in one vector of the processor's size that leaves no half empty, if loads can leave out numbers; else in vectors
// of at most 32 bytes, the last one perhaps overlapping the one before it.
template <class T, int N> struct Run {
  static constexpr int BYTES = N * int(sizeof(T));
#if defined(__AVX512F__)
  static constexpr bool PARTIAL = BYTES > 32 && BYTES < 64;
#else
  static constexpr bool PARTIAL = false;
#endif
  static constexpr int most(int width) { return width <= N && width * int(sizeof(T)) <= 32 ? most(2 * width) : width / 2; }
  static constexpr int WIDTH = PARTIAL ? VECTOR_BYTES / int(sizeof(T)) : most(1), VECTORS = (N + WIDTH - 1) / WIDTH;
  static constexpr int ROOM = PARTIAL ? WIDTH : N;
  typedef T vec __attribute__((vector_size(WIDTH * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(WIDTH * sizeof(T)), aligned(sizeof(T)), may_alias));
  vec parts[VECTORS];

  static constexpr int at(int i) { return PARTIAL || (i + 1) * WIDTH <= N ? i * WIDTH : N - WIDTH; }
  static inline vec load(const T *from, int i) {
#if defined(__AVX512F__)
    if constexpr (PARTIAL && sizeof(T) == 4) return vec(_mm512_maskz_loadu_ps((1 << N) - 1, from));
    if constexpr (PARTIAL && sizeof(T) == 8) return vec(_mm512_maskz_loadu_pd((1 << N) - 1, from));
#endif
    return *reinterpret_cast<const unaligned *>(from + at(i));
  }
  inline void store(T *to) const {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) *reinterpret_cast<unaligned *>(to + at(i)) = parts[i];
  }
};

constexpr int OUTSIDE = -1;

// For BATCH particles, their first point along an axis and the weights of their points. The loops over particles have no
// branches, so that the compiler computes several at once.
template <class T, int POINTS> struct Axis {
  alignas(64) int first[BATCH];  // within the block, or OUTSIDE
  alignas(64) T weight[POINTS][BATCH];

  void find(const double *x, double spacing, index start, index extent, index period, bool sloped) {
    constexpr int BELOW = POINTS == 2 ? 0 : 1, FAR = 1000000000;
    const int shift = int(start) + BELOW, around = int(period), last = around ? around - 1 : int(extent) - POINTS;
    alignas(64) T after[BATCH];
    for (int i = 0; i < BATCH; ++i) {
      const double scaled = x[i] / spacing, below = __builtin_floor(POINTS == 3 ? scaled + 0.5 : scaled);
      after[i] = T(scaled - below);
      // Beyond FAR, or not a number: the comparison is false.
      first[i] = int(__builtin_fabs(below) < FAR ? below : -2.0 * FAR) - shift;
    }
    for (int i = 0; i < BATCH; ++i) {
      const T s = after[i], r = 1 - s, half = T(0.5);
      if (POINTS == 2) {
        weight[0][i] = r, weight[1][i] = s;
      } else if (POINTS == 3) {
        const T a = half - s, b = half + s;
        weight[0][i] = half * a * a, weight[1][i] = T(0.75) - s * s, weight[POINTS - 1][i] = half * b * b;
      } else {
        constexpr T sixth = T(1.0 / 6);
        weight[0][i] = r * r * r * sixth, weight[1][i] = (4 + s * s * (3 * s - 6)) * sixth;
        weight[POINTS - 2][i] = (4 + r * r * (3 * r - 6)) * sixth, weight[POINTS - 1][i] = s * s * s * sixth;
      }
    }
    if (sloped) slope(x, spacing);
    int beyond = 0;
    for (int i = 0; i < BATCH; ++i) {
      int at = first[i];
      at += at < 0 ? around : 0;
      at -= at > last ? around : 0;
      first[i] = at;
      beyond |= (at < 0) | (at > last);
    }
    if (!beyond) return;
    for (int i = 0; i < BATCH; ++i) {
      if (around && first[i] > -FAR - FAR / 2) first[i] = (first[i] % around + around) % around;
      if (first[i] < 0 || first[i] > last) first[i] = OUTSIDE;
    }
  }

  // Replaces the weights by their derivatives with respect to x.
  void slope(const double *x, double spacing) {
    const double per = 1 / spacing;
    for (int i = 0; i < BATCH; ++i) {
      const double scaled = x[i] / spacing, s = scaled - __builtin_floor(POINTS == 3 ? scaled + 0.5 : scaled), r = 1 - s;
      if (POINTS == 2) {
        weight[0][i] = T(-per), weight[1][i] = T(per);
      } else if (POINTS == 3) {
        weight[0][i] = T((s - 0.5) * per), weight[1][i] = T(-2 * s * per), weight[POINTS - 1][i] = T((s + 0.5) * per);
      } else {
        weight[0][i] = T(-0.5 * r * r * per), weight[1][i] = T(s * (1.5 * s - 2) * per);
        weight[POINTS - 2][i] = T(r * (2 - 1.5 * r) * per), weight[POINTS - 1][i] = T(0.5 * s * s * per);
      }
    }
  }

  // The offsets of the points of particle i; the points may continue at the other face of the box.
  void offsets(int i, index extent, index stride, index *at) const {
    const index from = first[i];
    for (int k = 0; k < POINTS; ++k) at[k] = (from + k) * stride;
    if (from + POINTS > extent)
      for (int k = 0; k < POINTS; ++k) at[k] = (from + k) % extent * stride;
  }
};

// The particles of a call end here.
template <class Call> static index end_of(const Call &call) { return call.end < call.count ? call.end : call.count; }
// The entries without particles of a call begin here.
template <class Call> static index rest_of(const Call &call) { return call.begin > call.count ? call.begin : call.count; }

// Sets a row's entries without particles to 0.
template <class T, class Call> static void clear_rest(const Call &call, T *row) {
  const index rest = rest_of(call);
  if (rest < call.end) std::memset(row + rest, 0, sizeof(T) * (call.end - rest));
}

// Finds the points of the particles from `begin` to `end`, BATCH particles at a time, and calls `visit(axes, first
// particle, particles)`. The places of particles are factors[0] position + factors[1] rate if there are factors and
// rates.
template <class T, int POINTS, class Visit>
static void for_batches(const Places &g, index begin, index end, Visit visit, const double *factors = nullptr,
                        const T *rate = nullptr) {
  double x[BATCH] = {};
  Axis<T, POINTS> axes[3];
  for (index p = begin; p < end; p += BATCH) {
    const int batch = end - p < BATCH ? int(end - p) : BATCH;
    for (int a = 0; a < 3; ++a) {
      const double *from = g.position + g.axes[a] * g.entries + p;
      for (int i = 0; i < batch; ++i) x[i] = factors ? factors[0] * from[i] : from[i];
      if (rate)
        for (int i = 0; i < batch; ++i) x[i] += factors[1] * double(rate[g.axes[a] * g.entries + p + i]);
      axes[a].find(x, g.spacing[g.axes[a]], g.starts[a], g.extents[a], g.periods[a], g.axes[a] == g.sloped);
    }
    visit(axes, p, batch);
  }
}

template <class T, int POINTS, int COMPONENTS> static void gather_points(const Gather &g) {
  typedef Run<T, POINTS * COMPONENTS> Of;
  const index strides[] = {g.extents[1] * g.extents[2] * COMPONENTS, g.extents[2] * COMPONENTS};
  const T *block = static_cast<const T *>(g.block);
  T *values = static_cast<T *>(g.values);
  for_batches<T, POINTS>(g, g.begin, end_of(g), [&](const Axis<T, POINTS> *axes, index p, int batch) {
    for (int i = 0; i < batch; ++i) {  // particles that have moved since they were sorted
      const T *from = block + axes[0].first[i] * strides[0] + axes[1].first[i] * strides[1] + axes[2].first[i] * COMPONENTS;
#pragma GCC unroll 4
      for (int j = 0; j < POINTS; j += Of::PARTIAL ? POINTS - 1 : 1)
#pragma GCC unroll 4
        for (int k = 0; k < POINTS; ++k) __builtin_prefetch(from + j * strides[0] + k * strides[1]);
    }
    alignas(64) T rows[BATCH][Of::ROOM];
    const auto along = [&](int i, const T *sums) {
#pragma GCC unroll 3
      for (int c = 0; c < COMPONENTS; ++c) {
        T value = 0;
#pragma GCC unroll 4
        for (int k = 0; k < POINTS; ++k) value += axes[2].weight[k][i] * sums[k * COMPONENTS + c];
        values[c * g.entries + p + i] = value;
      }
    };
    for (int i = 0; i < batch; ++i) {
      if (axes[0].first[i] < 0 || axes[1].first[i] < 0 || axes[2].first[i] < 0) {
        for (T &sum : rows[i]) sum = T(__builtin_nan(""));
        if (!Of::PARTIAL) along(i, rows[i]);
        continue;
      }
      index planes[POINTS], lines[POINTS];
      axes[0].offsets(i, g.extents[0], strides[0], planes);
      axes[1].offsets(i, g.extents[1], strides[1], lines);
      const T *from = block + axes[2].first[i] * COMPONENTS;
      Of total{};
#pragma GCC unroll 4
      for (int j = 0; j < POINTS; ++j) {
        Of plane{};
#pragma GCC unroll 4
        for (int k = 0; k < POINTS; ++k)
#pragma GCC unroll 4
          for (int n = 0; n < Of::VECTORS; ++n)
            plane.parts[n] += axes[1].weight[k][i] * Of::load(from + planes[j] + lines[k], n);
#pragma GCC unroll 4
        for (int n = 0; n < Of::VECTORS; ++n) total.parts[n] += axes[0].weight[j][i] * plane.parts[n];
      }
      T own[Of::ROOM];
      total.store(Of::PARTIAL ? rows[i] : own);
      if (!Of::PARTIAL) along(i, own);
    }
    // The numbers of a wide vector are taken from memory, when all are there: faster than from a register.
    for (int i = 0; Of::PARTIAL && i < batch; ++i) along(i, rows[i]);
  }, g.factors, static_cast<const T *>(g.rate));
}

template <class T> static void gather(const Gather &g) {
  for (int c = 0; c < g.components; ++c) clear_rest(g, static_cast<T *>(g.values) + c * g.entries);
  const bool one = g.components == 1;
  if (g.points == 2) one ? gather_points<T, 2, 1>(g) : gather_points<T, 2, 3>(g);
  if (g.points == 3) one ? gather_points<T, 3, 1>(g) : gather_points<T, 3, 3>(g);
  if (g.points == 4) one ? gather_points<T, 4, 1>(g) : gather_points<T, 4, 3>(g);
}

// ---- masses on points --------------------------------------------------------------------------------------------------

// What a particle adds to WIDTH numbers of a line, by numbers of type T or, for whole numbers, of double precision.
template <class T, int WIDTH> struct Line {
  typedef T number;
  typedef T vec __attribute__((vector_size(WIDTH * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(WIDTH * sizeof(T)), aligned(sizeof(T)), may_alias));

  static inline void add(T *line, T factor, vec weight) { *reinterpret_cast<unaligned *>(line) += factor * weight; }
};
template <int WIDTH> struct Line<int64_t, WIDTH> {
  typedef double number;
  typedef double vec __attribute__((vector_size(WIDTH * 8)));
  typedef int64_t whole __attribute__((vector_size(WIDTH * 8)));
  typedef int64_t unaligned __attribute__((vector_size(WIDTH * 8), aligned(8), may_alias));

  // The nearest whole numbers of at most 51 bits are the last bits of a sum with 1.5 * 2^52.
  static inline void add(int64_t *line, double factor, vec weight) {
    const vec large = vec{} + 6755399441055744.0;
    *reinterpret_cast<unaligned *>(line) += (whole)(factor * weight + large) - (whole)large;
  }
};

// Whether a call fills all of some consecutive points of an axis.
static inline bool within(const Deposit &d, int axis, index first, index points) {
  return first >= d.least[axis] && first + points <= d.most[axis];
}

// Whether particles may have points that a call fills.
static inline bool reaches(const Deposit &d, const simulator::Span &span) {
  for (int a = 0; a < 2; ++a) {
    const index points = span.most[a] - span.least[a] + 1, period = d.periods[a], own = d.most[a] - d.least[a];
    index from = span.least[a] - d.least[a];
    if (period) from = (from % period + period) % period;
    if (points <= 0 || !(from < own && from + points > 0) && !(period && from + points > period)) return false;
  }
  return true;
}

// What consecutive particles of one line of cells add to the points around them, in vectors along the line.
template <class T, int POINTS> struct Column {
  typedef Lanes<T> Of;
  // Whole numbers are rounded for each particle, and short vectors hold too few cells.
  static constexpr bool USED = T(0.5) != 0 && Of::WIDTH >= 2 * POINTS && Of::WIDTH * POINTS > 16;
  typename Of::vec sums[POINTS][POINTS];

  void add(T mass, const Axis<T, POINTS> *axes, int i, typename Of::vec along) {
    typename Of::vec lines[POINTS];
#pragma GCC unroll 4
    for (int k = 0; k < POINTS; ++k) lines[k] = axes[1].weight[k][i] * along;
#pragma GCC unroll 4
    for (int j = 0; j < POINTS; ++j) {
      const T factor = mass * axes[0].weight[j][i];
#pragma GCC unroll 4
      for (int k = 0; k < POINTS; ++k) sums[j][k] += factor * lines[k];
    }
  }
};

// Particles of a batch for each line of cells, without which their sums are not worth while.
constexpr int FEW = 5;

// A call of a deposit.
template <class T, int POINTS> struct Depositing {
  static constexpr int WIDTH = POINTS == 2 ? 2 : 4;
  typedef Line<T, WIDTH> Several;
  typedef Line<T, 1> One;
  typedef typename Several::number number;
  typedef Axis<number, POINTS> Along;
  const Deposit &d;
  const index strides[2] = {d.extents[1] * d.extents[2], d.extents[2]};
  T *const block = static_cast<T *>(d.block);
  alignas(64) T along[BATCH][3 * Lanes<T>::WIDTH] = {};  // zeros around the weights along a line

  void clear() {
    for (index j = d.least[0]; j < d.most[0]; ++j)
      std::memset(block + j * strides[0] + d.least[1] * strides[1], 0, sizeof(T) * (d.most[1] - d.least[1]) * strides[1]);
  }

  void one(const Along *axes, int i, number mass) {
    index planes[POINTS], lines[POINTS], places[POINTS];
    axes[0].offsets(i, d.extents[0], 1, planes);
    axes[1].offsets(i, d.extents[1], 1, lines);
    typename Several::vec weight{};
#pragma GCC unroll 4
    for (int k = 0; k < POINTS; ++k) weight[k] = axes[2].weight[k][i];
    const index first = axes[2].first[i];
    const bool together = first + WIDTH <= d.extents[2];
    if (together && within(d, 0, axes[0].first[i], POINTS) && within(d, 1, axes[1].first[i], POINTS)) {
      T *from = block + planes[0] * strides[0] + lines[0] * strides[1] + first;
#pragma GCC unroll 4
      for (int j = 0; j < POINTS; ++j)
#pragma GCC unroll 4
        for (int k = 0; k < POINTS; ++k)
          Several::add(from + j * strides[0] + k * strides[1], mass * axes[0].weight[j][i] * axes[1].weight[k][i], weight);
      return;
    }
    axes[2].offsets(i, d.extents[2], 1, places);
    for (int j = 0; j < POINTS; ++j)
      for (int k = 0; k < POINTS; ++k) {
        if (!within(d, 0, planes[j], 1) || !within(d, 1, lines[k], 1)) continue;
        T *line = block + planes[j] * strides[0] + lines[k] * strides[1];
        const number factor = mass * axes[0].weight[j][i] * axes[1].weight[k][i];
        if (together)
          Several::add(line + first, factor, weight);
        else
          for (int l = 0; l < POINTS; ++l) One::add(line + places[l], factor, typename One::vec{weight[l]});
      }
  }

  // Particles from i on whose points lie on the same lines, between `first` and the end of a vector.
  int together(const Along *axes, int i, int batch, index first) const {
    int end = i + 1;
    const index most = first + Lanes<T>::WIDTH - POINTS;
    while (end < batch && axes[0].first[end] == axes[0].first[i] && axes[1].first[end] == axes[1].first[i] &&
           axes[2].first[end] >= first && axes[2].first[end] <= most)
      ++end;
    return end;
  }

  void batch(const Along *axes, index p, int number_of) {
    number mass[BATCH] = {};
    for (int i = 0; i < number_of; ++i) mass[i] = number(d.mass[p + i] * d.scale);
    for (int i = 0; i < BATCH; ++i)
      mass[i] = (axes[0].first[i] | axes[1].first[i] | axes[2].first[i]) < 0 ? 0 : mass[i];
    if constexpr (Column<T, POINTS>::USED) columns(axes, mass, number_of);
    // Neighbours in the buffer add to the same points: far from each other, they need not wait for one another.
    for (int n = 0; n < BATCH; ++n) {
      const int i = n * 11 % BATCH;
      if (mass[i] != 0) one(axes, i, mass[i]);
    }
  }

  // Adds the particles that share lines with their neighbours in the buffer, and takes their masses.
  void columns(const Along *axes, number *mass, int number_of) {
    constexpr int W = Lanes<T>::WIDTH;
    const index high = d.extents[2] - W;
    int changes = 0;
    for (int i = 1; i < BATCH; ++i)
      changes += (axes[0].first[i] != axes[0].first[i - 1]) | (axes[1].first[i] != axes[1].first[i - 1]);
    if (high < 0 || changes * FEW > BATCH) return;
    for (int i = 0; i < BATCH; ++i)
#pragma GCC unroll 4
      for (int k = 0; k < POINTS; ++k) along[i][W + k] = axes[2].weight[k][i];
    for (int i = 0, end; i < number_of; i = end) {
      const index low = axes[2].first[i] - 1, first = low < 0 ? 0 : low < high ? low : high;
      end = together(axes, i, number_of, first);
      const index at = axes[2].first[i];
      if (end - i == 1 || (axes[0].first[i] | axes[1].first[i]) < 0 || at < first || at > first + W - POINTS) continue;
      Column<T, POINTS> column{};
      for (int n = i; n < end; ++n) {
        column.add(mass[n], axes, n, Lanes<T>::load(&along[n][W - (axes[2].first[n] - first)]));
        mass[n] = 0;
      }
      flush(column, axes, i, first);
    }
  }

  // Adds the sums of particles on the lines of particle i to the points from `first` on.
  void flush(const Column<T, POINTS> &column, const Along *axes, int i, index first) {
    index planes[POINTS], lines[POINTS];
    axes[0].offsets(i, d.extents[0], 1, planes);
    axes[1].offsets(i, d.extents[1], 1, lines);
    const bool all = within(d, 0, axes[0].first[i], POINTS) && within(d, 1, axes[1].first[i], POINTS);
#pragma GCC unroll 4
    for (int j = 0; j < POINTS; ++j)
#pragma GCC unroll 4
      for (int k = 0; k < POINTS; ++k)
        if (all || within(d, 0, planes[j], 1) && within(d, 1, lines[k], 1)) {
          T *line = block + planes[j] * strides[0] + lines[k] * strides[1] + first;
          Lanes<T>::store(line, Lanes<T>::load(line) + column.sums[j][k]);
        }
  }
};

template <class T, int POINTS> static void deposit_points(const Deposit &d) {
  typedef Depositing<T, POINTS> Of;
  Of of{d};
  of.clear();
  for (index p = 0; p < d.count; p += BATCH)
    if (!d.spans || reaches(d, d.spans[p / BATCH]))
      for_batches<typename Of::number, POINTS>(d, p, d.count - p < BATCH ? d.count : p + BATCH,
          [&](const typename Of::Along *axes, index q, int batch) { of.batch(axes, q, batch); });
}

template <class T> static void deposit(const Deposit &d) {
  if (d.points == 2) deposit_points<T, 2>(d);
  if (d.points == 3) deposit_points<T, 3>(d);
  if (d.points == 4) deposit_points<T, 4>(d);
}

// ---- kicks and drifts --------------------------------------------------------------------------------------------------

// Loops go over a few entries at a time, which stay in cache between them. What is written to large arrays goes past
// the caches.
constexpr index SOME = 512, LARGE = 1 << 22;

static inline void put(double *to, const double *from, index number, bool past) {
  if (past)
    simulator::copy_aside(reinterpret_cast<char *>(to), reinterpret_cast<const char *>(from), 8 * number);
  else
    std::memcpy(to, from, 8 * number);
}

template <class T> static void kick(const Kick &k) {
  typedef Lanes<double> Of;
  const T *pull = static_cast<const T *>(k.pull);
  const bool past = 24 * k.entries > LARGE;
  typename Of::vec most{};
  typename Of::mask lost{};
  alignas(64) double total[SOME], kicked[SOME];
  const index end = end_of(k);
  for (index begin = k.begin; begin < end; begin += SOME) {
    const index number = end - begin < SOME ? end - begin : SOME;
    std::memset(total, 0, sizeof total);
    for (int a = 0; a < 3; ++a) {
      const index at = a * k.entries + begin;
      const double *v = k.velocity + at;
      const T *by = pull + at;
      for (index i = 0; i < number; ++i) {
        kicked[i] = v[i] + k.length * double(by[i]);
        total[i] += __builtin_fabs(kicked[i]) / k.spacing[a];
      }
      if (k.kicked) put(k.kicked + at, kicked, number, past);
    }
    for (index i = 0; i < SOME; i += Of::WIDTH) {
      const typename Of::vec found = Of::load(total + i);
      most = found > most ? found : most;
      lost |= found != found;
    }
  }
  double fastest = 0;
  bool strange = false;
  for (int lane = 0; lane < Of::WIDTH; ++lane) {
    fastest = most[lane] > fastest ? most[lane] : fastest;
    strange |= lost[lane] != 0;
  }
  for (int a = 0; k.kicked && a < 3; ++a) clear_rest(k, k.kicked + a * k.entries);
  *k.fastest = strange ? __builtin_nan("") : fastest;
}

// Positions after a drift of some particles: nearly all are still in the box.
static inline void move(double *x, const double *v, index number, double length, double box) {
  int outside = 0;
  for (index i = 0; i < number; ++i) {
    x[i] += length * v[i];
    outside |= int(!(x[i] >= 0)) | int(!(x[i] < box));
  }
  for (index i = 0; outside && i < number; ++i) {
    const double inside = x[i] - box * __builtin_floor(x[i] / box);
    x[i] = x[i] >= 0 && x[i] < box ? x[i] : inside >= box ? 0 : inside;
  }
}

template <class T> static void drift(const Drift &d) {
  const bool past = 24 * d.entries > LARGE;
  const index end = end_of(d);
  double kicked[SOME];
  for (int a = 0; a < 3; ++a) {
    const index row = a * d.entries;
    for (index begin = d.begin; begin < end; begin += SOME) {
      const index number = end - begin < SOME ? end - begin : SOME, at = row + begin;
      const double *v = d.velocity + at;
      if (d.saved) put(d.saved + at, d.position + at, number, past);
      if (d.pull) {
        const T *by = static_cast<const T *>(d.pull) + at;
        std::memcpy(kicked, v, 8 * number);
        v = kicked;
        for (index i = 0; d.kicks[0] != 0 && i < number; ++i) kicked[i] += d.kicks[0] * double(by[i]);
        if (d.slower) put(d.slower + at, kicked, number, past);
        for (index i = 0; d.kicks[1] != 0 && i < number; ++i) kicked[i] += d.kicks[1] * double(by[i]);
        std::memcpy(d.kicked + at, kicked, 8 * number);
      }
      if (d.length != 0) move(d.position + at, v, number, d.length, d.box[a]);
    }
    clear_rest(d, d.position + row);
    if (d.saved) clear_rest(d, d.saved + row);
    if (d.slower) clear_rest(d, d.slower + row);
    if (d.pull) clear_rest(d, d.kicked + row);
  }
}

template <class T> static void advance(Advance &d) {
  const index end = end_of(d);
  double moved[SOME], lost = 0;
  for (int a = 0; a < 3; ++a) {
    const double box = d.box[a];
    double *position = d.position + a * d.entries, *way = d.displacement + a * d.entries;
    for (index begin = d.begin; begin < end; begin += SOME) {
      const index number = end - begin < SOME ? end - begin : SOME;
      double *x = position + begin;
      for (index i = 0; i < number; ++i) moved[i] = d.factors[0] * x[i];
      for (index t = 0; t < d.terms; ++t) {
        const T *rate = static_cast<const T *>(d.rates[t]) + a * d.entries + begin;
        for (index i = 0; i < number; ++i) moved[i] += d.factors[1 + t] * double(rate[i]);
      }
      for (index i = 0; i < number; ++i) {
        way[begin + i] += moved[i] - x[i];
        const double inside = moved[i] - box * __builtin_floor(moved[i] / box);
        x[i] = inside >= box ? 0 : inside;
        lost = x[i] - x[i] == 0 ? lost : 1;
      }
    }
    clear_rest(d, position);
    clear_rest(d, way);
  }
  d.lost = lost != 0;
}

}  // namespace SIMULATOR_ISA

#endif
