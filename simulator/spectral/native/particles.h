// Values of a field at the positions of particles: sums over the nearest points of a block of the grid, with the weights
// of B-splines of degree 1, 2 or 3 along every axis.
//
// The components of a point lie together, so that a particle needs one short run of numbers of every line of points:
// few cache lines, which do not compete for one set of the cache if the lines of points are a power of two long. The
// weights of a batch of particles are computed side by side in the processor's vectors.

#ifndef SIMULATOR_PARTICLES_H
#define SIMULATOR_PARTICLES_H

#include "lanes.h"

namespace SIMULATOR_ISA {

using simulator::Gather;
using simulator::Weave;
using simulator::index;

// ---- components side by side -----------------------------------------------------------------------------------------

template <class T, int COMPONENTS> static void weave_components(const Weave &w) {
  const index *from = w.extents, *to = w.room;
  const index size = from[0] * from[1] * from[2];
  for (index a = 0; a < from[0]; ++a)
    for (index b = 0; b < from[1]; ++b) {
      const T *line = static_cast<const T *>(w.block) + (a * from[1] + b) * from[2];
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

// N numbers: vectors of four, and the rest.
template <class T, int N> struct Run {
  static constexpr int VECTORS = N / 4, REST = N % 4;
  typedef T vec __attribute__((vector_size(4 * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
  vec fours[VECTORS ? VECTORS : 1];
  T rest[REST ? REST : 1];

  inline void clear() {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) fours[i] = vec{};
#pragma GCC unroll 4
    for (int i = 0; i < REST; ++i) rest[i] = 0;
  }
  inline void add(T factor, const T *from) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) fours[i] += factor * reinterpret_cast<const unaligned *>(from)[i];
#pragma GCC unroll 4
    for (int i = 0; i < REST; ++i) rest[i] += factor * from[4 * VECTORS + i];
  }
  inline void store(T *to) const {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) reinterpret_cast<unaligned *>(to)[i] = fours[i];
#pragma GCC unroll 4
    for (int i = 0; i < REST; ++i) to[4 * VECTORS + i] = rest[i];
  }
};

constexpr int BATCH = 32;
constexpr int OUTSIDE = -1;

// The first point along an axis, and the weights of the points, for each of BATCH particles.
template <class T, int POINTS> struct Axis {
  int first[BATCH];  // within the block, or OUTSIDE
  T weight[BATCH][POINTS];

  void find(const double *x, double spacing, index start, index extent, index period) {
    constexpr int BELOW = POINTS == 2 ? 0 : 1;
    constexpr double FAR = 1e9;
    const int shift = int(start) + BELOW, around = int(period), last = int(extent) - POINTS;
    for (int i = 0; i < BATCH; ++i) {
      const double scaled = x[i] / spacing, below = __builtin_floor(POINTS == 3 ? scaled + 0.5 : scaled);
      const double s = scaled - below, r = 1 - s;
      T *w = weight[i];
      if (POINTS == 2) {
        w[0] = T(r), w[1] = T(s);
      } else if (POINTS == 3) {
        const double a = 0.5 - s, b = 0.5 + s;
        w[0] = T(0.5 * a * a), w[1] = T(0.75 - s * s), w[POINTS - 1] = T(0.5 * b * b);
      } else {
        constexpr double sixth = 1.0 / 6;
        w[0] = T(r * r * r * sixth), w[1] = T((4 + s * s * (3 * s - 6)) * sixth);
        w[POINTS - 2] = T((4 + r * r * (3 * r - 6)) * sixth), w[POINTS - 1] = T(s * s * s * sixth);
      }
      // Beyond FAR, and for NaN, the comparison is false.
      first[i] = int(below > -FAR && below < FAR ? below : -FAR) - shift;
    }
    for (int i = 0; i < BATCH; ++i) {
      if (around && first[i] > -int(FAR) - shift && unsigned(first[i]) >= unsigned(around))
        first[i] = (first[i] % around + around) % around;
      if (first[i] < 0 || (!around && first[i] > last)) first[i] = OUTSIDE;
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

template <class T, int POINTS, int COMPONENTS> static void gather_points(const Gather &g) {
  const index strides[] = {g.extents[1] * g.extents[2] * COMPONENTS, g.extents[2] * COMPONENTS};
  const T *block = static_cast<const T *>(g.block);
  T *values = static_cast<T *>(g.values);
  double x[BATCH] = {};
  Axis<T, POINTS> axes[3];
  for (index p = 0; p < g.count; p += BATCH) {
    const int batch = g.count - p < BATCH ? int(g.count - p) : BATCH;
    for (int a = 0; a < 3; ++a) {
      const double *from = g.position + g.axes[a] * g.count + p;
      for (int i = 0; i < batch; ++i) x[i] = from[i];
      axes[a].find(x, g.spacing[g.axes[a]], g.starts[a], g.extents[a], g.periods[a]);
    }
    for (int i = 0; i < batch; ++i) {
      if (axes[0].first[i] < 0 || axes[1].first[i] < 0 || axes[2].first[i] < 0) {
        for (int c = 0; c < COMPONENTS; ++c) values[c * g.count + p + i] = T(__builtin_nan(""));
        continue;
      }
      index planes[POINTS], lines[POINTS];
      axes[0].offsets(i, g.extents[0], strides[0], planes);
      axes[1].offsets(i, g.extents[1], strides[1], lines);
      const T *from = block + axes[2].first[i] * COMPONENTS;
      Run<T, POINTS * COMPONENTS> total;
      total.clear();
#pragma GCC unroll 4
      for (int j = 0; j < POINTS; ++j)
#pragma GCC unroll 4
        for (int k = 0; k < POINTS; ++k)
          total.add(axes[0].weight[i][j] * axes[1].weight[i][k], from + planes[j] + lines[k]);
      T sums[POINTS * COMPONENTS];
      total.store(sums);
#pragma GCC unroll 3
      for (int c = 0; c < COMPONENTS; ++c) {
        T value = 0;
#pragma GCC unroll 4
        for (int k = 0; k < POINTS; ++k) value += axes[2].weight[i][k] * sums[k * COMPONENTS + c];
        values[c * g.count + p + i] = value;
      }
    }
  }
}

template <class T> static void gather(const Gather &g) {
  const bool one = g.components == 1;
  if (g.points == 2) one ? gather_points<T, 2, 1>(g) : gather_points<T, 2, 3>(g);
  if (g.points == 3) one ? gather_points<T, 3, 1>(g) : gather_points<T, 3, 3>(g);
  if (g.points == 4) one ? gather_points<T, 4, 1>(g) : gather_points<T, 4, 3>(g);
}

}  // namespace SIMULATOR_ISA

#endif
