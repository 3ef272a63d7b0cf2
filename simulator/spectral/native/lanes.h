// Vectors of the processor's width, and the permutations that transforms over lanes need.
//
// This header is included once for every instruction set, in a namespace of its own (SIMULATOR_ISA), because the
// linker must not merge the same template compiled for two processors. For the same reason this header, and the
// headers that include it, do not use the standard library.

#ifndef SIMULATOR_LANES_H
#define SIMULATOR_LANES_H

#include "plan.h"

namespace SIMULATOR_ISA {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

template <int BYTES> struct IntegerOf;
template <> struct IntegerOf<4> { typedef int type; };
template <> struct IntegerOf<8> { typedef long long type; };

template <class T> struct Lanes {
  static constexpr int WIDTH = VECTOR_BYTES / int(sizeof(T));
  static constexpr int CELL = simulator::CELL_BYTES / int(sizeof(T));
  static constexpr int PARTS = CELL / WIDTH;
  typedef T vec __attribute__((vector_size(VECTOR_BYTES)));
  typedef T unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));
  typedef typename IntegerOf<int(sizeof(T))>::type integer;
  typedef integer mask __attribute__((vector_size(VECTOR_BYTES)));

  static inline vec load(const T *from) { return *reinterpret_cast<const unaligned *>(from); }
  static inline void store(T *to, vec value) { *reinterpret_cast<unaligned *>(to) = value; }
};

template <int... I> struct Indices {};
template <int N, int... I> struct Counted : Counted<N - 1, N - 1, I...> {};
template <int... I> struct Counted<0, I...> { typedef Indices<I...> type; };

// WIDTH of the 2 * WIDTH lanes of two vectors: lane i of the result is lane RULE::at(i, WIDTH).
template <class T, class RULE, int... I>
static inline typename Lanes<T>::vec permuted(typename Lanes<T>::vec a, typename Lanes<T>::vec b, Indices<I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, RULE::at(I, Lanes<T>::WIDTH)...);
#else
  typename Lanes<T>::mask order = {typename Lanes<T>::integer(RULE::at(I, Lanes<T>::WIDTH))...};
  return __builtin_shuffle(a, b, order);
#endif
}

template <class T, class RULE>
static inline typename Lanes<T>::vec permute(typename Lanes<T>::vec a, typename Lanes<T>::vec b) {
  return permuted<T, RULE>(a, b, typename Counted<Lanes<T>::WIDTH>::type());
}

struct InterleaveLow { static constexpr int at(int i, int w) { return i / 2 + (i % 2) * w; } };
struct InterleaveHigh { static constexpr int at(int i, int w) { return w / 2 + i / 2 + (i % 2) * w; } };
struct Even { static constexpr int at(int i, int) { return 2 * i; } };
struct Odd { static constexpr int at(int i, int) { return 2 * i + 1; } };

// Transposes WIDTH vectors in place: log2(WIDTH) rounds of perfect shuffles.
template <class T> static inline void transpose(typename Lanes<T>::vec *rows) {
  constexpr int W = Lanes<T>::WIDTH;
  typename Lanes<T>::vec other[W];
#pragma GCC unroll 4
  for (int round = 1; round < W; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < W / 2; ++i) {
      other[2 * i] = permute<T, InterleaveLow>(rows[i], rows[i + W / 2]);
      other[2 * i + 1] = permute<T, InterleaveHigh>(rows[i], rows[i + W / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) rows[i] = other[i];
  }
}

}  // namespace SIMULATOR_ISA

#endif
