// The nonlinear term on planes of physical space, from the messages of one exchange to those of the next.
//
// Of a plane, the lines along x are transformed for all fields; then, for one pair of tiles of lines along z after the
// other, all fields are transformed to points, the products are computed, and the products are transformed back. The
// values of a tile do not leave the core's cache.

#ifndef SIMULATOR_EVALUATE_H
#define SIMULATOR_EVALUATE_H

#include "stage.h"

namespace SIMULATOR_ISA {

using simulator::Evaluation;
using simulator::Operation;

template <class T> class Evaluator {
  typedef Lanes<T> L;
  static constexpr index CHUNK = simulator::CHUNK_BYTES / index(sizeof(T));

  const Evaluation &of;
  const Geometry &g;
  Runner<T> in, out;
  const index tile;  // numbers in a tile of values
  // Values at the points of a pair of tiles, and a plane of tiles between the transforms of its two axes.
  T *inputs[simulator::MOST_FIELDS], *products[simulator::MOST_FIELDS];
  T *planes_in, *planes_out;
  T *temporaries, *reduced;

 public:
  explicit Evaluator(const Evaluation &evaluation)
      : of(evaluation), g(of.to_points.geometry), in(of.to_points), out(of.to_modes),
        tile((g.axes == 2 ? g.second_points : g.first_points) * 2 * L::CELL) {
    char *at = of.scratch;
    index taken = 0;
    auto take = [&](index numbers) {
      at += (-reinterpret_cast<index>(at) & (simulator::WAY - 1)) + (taken++ % 4) * simulator::SHIFT;
      T *const array = reinterpret_cast<T *>(at);
      at += numbers * index(sizeof(T));
      return array;
    };
    // As long as the tiles of a stage, with which they change places.
    const index longest = g.first_points > g.second_points ? g.first_points : g.second_points;
    for (index c = 0; c < of.inputs; ++c) inputs[c] = take(longest * 2 * L::CELL);
    for (index c = 0; c < of.products; ++c) products[c] = take(tile);
    temporaries = take(of.temporaries * CHUNK);
    reduced = take(of.reductions * CHUNK);
    planes_in = take(of.inputs * in.plane_numbers());
    planes_out = take(of.products * out.plane_numbers());
    for (index n = 0; n < of.numbers; ++n)
      for (index i = 0; i < CHUNK; ++i) temporaries[n * CHUNK + i] = static_cast<const T *>(of.number)[n];
  }

  // Visits the units from `begin` to `end`: planes, or pairs of tiles of a plane's lines if only z is transformed.
  void run() {
    if (g.axes == 2 && !of.follows)
      for (index c = 0; c < of.inputs; ++c) in.clear_gaps(plane_in(c));
    const index pieces = simulator::pieces<T>(g);
    for (index unit = of.begin; unit < of.end; ++unit) {
      clear_reductions();
      if (g.axes == 2)
        visit_plane(unit);
      else
        visit_lines(unit / pieces, unit % pieces);
      write_reductions(unit);
    }
  }

 private:
  T *plane_in(index c) const { return planes_in + c * in.plane_numbers(); }
  T *plane_out(index c) const { return planes_out + c * out.plane_numbers(); }

  void visit_plane(index p) {
    for (index c = 0; c < of.inputs; ++c) {
      in.place(c, p, false);
      if (c + 1 < of.inputs)
        in.expect(c + 1, p);
      else if (p + 1 < g.planes)
        in.expect(0, p + 1);
      in.first_pass(plane_in(c));
    }
    index row = 0;
    in.for_tiles_of_points([&](index lane, index other, index lanes) {
      for (index c = 0; c < of.inputs; ++c) keep(c, in.transformed_second(plane_in(c), row, other != lane));
      compute();
      for (index c = 0; c < of.products; ++c) {
        out.place(c, p);
        out.prefetch(row / 2, (tile_count<T>(g.first_points) + 1) / 2);
        out.spread(out.transformed_first(products[c]), lane, other, lanes, plane_out(c));
      }
      row += 2;
    });
    for (index c = 0; c < of.products; ++c) {
      out.place(c, p, false);
      out.second_pass(plane_out(c));
    }
  }

  void visit_lines(index p, index piece) {
    in.for_tiles_of_piece(piece, [&](index lane, index other, index lanes) {
      for (index c = 0; c < of.inputs; ++c) {
        in.place(c, p, false);
        in.gather(lane, other, lanes);
        keep(c, in.transformed_first());
      }
      compute();
      for (index c = 0; c < of.products; ++c) {
        out.place(c, p, false);
        T *found = out.transformed_first(products[c]);
        out.scatter(lane, other, lanes, found, g.first_points, g.first_modes, true);
      }
    });
  }

  // Makes the result of a transform the values of input `c`, in exchange for their former tile.
  void keep(index c, T *found) {
    T *&other = found == in.tiles[0] ? in.tiles[0] : in.tiles[1];
    other = inputs[c];
    inputs[c] = found;
    const T scale = T(of.to_points.scale);
    if (scale != T(1))
      for (index i = 0; i < tile; i += L::WIDTH) L::store(found + i, L::load(found + i) * scale);
  }

  T *at(index number, index first) const {
    if (number < of.inputs) return inputs[number] + first;
    number -= of.inputs;
    return number < of.products ? products[number] + first : temporaries + (number - of.products) * CHUNK;
  }

  // `swap`: an exchange of the halves of cells. The transforms to points and back have exponents of opposite sign, and
  // so hold the same lines in opposite halves.
  template <class Value> static void fill(T *to, index count, index swap, Value value) {
    for (index i = 0; i < count; i += L::WIDTH) L::store(to + (i ^ swap), value(i));
  }

  // Computes the products of a tile, some points at a time.
  void compute() {
    for (index first = 0; first < tile; first += CHUNK) {
      const index count = tile - first < CHUNK ? tile - first : CHUNK;
      for (index o = 0; o < of.count; ++o) apply(of.operations[o], first, count);
    }
  }

  void apply(const Operation &o, index first, index count) {
    const T *a = at(o.a, first), *b = at(o.b, first);
    const bool reduces = o.kind >= simulator::MAXIMUM;
    T *to = reduces ? reduced + o.result * CHUNK : at(o.result, first);
    const index swap = !reduces && o.result >= of.inputs && o.result < of.inputs + of.products ? L::CELL : 0;
    typedef typename L::vec vec;
    auto A = [&](index i) { return L::load(a + i); };
    auto B = [&](index i) { return L::load(b + i); };
    switch (o.kind) {
      case simulator::COPY: return fill(to, count, swap, A);
      case simulator::ADD: return fill(to, count, swap, [&](index i) { return A(i) + B(i); });
      case simulator::SUBTRACT: return fill(to, count, swap, [&](index i) { return A(i) - B(i); });
      case simulator::MULTIPLY: return fill(to, count, swap, [&](index i) { return A(i) * B(i); });
      case simulator::DIVIDE: return fill(to, count, swap, [&](index i) { return A(i) / B(i); });
      case simulator::LARGER: return fill(to, count, swap, [&](index i) { return larger(A(i), B(i)); });
      case simulator::SMALLER: return fill(to, count, swap, [&](index i) { return -larger(-A(i), -B(i)); });
      case simulator::NEGATE: return fill(to, count, swap, [&](index i) { return -A(i); });
      case simulator::ABSOLUTE: return fill(to, count, swap, [&](index i) { vec v = A(i); return larger(v, -v); });
      case simulator::ROOT:
        for (index i = 0; i < count; ++i) to[i ^ swap] = root(a[i]);
        return;
      case simulator::MAXIMUM: return fill(to, count, swap, [&](index i) { return larger(L::load(to + i), A(i)); });
      case simulator::SUM: return fill(to, count, swap, [&](index i) { return L::load(to + i) + A(i); });
    }
  }

  // The larger number; not a number if one of both is not.
  static typename L::vec larger(typename L::vec a, typename L::vec b) { return (b > a) | (b != b) ? b : a; }
  static T larger(T a, T b) { return b > a || b != b ? b : a; }
  static double root(double a) { return __builtin_sqrt(a); }
  static float root(float a) { return __builtin_sqrtf(a); }

  void clear_reductions() {
    for (index r = 0; r < of.reductions; ++r)
      for (index i = 0; i < CHUNK; ++i) reduced[r * CHUNK + i] = r < of.reductions - of.sums ? -T(__builtin_inf()) : T(0);
  }

  void write_reductions(index unit) {
    for (index r = 0; r < of.reductions; ++r) {
      T total = reduced[r * CHUNK];
      for (index i = 1; i < CHUNK; ++i) {
        const T value = reduced[r * CHUNK + i];
        total = r < of.reductions - of.sums ? larger(total, value) : total + value;
      }
      static_cast<T *>(of.reduced)[r * of.units + unit] = total;
    }
  }
};

template <class T> static void evaluate(const Evaluation &of) {
  if (of.begin == 0) clear_padding<T>(of.to_modes);
  Evaluator<T>(of).run();
}

}  // namespace SIMULATOR_ISA

#endif
