// Stages of transforms, and fields at particles, described in plain data for all compiled variants of the kernels.

#ifndef SIMULATOR_PLAN_H
#define SIMULATOR_PLAN_H

namespace simulator {

typedef long long index;

// A tile holds one complex number per lane in each of its cells: CELL_BYTES of real parts, then CELL_BYTES of
// imaginary parts. A cell is two cache lines, and a tile of 128 points fits twice into a first-level cache.
constexpr int CELL_BYTES = 64;
// The points that a pass combines lie far apart, and in many grids at the same place of the first-level cache, whose
// addresses repeat after WAY bytes. Tiles begin SHIFT bytes apart there, so that what a pass reads and writes has room.
constexpr int WAY = 4096, SHIFT = 1024;
// Bytes of a stage's source and target from which on its planes lie in memory rather than in a cache.
constexpr index CACHED = 8 << 20;
constexpr int MOST_PASSES = 64;
// Particles whose weights are computed side by side.
constexpr int BATCH = 32;

// One pass of a Stockham transform: `radix`-point butterflies over n = radix * m points with a stride of `s` cells.
template <class T> struct Pass {
  index radix, m, s;
  const T *twiddles;  // (p, j): exp(-2 pi i p j / n) for p < m, 0 < j < radix
  const T *roots;     // j: exp(-2 pi i j / radix), for radices without a special formula
};

template <class T> struct Fourier {
  index n;
  index count;
  Pass<T> passes[MOST_PASSES];
};

// The tables of a transform of n points, computed once for every n. Several threads may call this function.
template <class T> const Fourier<T> &fourier(index n);

enum Axis { X = 0, Y = 1, Z = 2, NONE = -1 };

// The position of a stage's array: (component, *order), or the same cut along the axis `split` into messages.
struct Side {
  index messages;
  index split;           // an axis, or NONE
  index order[3];        // axes in memory order, the last contiguous
  index extents[3];      // of one message along the axes in `order`
  index complex_values;  // 1 for complex, 0 for real values
};

// A one- or two-dimensional transform of all planes of a block; flags are 0 or 1.
struct Geometry {
  index axes;               // number of transformed axes: `first`, or `first` and then `second`
  index first, first_points, first_modes;
  index second, second_points, second_modes;  // the plane's other axis; its extents are equal if it is not transformed
  index to_points;          // 1: to points, 0: to modes
  index sign;               // of the exponent
  index real;               // z has real points and the modes kz >= 0
  index doubled;            // the modes of z represent their conjugates too
  index block;              // the axis across the planes
  index planes;
  index start_axis;         // the axis along which `start` counts: `block`, or an axis that is not transformed
  index start_in;           // `start` is a position in the source (1) or in the target (2), or is not used (0)
  Side source, target;
};
constexpr int GEOMETRY_LENGTH = sizeof(Geometry) / sizeof(index);

// A stage consists of `units` independent pieces of work; each call transforms the units from `begin` to `end`.
struct Stage {
  Geometry geometry;
  double scale;
  index components;
  index start;
  index begin, end;
  bool follows;  // an earlier call of this stage has used the same scratch memory
  void *const *source;  // one array for each message
  void *const *target;
  char *scratch;
  const void *first, *second;  // Fourier transforms of the two axes
};

// An operation on the values at each point: register `result` from the registers `a` and `b`. The registers are the
// values of the inputs, the products, numbers, and temporary results. The last two kinds reduce `a` over the points.
enum Kind { COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, NEGATE, ABSOLUTE, ROOT, MAXIMUM, SUM };
struct Operation {
  index kind, result, a, b;
};
constexpr index MOST_FIELDS = 64;  // inputs, or products
// Bytes of a temporary register: the points of a tile to which all operations are applied one after another.
constexpr index CHUNK_BYTES = 1024;

// The products at the points of all planes, from messages to messages; each call visits the units from `begin` to `end`,
// which are those of `to_points` for all components together.
struct Evaluation {
  Stage to_points, to_modes;
  index inputs, products, numbers, temporaries;  // temporaries: registers of numbers and temporary results
  index reductions, sums;     // of the reductions, sums come last
  index units;
  index count;
  const Operation *operations;
  const void *number;         // (numbers,)
  void *reduced;              // (reduction, unit)
  char *scratch;
  index begin, end;
  bool follows;               // an earlier call has used the same scratch memory
};

// Copies a block of a field, with the components side by side, into an array with room around the block: the lines of
// the block from `begin` to `end`.
struct Weave {
  index begin, end;
  index components;           // 1 or 3
  index extents[3];           // of the block
  index below[3], room[3];    // points of the array before the block, and extents of the array
  index around;               // 1: the last axis is whole, and its points are repeated periodically in the room
  const void *block;          // (component, ...)
  void *woven;                // (..., component)
};

// Particles among the points of a block of the grid. Axes are in the memory order of the block.
struct Places {
  index points;               // along each axis: 2 (linear), 3 (quadratic) or 4 (cubic B-spline)
  index axes[3];              // x, y or z
  index periods[3];           // points around the box of a whole axis; 0 if the axis is cut over devices
  index extents[3];           // of the block
  index starts[3];            // the block's first plane
  double spacing[3];          // along x, y and z
  index sloped;               // the axis along which weights are replaced by their derivatives, or -1
  index count, entries;       // particles, and places in every row of an array
  index begin, end;           // a call visits the entries from `begin` to `end`
  const double *position;     // (3, entries)
};
constexpr int PLACES_LENGTH = 8;  // numbers of `points`, `axes`, `periods` and `sloped`

// Values of a field at the places of particles: factors[0] position, or, with rates, factors[0] position + factors[1]
// rate. The last axis, if whole, has `points` - 1 more than its period.
struct Gather : Places {
  const void *rate;           // (3, entries), or null
  double factors[2];
  index components;           // 1 or 3
  const void *block;          // (*axes, component)
  void *values;               // (component, entries): not a number where the block lacks a point, 0 beyond `count`
};

// The positions along the first two axes of a block between which some consecutive particles have their points, before
// periods are taken off.
struct Span {
  index least[2], most[2];
};

// Masses of particles on the points of a block; nothing of a particle for which the block lacks a point. Each call fills
// the points between `least` and `most` along the first two axes. The order of the sums follows from the particles alone.
struct Deposit : Places {
  index least[2], most[2];
  const Span *spans;          // of each BATCH particles, or null if a call fills the whole block
  const double *mass;         // (entries,)
  double scale;               // of masses that are summed up as whole numbers
  void *block;                // (*axes)
};

// The velocities of particles after a kick, if they are wanted. Entries beyond `count` become 0. This and the following
// calls visit the entries from `begin` to `end`.
struct Kick {
  index begin, end;
  index count, entries;       // particles, and places in every row of an array
  const void *pull;           // (3, entries): accelerations
  const double *velocity;     // (3, entries)
  double length;              // of the kick (time)
  double spacing[3];          // along x, y and z
  double *kicked;             // (3, entries), or null
  double *fastest;            // the largest sum of |v_i| / spacing_i; not a number if a velocity is not
};

// Kicks particles twice, if there is a pull, and moves them in a periodic box, in place: 0 <= x < box. Entries beyond
// `count` become 0. A length of 0 changes no bit.
struct Drift {
  index begin, end;
  index count, entries;
  const void *pull;           // (3, entries): accelerations, or null
  const double *velocity;     // (3, entries)
  double *position;           // (3, entries)
  double kicks[2], length;    // of the kicks and of the drift (time)
  double box[3];
  double *kicked;             // (3, entries): velocities after the kicks, perhaps in place
  double *slower, *saved;     // (3, entries): velocities between the kicks and positions before the drift, or null
};

// Moves particles in a periodic box, in place, to factors[0] position + the sum of factors[1 + i] rates[i], and adds the
// way to their displacements. Entries beyond `count` become 0.
struct Advance {
  index begin, end;
  index count, entries, terms;
  const double *factors;      // (1 + terms,)
  const void *const *rates;   // (terms,) arrays (3, entries)
  double *position, *displacement;  // (3, entries)
  double box[3];
  bool lost;                  // whether a position is not finite
};

// Bytes of scratch memory that a thread needs for a stage, and for an evaluation.
template <class T> index scratch_bytes(const Geometry &geometry);
template <class T> index scratch_bytes(const Evaluation &of);

// The units of a plane: 1 with two transformed axes, else the tiles of lines, or pairs of tiles of real lines. A last
// tile that overlaps the one before it belongs to the same unit.
template <class T> index pieces(const Geometry &g) {
  if (g.axes == 2) return 1;
  const index lines = g.to_points ? g.second_modes : g.second_points;
  const index count = lines * index(sizeof(T)) / (CELL_BYTES * (g.real ? 2 : 1));
  return count > 1 ? count : 1;
}

}  // namespace simulator

#endif
