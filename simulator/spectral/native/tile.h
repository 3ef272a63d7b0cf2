// Copies between arrays in memory and tiles: CELL neighbouring lines are gathered side by side, one in each lane.
//
// A tile is a column of cells (see plan.h). Lanes that are contiguous in memory are loaded directly; if instead the
// points of a line are contiguous, blocks of WIDTH x WIDTH numbers are transposed in registers. `re` and `im` are the
// halves of a cell that hold real and imaginary parts; an exchange of both changes the sign of the exponent.

#ifndef SIMULATOR_TILE_H
#define SIMULATOR_TILE_H

#include "lanes.h"

namespace SIMULATOR_ISA {

using simulator::index;

// `count` points of a line, starting at `row`, fill the cells starting at `cell`.
struct Segment {
  index row, cell, count;
};

// The cells of the rows of an array: one cell for each row, or with a gap between modes of both signs.
struct Rows {
  index count;   // rows of the array
  index low;     // row i < `low` is in cell i
  index shift;   // any other row i is in cell i + `shift`
  index cells;
  Segment segment(int i) const {
    return i == 0 ? Segment{0, 0, low} : Segment{low, low + shift, count - low};
  }
  index cell(index row) const { return row < low ? row : row + shift; }
};

// The positions of the lines along one axis of a plane.
template <class T> struct Lines {
  const index *offset;  // of line i from the beginning of its message, in numbers of type T
  void *const *buffer;  // of the message of line i
  index plane;          // of this plane, in numbers of type T
  void *message;        // of all lines, if lines continue from message to message; else null
  T *at(index line) const { return static_cast<T *>(message ? message : buffer[line]) + offset[line] + plane; }
};

// Prefetches part `part` of `parts` of `count` lines of `bytes` bytes into the second-level cache: the lines of a
// plane lie far apart, and the processor does not prefetch them by itself.
template <bool WRITE, class T>
static inline void fetch(Lines<T> lines, index count, index bytes, index part, index parts) {
  for (index line = count * part / parts; line < count * (part + 1) / parts; ++line) {
    const char *at = reinterpret_cast<const char *>(lines.at(line));
    for (index b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, WRITE, 2);
  }
}

// Reads a number of each cache line of `count` lines of `bytes` bytes. In order, so that the processor fetches the
// following lines from memory by itself: more at a time than it prefetches on demand.
template <class T> static inline void read_in_order(Lines<T> lines, index count, index bytes) {
  for (index line = 0; line < count; ++line) {
    const volatile char *at = reinterpret_cast<const volatile char *>(lines.at(line));
    for (index b = 0; b < bytes; b += 64) (void)at[b];
  }
}

template <class T> static inline void zero_cells(T *tile, index from, index to) {
  typedef Lanes<T> L;
  for (T *p = tile + from * 2 * L::CELL; p < tile + to * 2 * L::CELL; p += L::WIDTH) L::store(p, typename L::vec{});
}

// ---- lanes contiguous: `lines` are the rows -------------------------------------------------------------------------

template <class T> static inline void copy(T *to, const T *from, index count) {
  for (index i = 0; i < count; ++i) to[i] = from[i];
}

template <class T>
static void load_complex(Lines<T> lines, index lane, index lanes, T *tile, Rows rows, index re, index im) {
  typedef Lanes<T> L;
  T partial[2 * L::CELL] = {};
  for (int i = 0; i < 2; ++i) {
    const Segment segment = rows.segment(i);
    T *cell = tile + segment.cell * 2 * L::CELL;
    for (index row = segment.row; row < segment.row + segment.count; ++row, cell += 2 * L::CELL) {
      const T *from = lines.at(row) + 2 * lane;
      if (lanes < L::CELL) {
        copy(partial, from, 2 * lanes);
        from = partial;
      }
#pragma GCC unroll 4
      for (int part = 0; part < L::PARTS; ++part) {
        const typename L::vec a = L::load(from + 2 * part * L::WIDTH), b = L::load(from + (2 * part + 1) * L::WIDTH);
        L::store(cell + re + part * L::WIDTH, permute<T, Even>(a, b));
        L::store(cell + im + part * L::WIDTH, permute<T, Odd>(a, b));
      }
    }
  }
}

template <class T>
static void store_complex(Lines<T> lines, index lane, index lanes, const T *tile, Rows rows, index re, index im, T scale) {
  typedef Lanes<T> L;
  T partial[2 * L::CELL];
  for (int i = 0; i < 2; ++i) {
    const Segment segment = rows.segment(i);
    const T *cell = tile + segment.cell * 2 * L::CELL;
    for (index row = segment.row; row < segment.row + segment.count; ++row, cell += 2 * L::CELL) {
      T *to = lines.at(row) + 2 * lane, *at = lanes < L::CELL ? partial : to;
#pragma GCC unroll 4
      for (int part = 0; part < L::PARTS; ++part) {
        const typename L::vec a = L::load(cell + re + part * L::WIDTH) * scale;
        const typename L::vec b = L::load(cell + im + part * L::WIDTH) * scale;
        L::store(at + 2 * part * L::WIDTH, permute<T, InterleaveLow>(a, b));
        L::store(at + (2 * part + 1) * L::WIDTH, permute<T, InterleaveHigh>(a, b));
      }
      if (lanes < L::CELL) copy(to, partial, 2 * lanes);
    }
  }
}

// Loads real numbers of two tiles: those of `lane` on into the `re` halves of the cells, those of `other` on into `im`.
template <class T>
static void load_real(Lines<T> lines, index lane, index other, index lanes, T *tile, index rows, index re, index im) {
  typedef Lanes<T> L;
  T partial[2][L::CELL] = {};
  for (index row = 0; row < rows; ++row, tile += 2 * L::CELL) {
    const T *line = lines.at(row), *one = line + lane, *two = line + other;
    if (lanes < L::CELL) {
      copy(partial[0], one, lanes);
      copy(partial[1], two, lanes);
      one = partial[0], two = partial[1];
    }
#pragma GCC unroll 4
    for (int part = 0; part < L::PARTS; ++part) {
      L::store(tile + re + part * L::WIDTH, L::load(one + part * L::WIDTH));
      L::store(tile + im + part * L::WIDTH, L::load(two + part * L::WIDTH));
    }
  }
}

template <class T>
static void store_real(Lines<T> lines, index lane, index other, index lanes, const T *tile, index rows, index re, index im,
                       T scale) {
  typedef Lanes<T> L;
  T partial[2][L::CELL];
  for (index row = 0; row < rows; ++row, tile += 2 * L::CELL) {
    T *line = lines.at(row), *one = line + lane, *two = line + other;
    if (lanes < L::CELL) one = partial[0], two = partial[1];
#pragma GCC unroll 4
    for (int part = 0; part < L::PARTS; ++part) {
      L::store(one + part * L::WIDTH, L::load(tile + re + part * L::WIDTH) * scale);
      L::store(two + part * L::WIDTH, L::load(tile + im + part * L::WIDTH) * scale);
    }
    if (lanes < L::CELL) {
      copy(line + lane, partial[0], lanes);
      copy(line + other, partial[1], lanes);
    }
  }
}

// ---- points of a line contiguous: `lines` are the lanes -------------------------------------------------------------

// NUMBERS is 1 for real and 2 for complex points. The last block of points overlaps the previous one; the points of
// lines shorter than a block are copied one by one.

template <class T, int NUMBERS>
static void load_across(Lines<T> lines, index lane, index lanes, T *tile, Segment segment, index re, index im) {
  typedef Lanes<T> L;
  constexpr index STEP = L::WIDTH / NUMBERS;
  for (int part = 0; part < L::PARTS; ++part) {
    const T *from[L::WIDTH];
    for (int i = 0; i < L::WIDTH; ++i) {
      const index l = part * L::WIDTH + i;
      from[i] = lines.at(lane + (l < lanes ? l : lanes - 1));
    }
    T *to = tile + segment.cell * 2 * L::CELL + part * L::WIDTH;
    if (segment.count < STEP) {
      for (index k = 0; k < segment.count; ++k)
        for (int l = 0; l < L::WIDTH; ++l) {
          to[k * 2 * L::CELL + re + l] = from[l][NUMBERS * (segment.row + k)];
          if (NUMBERS == 2) to[k * 2 * L::CELL + im + l] = from[l][NUMBERS * (segment.row + k) + 1];
        }
      continue;
    }
    for (index next = 0; next < segment.count; next += STEP) {
      const index k = next + STEP <= segment.count ? next : segment.count - STEP;
      typename L::vec block[L::WIDTH];
#pragma GCC unroll 16
      for (int l = 0; l < L::WIDTH; ++l) block[l] = L::load(from[l] + NUMBERS * (segment.row + k));
      transpose<T>(block);
#pragma GCC unroll 16
      for (int j = 0; j < STEP; ++j) {
        L::store(to + (k + j) * 2 * L::CELL + re, block[NUMBERS * j]);
        if (NUMBERS == 2) L::store(to + (k + j) * 2 * L::CELL + im, block[NUMBERS * j + 1]);
      }
    }
  }
}

template <class T, int NUMBERS>
static void store_across(Lines<T> lines, index lane, index lanes, const T *tile, Segment segment, index re, index im, T scale) {
  typedef Lanes<T> L;
  constexpr index STEP = L::WIDTH / NUMBERS;
  for (int part = 0; part < L::PARTS; ++part) {
    T *to[L::WIDTH];
    const int valid = lanes - part * L::WIDTH < L::WIDTH ? int(lanes) - part * L::WIDTH : L::WIDTH;
    for (int i = 0; i < valid; ++i) to[i] = lines.at(lane + part * L::WIDTH + i);
    const T *from = tile + segment.cell * 2 * L::CELL + part * L::WIDTH;
    if (segment.count < STEP) {
      for (index k = 0; k < segment.count; ++k)
        for (int l = 0; l < valid; ++l) {
          to[l][NUMBERS * (segment.row + k)] = scale * from[k * 2 * L::CELL + re + l];
          if (NUMBERS == 2) to[l][NUMBERS * (segment.row + k) + 1] = scale * from[k * 2 * L::CELL + im + l];
        }
      continue;
    }
    for (index next = 0; next < segment.count; next += STEP) {
      const index k = next + STEP <= segment.count ? next : segment.count - STEP;
      typename L::vec block[L::WIDTH];
#pragma GCC unroll 16
      for (int j = 0; j < STEP; ++j) {
        block[NUMBERS * j] = L::load(from + (k + j) * 2 * L::CELL + re) * scale;
        if (NUMBERS == 2) block[NUMBERS * j + 1] = L::load(from + (k + j) * 2 * L::CELL + im) * scale;
      }
      transpose<T>(block);
      if (valid == L::WIDTH) {
#pragma GCC unroll 16
        for (int l = 0; l < L::WIDTH; ++l) L::store(to[l] + NUMBERS * (segment.row + k), block[l]);
      } else {
        for (int l = 0; l < valid; ++l) L::store(to[l] + NUMBERS * (segment.row + k), block[l]);
      }
    }
  }
}

// ---- from one axis of a plane to the other --------------------------------------------------------------------------

// The first cell of tile `number` of an axis: the last tile overlaps the previous one.
template <class T> static inline index tile_start(index number, index extent) {
  constexpr index CELL = Lanes<T>::CELL;
  if (extent < CELL) return 0;
  return (number + 1) * CELL <= extent ? number * CELL : extent - CELL;
}

template <class T> static inline index tile_count(index extent) {
  return (extent + Lanes<T>::CELL - 1) / Lanes<T>::CELL;
}

// Transposes a tile into the plane's tiles (each of `length` cells): the `rows` of the tile become lanes, and its
// lanes, the rows of `across` from `lane` on, become cells.
template <class T>
static void transpose_tile(const T *tile, Rows rows, index lane, index lanes, T *plane, Rows across, index length) {
  typedef Lanes<T> L;
  for (index number = 0; number < tile_count<T>(rows.count); ++number) {
    const index start = tile_start<T>(number, rows.count);
    T *to = plane + number * length * 2 * L::CELL;
    for (int from_part = 0; from_part < L::PARTS; ++from_part)
      for (int to_part = 0; to_part < L::PARTS; ++to_part) {
        const T *from[L::WIDTH];
        for (int i = 0; i < L::WIDTH; ++i) {
          const index row = start + to_part * L::WIDTH + i;
          from[i] = tile + rows.cell(row < rows.count ? row : rows.count - 1) * 2 * L::CELL + from_part * L::WIDTH;
        }
        for (index half = 0; half < 2 * L::CELL; half += L::CELL) {
          typename L::vec block[L::WIDTH];
#pragma GCC unroll 16
          for (int i = 0; i < L::WIDTH; ++i) block[i] = L::load(from[i] + half);
          transpose<T>(block);
#pragma GCC unroll 16
          for (int l = 0; l < L::WIDTH; ++l) {
            const index in_tile = from_part * L::WIDTH + l;
            if (in_tile < lanes)
              L::store(to + across.cell(lane + in_tile) * 2 * L::CELL + half + to_part * L::WIDTH, block[l]);
          }
        }
      }
  }
}

// ---- two real fields in one complex transform -----------------------------------------------------------------------

// Z = A + i B for two real fields a and b: Z(k) = A(k) + i B(k) and Z(n - k) = A(k)* + i B(k)*. `weight` multiplies
// the modes that represent their conjugates too; the imaginary parts of the other modes are ignored.
template <class T>
static void pack_pair(const T *a, const T *b, T *z, index modes, index n, index re, index im, T weight) {
  typedef Lanes<T> L;
  constexpr index CELL = 2 * L::CELL;
  zero_cells<T>(z, modes, n - modes + 1);
  for (index k = 0; k < modes; ++k) {
    const bool own = 2 * k == n || k == 0;
    for (int at = 0; at < L::CELL; at += L::WIDTH) {
      const typename L::vec a_re = L::load(a + k * CELL + re + at), a_im = L::load(a + k * CELL + im + at);
      const typename L::vec b_re = L::load(b + k * CELL + re + at), b_im = L::load(b + k * CELL + im + at);
      if (own) {
        L::store(z + k * CELL + re + at, a_re);
        L::store(z + k * CELL + im + at, b_re);
        continue;
      }
      L::store(z + k * CELL + re + at, (a_re - b_im) * weight);
      L::store(z + k * CELL + im + at, (a_im + b_re) * weight);
      L::store(z + (n - k) * CELL + re + at, (a_re + b_im) * weight);
      L::store(z + (n - k) * CELL + im + at, (b_re - a_im) * weight);
    }
  }
}

// The inverse: A(k) = (Z(k) + Z(n - k)*) / 2, B(k) = (Z(k) - Z(n - k)*) / 2i; `weight` takes the place of 1/2.
template <class T>
static void unpack_pair(const T *z, T *a, T *b, index modes, index n, index re, index im, T weight) {
  typedef Lanes<T> L;
  constexpr index CELL = 2 * L::CELL;
  for (index k = 0; k < modes; ++k) {
    const bool own = 2 * k == n || k == 0;
    const index other = k == 0 ? 0 : n - k;
    for (int at = 0; at < L::CELL; at += L::WIDTH) {
      const typename L::vec x = L::load(z + k * CELL + re + at), y = L::load(z + k * CELL + im + at);
      if (own) {
        L::store(a + k * CELL + re + at, x);
        L::store(a + k * CELL + im + at, typename L::vec{});
        L::store(b + k * CELL + re + at, y);
        L::store(b + k * CELL + im + at, typename L::vec{});
        continue;
      }
      const typename L::vec u = L::load(z + other * CELL + re + at), v = L::load(z + other * CELL + im + at);
      L::store(a + k * CELL + re + at, (x + u) * weight);
      L::store(a + k * CELL + im + at, (y - v) * weight);
      L::store(b + k * CELL + re + at, (y + v) * weight);
      L::store(b + k * CELL + im + at, (u - x) * weight);
    }
  }
}

}  // namespace SIMULATOR_ISA

#endif
