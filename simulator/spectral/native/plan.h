// What a stage of a distributed transform is told, in plain data: shared by all compiled variants of the kernels.

#ifndef SIMULATOR_PLAN_H
#define SIMULATOR_PLAN_H

namespace simulator {

typedef long long index;

// A tile holds one complex number per lane in each of its cells: CELL_BYTES of real parts, then CELL_BYTES of
// imaginary parts. A cell is two cache lines, and a tile of 128 points fits twice into a first-level cache.
constexpr int CELL_BYTES = 64;
constexpr int MOST_PASSES = 64;

// One pass of a Stockham transform: `radix`-point butterflies over n = radix * m points that lie `s` cells apart.
template <class T> struct Pass {
  index radix, m, s;
  const T *twiddles;  // (p, j): exp(-2 pi i p j / n) for p < m, 0 < j < radix
  const T *roots;     // j: exp(-2 pi i j / radix), of radices that have no formula of their own
};

template <class T> struct Fourier {
  index n;
  index count;
  Pass<T> passes[MOST_PASSES];
};

// Made once for every length, and kept. Safe to call from several threads.
template <class T> const Fourier<T> &fourier(index n);

enum Axis { X = 0, Y = 1, Z = 2, NONE = -1 };

// Where an array of a stage lies: (component, *order), or that in messages, cut along the axis `split`.
struct Side {
  index messages;
  index split;           // an axis, or NONE
  index order[3];        // axes as they lie in memory, the last contiguous
  index extents[3];      // of the axes in `order`; of one message
  index complex_values;  // else real
};

// A one- or two-dimensional transform of all planes of a block; what an `index` holds as a flag is 0 or 1.
struct Geometry {
  index axes;               // that are transformed: `first`, or `first` and then `second`
  index first, first_points, first_modes;
  index second, second_points, second_modes;  // the plane's other axis; both extents are equal if it is not transformed
  index to_points;          // else to modes
  index sign;               // of the exponent
  index real;               // z has real points and the modes kz >= 0
  index doubled;            // these stand for their conjugates too
  index block;              // the axis across the planes
  index planes;
  index start_in;           // `start` counts planes in the source (1), in the target (2), or is not given (0)
  Side source, target;
};
constexpr int GEOMETRY_LENGTH = sizeof(Geometry) / sizeof(index);

struct Stage {
  Geometry geometry;
  double scale;
  index components;
  index start;
  void *const *source;  // one array for each message
  void *const *target;
  char *scratch;
};

// Bytes of scratch memory that a stage needs.
template <class T> index scratch_bytes(const Geometry &geometry);

}  // namespace simulator

#endif
