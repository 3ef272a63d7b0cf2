// A stage of a distributed transform: reads values, modes or the messages of one exchange, and writes modes, values or
// the messages of the next exchange, plane by plane.
//
// In every plane, lines are transformed along one axis, or along one and then the other. Neighbouring lines are
// gathered into a tile (with zeros between the modes of positive and negative wavenumber), transformed, truncated,
// scaled and written to their place in the target; between two axes the tile's cells become lanes. Apart from source
// and target, no array is larger than a plane.

#ifndef SIMULATOR_STAGE_H
#define SIMULATOR_STAGE_H

#include "fourier.h"
#include "tile.h"

namespace SIMULATOR_ISA {

using simulator::Geometry;
using simulator::Side;
using simulator::Stage;

// The strides of one side, and its lines along an axis.
template <class T> struct Arranged {
  const Side &side;
  void *const *buffers;
  index stride[3];
  index component;
  index local;  // extent of a message along the split axis

  Arranged(const Side &of, void *const *at) : side(of), buffers(at), local(1) {
    index step = of.complex_values ? 2 : 1;
    for (int i = 2; i >= 0; --i) {
      stride[of.order[i]] = step;
      step *= of.extents[i];
      if (of.order[i] == of.split) local = of.extents[i];
    }
    component = step;
  }

  // The contiguous axis of a plane. The axis across planes may come last if there is a single plane.
  index contiguous(index block) const { return side.order[side.order[2] == block ? 1 : 2]; }

  void table(index axis, index count, index *offset, void **buffer) const {
    for (index i = 0; i < count; ++i) {
      const bool apart = axis == side.split;
      buffer[i] = buffers[apart ? i / local : 0];
      offset[i] = (apart ? i % local : i) * stride[axis];
    }
  }
};

// Sets the padding of messages to zero: the lines beyond the extent of the split axis, in all planes of the block.
template <class T> static void clear_padding(const Stage &stage) {
  const Geometry &g = stage.geometry;
  const Side &side = g.target;
  const Arranged<T> target(side, stage.target);
  const index first = g.to_points ? g.first_points : g.first_modes, second = g.to_points ? g.second_points : g.second_modes;
  const index extent = side.split == g.first ? first : second;
  if (side.split == simulator::NONE || side.messages * target.local == extent) return;
  // The offset of the first number that the stage writes.
  const index from = g.start_in == 2 ? stage.start * target.stride[g.start_axis] : 0;
  index other = 3 - side.split - g.block, lines = 0;
  for (int i = 0; i < 3; ++i)
    if (side.order[i] == other) lines = side.extents[i];
  if (other == g.start_axis) lines = g.second_points;
  const index numbers = side.complex_values ? 2 : 1;
  for (index c = 0; c < stage.components; ++c)
    for (index plane = 0; plane < g.planes; ++plane)
      for (index i = extent; i < side.messages * target.local; ++i) {
        T *at = static_cast<T *>(target.buffers[i / target.local]) + c * target.component +
                from + plane * target.stride[g.block] + (i % target.local) * target.stride[side.split];
        for (index l = 0; l < lines; ++l)
          for (index n = 0; n < numbers; ++n) at[l * target.stride[other] + n] = T(0);
      }
}

template <class T> class Runner {
  typedef Lanes<T> L;
  static constexpr index CELL = 2 * L::CELL;

  const Stage &stage;
  const Geometry &g;
  const Arranged<T> source, target;
  const Fourier<T> &first, &second;
  const index re, im;
  T *tiles[4];
  T *plane;
  index *offsets[2];
  void **buffers[2];
  Lines<T> from, to;

 public:
  Runner(const Stage &of, const Fourier<T> &one, const Fourier<T> &two)
      : stage(of), g(of.geometry), source(g.source, of.source), target(g.target, of.target), first(one), second(two),
        re(g.sign < 0 ? 0 : L::CELL), im(g.sign < 0 ? L::CELL : 0), from{}, to{} {
    const index longest = g.first_points > g.second_points ? g.first_points : g.second_points;
    char *at = of.scratch;
    for (int i = 0; i < 4; ++i) {
      at += (-reinterpret_cast<index>(at) & (simulator::WAY - 1)) + i * simulator::SHIFT;
      tiles[i] = reinterpret_cast<T *>(at);
      at += longest * CELL * index(sizeof(T));
    }
    for (int i = 0; i < 2; ++i) {
      offsets[i] = reinterpret_cast<index *>(at);
      at += longest * index(sizeof(index));
      buffers[i] = reinterpret_cast<void **>(at);
      at += longest * index(sizeof(index));
    }
    plane = reinterpret_cast<T *>(at + (-reinterpret_cast<index>(at) & 63));
  }

  // Transforms the units of the stage from `stage.begin` to `stage.end`.
  void run() {
    const bool two = g.axes == 2;
    const index rows_in = g.to_points ? g.first_modes : g.first_points;
    const index lanes_in = g.to_points ? g.second_modes : g.second_points;
    const index rows_out = g.to_points ? g.first_points : g.first_modes;
    const index lanes_out = g.to_points ? g.second_points : g.second_modes;
    const index start_in = g.start_in == 1 ? stage.start * source.stride[g.start_axis] : 0;
    const index start_out = g.start_in == 2 ? stage.start * target.stride[g.start_axis] : 0;
    const bool across_in = source.contiguous(g.block) == g.first;
    const bool across_out = target.contiguous(g.block) == (two ? g.second : g.first);
    // Contiguous lines become lanes; otherwise the lines are the rows.
    const index line_in = across_in ? g.second : g.first;
    const index line_out = across_out ? (two ? g.first : g.second) : (two ? g.second : g.first);
    source.table(line_in, across_in ? lanes_in : rows_in, offsets[0], buffers[0]);
    target.table(line_out, line_out == g.first ? rows_out : lanes_out, offsets[1], buffers[1]);
    if (two && g.to_points && !stage.follows) clear_gaps(rows_out);
    const index source_lines = across_in ? lanes_in : rows_in, source_bytes = g.source.extents[2] * bytes_of(g.source);
    const index target_lines = line_out == g.first ? rows_out : lanes_out;
    const index target_bytes = g.target.extents[2] * bytes_of(g.target);
    const index pairs = g.real && g.first == simulator::Z ? 2 : 1;
    const index tiles_in = (tile_count<T>(lanes_in) + pairs - 1) / pairs;
    for (index unit = stage.begin; unit < stage.end;) {
      const index pieces = simulator::pieces<T>(g), number = unit / pieces, c = number / g.planes, p = number % g.planes;
      // Of this plane: all pieces, or those up to the stage's end.
      const index piece = unit % pieces, end = stage.end - unit < pieces - piece ? piece + stage.end - unit : pieces;
      unit += end - piece;
      from = {offsets[0], buffers[0], start_in + c * source.component + p * source.stride[g.block], nullptr};
      to = {offsets[1], buffers[1], start_out + c * target.component + p * target.stride[g.block], nullptr};
      // Prefetches the lines of the source in the next plane, and the lines of the target: in this plane if there
      // are two passes over it, else in the next plane.
      Lines<T> next = from, written = to;
      next.plane += p + 1 < g.planes ? source.stride[g.block] : source.component - (g.planes - 1) * source.stride[g.block];
      if (!two) written.plane += target.stride[g.block];
      const bool more = p + 1 < g.planes || c + 1 < stage.components;
      index part = piece * tiles_in / pieces;
      auto ahead = [&] {
        if (more && g.source.complex_values) fetch<false>(next, source_lines, source_bytes, part, tiles_in);
        if ((two || p + 1 < g.planes) && g.target.complex_values)
          fetch<true>(written, target_lines, target_bytes, part, tiles_in);
        ++part;
      };
      if (!two) {
        const index tiles = tile_count<T>(lanes_in), each = g.real ? 2 : 1;
        for_tiles(lanes_in, g.real, piece * each, end == pieces ? tiles : end * each, [&](index lane, index other, index lanes) {
          ahead();
          gather(across_in, lane, other, lanes);
          scatter(across_out, lane, other, lanes, transformed(first), g.first_points, g.first_modes, g.real);
        });
        continue;
      }
      const bool real_first = g.real && g.first == simulator::Z, real_second = g.real && g.second == simulator::Z;
      const index length = g.to_points && real_second ? g.second_modes : g.second_points;
      for_tiles(lanes_in, real_first, 0, tile_count<T>(lanes_in), [&](index lane, index other, index lanes) {
        ahead();
        gather(across_in, lane, other, lanes);
        const Rows across = real_second ? all(lanes_in) : g.to_points ? modes(g.second_modes, g.second_points) : all(lanes_in);
        T *found = transformed(first);
        if (!real_first) {
          transpose_tile<T>(found, rows_of_result(rows_out), lane, lanes, plane, across, length);
          return;
        }
        T *a = tiles[0] == found ? tiles[1] : tiles[0], *b = tiles[2];
        unpack_pair<T>(found, a, b, g.first_modes, g.first_points, re, im, g.doubled ? T(1) : T(0.5));
        transpose_tile<T>(a, all(g.first_modes), lane, lanes, plane, across, length);
        if (other != lane) transpose_tile<T>(b, all(g.first_modes), other, lanes, plane, across, length);
      });
      index row = 0;
      for_tiles(rows_out, real_second, 0, tile_count<T>(rows_out), [&](index lane, index other, index lanes) {
        const T *tile = plane + row * length * CELL;
        T *found;
        if (real_second) {
          const T *next = other == lane ? tile : tile + length * CELL;
          pack_pair<T>(tile, next, tiles[1], g.second_modes, g.second_points, re, im, weight());
          found = transform<T>(second, tiles[1], tiles[0], tiles[1]);
          row += 2;
        } else {
          found = transform<T>(second, tile, tiles[0], tiles[1]);
          row += 1;
        }
        scatter(across_out, lane, other, lanes, found, g.second_points, g.second_modes, real_second);
      });
    }
  }

 private:
  static index bytes_of(const Side &side) { return index(sizeof(T)) * (side.complex_values ? 2 : 1); }
  static Rows all(index count) { return {count, count, 0, count}; }
  static Rows modes(index count, index points) { return {count, (count + 1) / 2, points - count, points}; }
  Rows rows_of_result(index rows) const { return g.to_points ? all(rows) : modes(g.first_modes, g.first_points); }
  T weight() const { return g.doubled ? T(1) : T(0.5); }

  // Calls visit(lane, lane of the partner, lanes) for the tiles, or pairs of tiles, of an axis from `begin` to `end`.
  template <class Visit> static void for_tiles(index extent, bool pairs, index begin, index end, Visit visit) {
    const index count = tile_count<T>(extent), lanes = extent < L::CELL ? extent : L::CELL;
    for (index i = begin; i < end; i += pairs ? 2 : 1) {
      const index next = pairs && i + 1 < count ? i + 1 : i;
      visit(tile_start<T>(i, extent), tile_start<T>(next, extent), lanes);
    }
  }

  // Calls visit(lines, segment) for all contiguous parts of lines along `axis`; lines may continue in the next
  // message.
  template <class Visit>
  static void for_segments(const Arranged<T> &side, index axis, Lines<T> lines, Rows rows, Visit visit) {
    const bool apart = side.side.split == axis && side.side.messages > 1;
    const index messages = apart ? side.side.messages : 1, local = apart ? side.local : rows.count;
    for (index message = 0; message < messages; ++message) {
      if (apart) lines.message = side.buffers[message];
      for (int i = 0; i < 2; ++i) {
        const Segment whole = rows.segment(i);
        const index begin = whole.row > message * local ? whole.row : message * local;
        const index end = whole.row + whole.count < (message + 1) * local ? whole.row + whole.count : (message + 1) * local;
        if (end > begin) visit(lines, Segment{begin - message * local, whole.cell + begin - whole.row, end - begin});
      }
    }
  }

  // Gathers a tile of the source, or a pair of tiles of real lines, into tiles[1].
  void gather(bool across, index lane, index other, index lanes) {
    const bool real = g.real && g.first == simulator::Z;
    if (!real) {
      const Rows rows = g.to_points ? modes(g.first_modes, g.first_points) : all(g.first_points);
      zero_cells<T>(tiles[1], rows.low, rows.low + rows.shift);
      load(across, lane, lanes, tiles[1], rows);
    } else if (g.to_points) {
      load(across, lane, lanes, tiles[2], all(g.first_modes));
      load(across, other, lanes, tiles[3], all(g.first_modes));
      pack_pair<T>(tiles[2], tiles[3], tiles[1], g.first_modes, g.first_points, re, im, weight());
    } else if (across) {
      const Segment line = all(g.first_points).segment(0);
      load_across<T, 1>(from, lane, lanes, tiles[1], line, re, im);
      load_across<T, 1>(from, other, lanes, tiles[1], line, im, re);
    } else {
      load_real<T>(from, lane, other, lanes, tiles[1], g.first_points, re, im);
    }
  }

  void load(bool across, index lane, index lanes, T *tile, Rows rows) {
    if (across)
      for_segments(source, g.first, from, rows, [&](Lines<T> lines, Segment segment) {
        load_across<T, 2>(lines, lane, lanes, tile, segment, re, im);
      });
    else
      load_complex<T>(from, lane, lanes, tile, rows, re, im);
  }

  T *transformed(const Fourier<T> &of) { return transform<T>(of, tiles[1], tiles[0], tiles[1]); }

  // Writes a tile of results, or the results of a pair of tiles of real lines, to the target.
  void scatter(bool across, index lane, index other, index lanes, T *found, index points, index kept, bool real) {
    const T scale = T(stage.scale);
    if (!real) {
      store(across, lane, lanes, found, g.to_points ? all(points) : modes(kept, points), scale);
    } else if (!g.to_points) {
      unpack_pair<T>(found, tiles[2], tiles[3], kept, points, re, im, g.doubled ? T(1) : T(0.5));
      store(across, lane, lanes, tiles[2], all(kept), scale);
      store(across, other, lanes, tiles[3], all(kept), scale);
    } else if (across) {
      const Segment line = all(points).segment(0);
      store_across<T, 1>(to, lane, lanes, found, line, re, im, scale);
      store_across<T, 1>(to, other, lanes, found, line, im, re, scale);
    } else {
      store_real<T>(to, lane, other, lanes, found, points, re, im, scale);
    }
  }

  void store(bool across, index lane, index lanes, const T *tile, Rows rows, T scale) {
    if (across)
      for_segments(target, g.axes == 2 ? g.second : g.first, to, rows, [&](Lines<T> lines, Segment segment) {
        store_across<T, 2>(lines, lane, lanes, tile, segment, re, im, scale);
      });
    else
      store_complex<T>(to, lane, lanes, tile, rows, re, im, scale);
  }

  // Sets the cells between the modes of positive and negative wavenumber of the second axis to zero, once for all
  // planes.
  void clear_gaps(index rows) {
    if (g.real && g.second == simulator::Z) return;
    const Rows across = modes(g.second_modes, g.second_points);
    for (index number = 0; number < tile_count<T>(rows); ++number)
      zero_cells<T>(plane + number * g.second_points * CELL, across.low, across.low + across.shift);
  }
};

template <class T> static void run(const Stage &stage) {
  if (stage.begin == 0) clear_padding<T>(stage);
  Runner<T>(stage, *static_cast<const Fourier<T> *>(stage.first), *static_cast<const Fourier<T> *>(stage.second)).run();
}

}  // namespace SIMULATOR_ISA

#endif
