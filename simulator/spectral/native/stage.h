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
  const bool two, real_first, real_second;
  const index rows_in, lanes_in, rows_out, lanes_out;
  const bool across_in, across_out;
  const index length;  // of the plane's tiles, in cells
  // Contiguous lines become lanes; otherwise the lines are the rows.
  const index line_in, line_out;
  const index source_lines, target_lines, source_bytes, target_bytes;
  index *offsets[2];
  void **buffers[2];
  Lines<T> from, to;
  Lines<T> next, written;  // to be prefetched
  bool reads_next, writes;
  const bool streams;  // whether the planes come from memory

 public:
  T *tiles[4];
  T *plane;

  explicit Runner(const Stage &of)
      : stage(of), g(of.geometry), source(g.source, of.source), target(g.target, of.target),
        first(*static_cast<const Fourier<T> *>(of.first)), second(*static_cast<const Fourier<T> *>(of.second)),
        re(g.sign < 0 ? 0 : L::CELL), im(g.sign < 0 ? L::CELL : 0), two(g.axes == 2),
        real_first(g.real && g.first == simulator::Z), real_second(g.real && g.second == simulator::Z),
        rows_in(g.to_points ? g.first_modes : g.first_points), lanes_in(g.to_points ? g.second_modes : g.second_points),
        rows_out(g.to_points ? g.first_points : g.first_modes), lanes_out(g.to_points ? g.second_points : g.second_modes),
        across_in(source.contiguous(g.block) == g.first), across_out(target.contiguous(g.block) == (two ? g.second : g.first)),
        length(g.to_points && real_second ? g.second_modes : g.second_points),
        line_in(across_in ? g.second : g.first),
        line_out(across_out ? (two ? g.first : g.second) : (two ? g.second : g.first)),
        source_lines(across_in ? lanes_in : rows_in), target_lines(line_out == g.first ? rows_out : lanes_out),
        source_bytes(g.source.extents[2] * bytes_of(g.source)), target_bytes(g.target.extents[2] * bytes_of(g.target)),
        from{}, to{}, next{}, written{}, reads_next(false), writes(false),
        streams(!two && g.source.complex_values && g.target.complex_values && g.planes > 1 &&
                of.components * (bytes_of_all(g.source, source) + bytes_of_all(g.target, target)) > simulator::CACHED) {
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
    source.table(line_in, source_lines, offsets[0], buffers[0]);
    target.table(line_out, target_lines, offsets[1], buffers[1]);
  }

  // Transforms the units of the stage from `stage.begin` to `stage.end`.
  void run() {
    if (two && g.to_points && !stage.follows) clear_gaps(plane);
    const index pieces = simulator::pieces<T>(g);
    for (index unit = stage.begin; unit < stage.end;) {
      const index number = unit / pieces, c = number / g.planes, p = number % g.planes;
      // Of this plane: all pieces, or those up to the stage's end.
      const index piece = unit % pieces, end = stage.end - unit < pieces - piece ? piece + stage.end - unit : pieces;
      unit += end - piece;
      place(c, p);
      if (p + 1 < g.planes)
        expect(c, p + 1);
      else if (c + 1 < stage.components)
        expect(c + 1, 0);
      if (two) {
        first_pass(plane);
        second_pass(plane);
      } else {
        // The lines of the target that are written next are those of the next plane.
        writes = writes && p + 1 < g.planes;
        written.plane += target.stride[g.block];
        lines(piece, end);
      }
    }
  }

  // Chooses plane `p` of component `c`, and expects no other plane after it. `fetches`: whether the target's lines are
  // prefetched.
  void place(index c, index p, bool fetches = true) {
    const index start_in = g.start_in == 1 ? stage.start * source.stride[g.start_axis] : 0;
    const index start_out = g.start_in == 2 ? stage.start * target.stride[g.start_axis] : 0;
    from = {offsets[0], buffers[0], start_in + c * source.component + p * source.stride[g.block], nullptr};
    to = {offsets[1], buffers[1], start_out + c * target.component + p * target.stride[g.block], nullptr};
    written = to;
    writes = fetches && g.target.complex_values;
    reads_next = false;
  }

  // The plane to be read next.
  void expect(index c, index p) {
    const index start_in = g.start_in == 1 ? stage.start * source.stride[g.start_axis] : 0;
    next = {offsets[0], buffers[0], start_in + c * source.component + p * source.stride[g.block], nullptr};
    reads_next = g.source.complex_values;
  }

  // Transforms tiles of lines, or pairs of tiles of real lines, if only one axis is transformed.
  void lines(index piece, index end) {
    const index tiles = tile_count<T>(lanes_in), each = g.real ? 2 : 1, last = simulator::pieces<T>(g);
    index part = piece;
    if (streams) {
      read_in_order(from, source_lines, source_bytes);
      read_in_order(to, target_lines, target_bytes);
    }
    for_tiles(lanes_in, g.real, piece * each, end == last ? tiles : end * each, [&](index lane, index other, index lanes) {
      if (!streams) prefetch(part++, (tiles + each - 1) / each);
      gather(lane, other, lanes);
      scatter(lane, other, lanes, transformed_first(), g.first_points, g.first_modes, g.real);
    });
  }

  // Transforms the plane's lines along the first axis. They are written into the tiles of `plane` as lanes.
  void first_pass(T *plane) {
    const index pairs = real_first ? 2 : 1, parts = (tile_count<T>(lanes_in) + pairs - 1) / pairs;
    index part = 0;
    for_tiles(lanes_in, real_first, 0, tile_count<T>(lanes_in), [&](index lane, index other, index lanes) {
      prefetch(part++, parts);
      gather(lane, other, lanes);
      spread(transformed_first(), lane, other, lanes, plane);
    });
  }

  // Writes a tile of results along the first axis, or those of a pair of tiles of real lines, into the tiles of `plane`.
  void spread(const T *found, index lane, index other, index lanes, T *plane) {
    const Rows across = g.to_points && !real_second ? modes(g.second_modes, g.second_points) : all(lanes_in);
    if (!real_first) {
      transpose_tile<T>(found, rows_of_result(rows_out), lane, lanes, plane, across, length);
      return;
    }
    T *a = tiles[0] == found ? tiles[1] : tiles[0], *b = tiles[2];
    unpack_pair<T>(found, a, b, g.first_modes, g.first_points, re, im, g.doubled ? T(1) : T(0.5));
    transpose_tile<T>(a, all(g.first_modes), lane, lanes, plane, across, length);
    if (other != lane) transpose_tile<T>(b, all(g.first_modes), other, lanes, plane, across, length);
  }

  // Numbers in the tiles of a plane.
  index plane_numbers() const { return tile_count<T>(rows_out) * g.second_points * CELL; }

  // Calls visit(lane, lane of the partner, lanes) for the pairs of tiles of real lines of a plane, or of one of its
  // pieces.
  template <class Visit> void for_tiles_of_points(Visit visit) const {
    for_tiles(rows_out, real_second, 0, tile_count<T>(rows_out), visit);
  }

  template <class Visit> void for_tiles_of_piece(index piece, Visit visit) const {
    const index tiles = tile_count<T>(lanes_in), last = simulator::pieces<T>(g);
    for_tiles(lanes_in, true, piece * 2, piece + 1 == last ? tiles : (piece + 1) * 2, visit);
  }

  // Transforms the lines along the second axis, and writes the results to the target.
  void second_pass(const T *plane) {
    index row = 0;
    for_tiles(rows_out, real_second, 0, tile_count<T>(rows_out), [&](index lane, index other, index lanes) {
      T *found = transformed_second(plane, row, other != lane);
      row += real_second ? 2 : 1;
      scatter(lane, other, lanes, found, g.second_points, g.second_modes, real_second);
    });
  }

  // Transforms tile `row` of a plane, for real results together with the following tile if they are a `pair`, and
  // returns the one of tiles[0] and tiles[1] that holds the result.
  T *transformed_second(const T *plane, index row, bool pair) {
    const T *tile = plane + row * length * CELL;
    if (!real_second) return transform<T>(second, tile, tiles[0], tiles[1]);
    pack_pair<T>(tile, pair ? tile + length * CELL : tile, tiles[1], g.second_modes, g.second_points, re, im, weight());
    return transform<T>(second, tiles[1], tiles[0], tiles[1]);
  }

  // Transforms tiles[1] along the first axis.
  T *transformed_first() { return transform<T>(first, tiles[1], tiles[0], tiles[1]); }
  T *transformed_first(const T *tile) { return transform<T>(first, tile, tiles[0], tiles[1]); }

  // Prefetches a part of the plane to be read next, and of the lines of the target.
  void prefetch(index part, index parts) {
    if (reads_next) fetch<false>(next, source_lines, source_bytes, part, parts);
    if (writes) fetch<true>(written, target_lines, target_bytes, part, parts);
  }

  // Calls visit(lane, lane of the partner, lanes) for the tiles, or pairs of tiles, of an axis from `begin` to `end`.
  template <class Visit> static void for_tiles(index extent, bool pairs, index begin, index end, Visit visit) {
    const index count = tile_count<T>(extent), lanes = extent < L::CELL ? extent : L::CELL;
    for (index i = begin; i < end; i += pairs ? 2 : 1) {
      const index next = pairs && i + 1 < count ? i + 1 : i;
      visit(tile_start<T>(i, extent), tile_start<T>(next, extent), lanes);
    }
  }

  // Gathers a tile of the source, or a pair of tiles of real lines, into tiles[1].
  void gather(index lane, index other, index lanes) {
    const bool real = g.real && g.first == simulator::Z;
    if (!real) {
      const Rows rows = g.to_points ? modes(g.first_modes, g.first_points) : all(g.first_points);
      zero_cells<T>(tiles[1], rows.low, rows.low + rows.shift);
      load(lane, lanes, tiles[1], rows);
    } else if (g.to_points) {
      load(lane, lanes, tiles[2], all(g.first_modes));
      load(other, lanes, tiles[3], all(g.first_modes));
      pack_pair<T>(tiles[2], tiles[3], tiles[1], g.first_modes, g.first_points, re, im, weight());
    } else if (across_in) {
      const Segment line = all(g.first_points).segment(0);
      load_across<T, 1>(from, lane, lanes, tiles[1], line, re, im);
      load_across<T, 1>(from, other, lanes, tiles[1], line, im, re);
    } else {
      load_real<T>(from, lane, other, lanes, tiles[1], g.first_points, re, im);
    }
  }

  // Writes a tile of results, or the results of a pair of tiles of real lines, to the target.
  void scatter(index lane, index other, index lanes, T *found, index points, index kept, bool real) {
    const T scale = T(stage.scale);
    if (!real) {
      store(lane, lanes, found, g.to_points ? all(points) : modes(kept, points), scale);
    } else if (!g.to_points) {
      unpack_pair<T>(found, tiles[2], tiles[3], kept, points, re, im, g.doubled ? T(1) : T(0.5));
      store(lane, lanes, tiles[2], all(kept), scale);
      store(other, lanes, tiles[3], all(kept), scale);
    } else if (across_out) {
      const Segment line = all(points).segment(0);
      store_across<T, 1>(to, lane, lanes, found, line, re, im, scale);
      store_across<T, 1>(to, other, lanes, found, line, im, re, scale);
    } else {
      store_real<T>(to, lane, other, lanes, found, points, re, im, scale);
    }
  }

  // Sets the cells between the modes of positive and negative wavenumber of the second axis to zero, once for all
  // planes.
  void clear_gaps(T *plane) {
    if (g.real && g.second == simulator::Z) return;
    const Rows across = modes(g.second_modes, g.second_points);
    for (index number = 0; number < tile_count<T>(rows_out); ++number)
      zero_cells<T>(plane + number * g.second_points * CELL, across.low, across.low + across.shift);
  }

 private:
  static index bytes_of(const Side &side) { return index(sizeof(T)) * (side.complex_values ? 2 : 1); }
  static index bytes_of_all(const Side &side, const Arranged<T> &at) {
    return side.messages * at.component * index(sizeof(T));
  }
  static Rows all(index count) { return {count, count, 0, count}; }
  static Rows modes(index count, index points) { return {count, (count + 1) / 2, points - count, points}; }
  Rows rows_of_result(index rows) const { return g.to_points ? all(rows) : modes(g.first_modes, g.first_points); }
  T weight() const { return g.doubled ? T(1) : T(0.5); }

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

  void load(index lane, index lanes, T *tile, Rows rows) {
    if (across_in)
      for_segments(source, g.first, from, rows, [&](Lines<T> lines, Segment segment) {
        load_across<T, 2>(lines, lane, lanes, tile, segment, re, im);
      });
    else
      load_complex<T>(from, lane, lanes, tile, rows, re, im);
  }

  void store(index lane, index lanes, const T *tile, Rows rows, T scale) {
    if (across_out)
      for_segments(target, two ? g.second : g.first, to, rows, [&](Lines<T> lines, Segment segment) {
        store_across<T, 2>(lines, lane, lanes, tile, segment, re, im, scale);
      });
    else
      store_complex<T>(to, lane, lanes, tile, rows, re, im, scale);
  }
};

template <class T> static void run(const Stage &stage) {
  if (stage.begin == 0) clear_padding<T>(stage);
  Runner<T>(stage).run();
}

}  // namespace SIMULATOR_ISA

#endif
