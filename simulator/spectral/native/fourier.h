// Complex Fourier transforms over the lanes of a tile: Stockham's algorithm, which needs no reordering at the end.
//
// With n = R m, and s the product of the radices of earlier passes, a pass computes for p < m, q < s, k < R
//
//   y[q + s (R p + k)] = exp(-2 pi i p k / n) sum_j exp(-2 pi i j k / R) x[q + s (p + m j)]
//
// where every x and y is a cell. (Van Loan, Computational Frameworks for the Fast Fourier Transform, 1992, 1.7.)
// The sign of the exponent is always minus; an exchange of real and imaginary parts on both sides changes the sign.

#ifndef SIMULATOR_FOURIER_H
#define SIMULATOR_FOURIER_H

#include "lanes.h"

namespace SIMULATOR_ISA {

using simulator::Fourier;
using simulator::index;
using simulator::Pass;

template <class T> struct Complex {
  typename Lanes<T>::vec re, im;
};

template <class T> static inline Complex<T> operator+(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> static inline Complex<T> operator-(Complex<T> a, Complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> static inline Complex<T> times(Complex<T> a, T re, T im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}
// a - i b and a + i b
template <class T> static inline Complex<T> minus_i(Complex<T> a, Complex<T> b) { return {a.re + b.im, a.im - b.re}; }
template <class T> static inline Complex<T> plus_i(Complex<T> a, Complex<T> b) { return {a.re - b.im, a.im + b.re}; }

template <class T> static inline void four(Complex<T> &a, Complex<T> &b, Complex<T> &c, Complex<T> &d) {
  Complex<T> even = a + c, odd = a - c, sum = b + d, difference = b - d;
  a = even + sum;
  b = minus_i(odd, difference);
  c = even - sum;
  d = plus_i(odd, difference);
}

// b_k = sum_j exp(-2 pi i j k / R) a_j, in place; every `stride`-th of `roots` is a root of order R. Odd radices join the
// terms j and R - j:
// b_k, b_(R-k) = a_0 + sum_j cos(2 pi j k / R) (a_j + a_(R-j)) -+ i sum_j sin(2 pi j k / R) (a_j - a_(R-j)).
template <class T, int R> struct Butterfly {
  static inline void apply(Complex<T> *a, const T *roots, int stride = 1) {
    constexpr int H = (R - 1) / 2;
    Complex<T> sum[H], difference[H], first = a[0], total = a[0];
#pragma GCC unroll 8
    for (int j = 0; j < H; ++j) {
      sum[j] = a[1 + j] + a[R - 1 - j];
      difference[j] = a[1 + j] - a[R - 1 - j];
      total = total + sum[j];
    }
    a[0] = total;
#pragma GCC unroll 8
    for (int k = 1; k <= H; ++k) {
      Complex<T> even = first, odd = {first.re * T(0), first.im * T(0)};
#pragma GCC unroll 16
      for (int j = 1; j <= H; ++j) {
        const T *root = roots + 2 * stride * ((j * k) % R);
        even.re += root[0] * sum[j - 1].re;
        even.im += root[0] * sum[j - 1].im;
        odd.re -= root[1] * difference[j - 1].re;
        odd.im -= root[1] * difference[j - 1].im;
      }
      a[k] = minus_i(even, odd);
      a[R - k] = plus_i(even, odd);
    }
  }
};

template <class T> struct Butterfly<T, 2> {
  static inline void apply(Complex<T> *a, const T *, int = 1) {
    Complex<T> b = a[1];
    a[1] = a[0] - b;
    a[0] = a[0] + b;
  }
};

template <class T> struct Butterfly<T, 4> {
  static inline void apply(Complex<T> *a, const T *, int = 1) { four(a[0], a[1], a[2], a[3]); }
};

template <class T> struct Butterfly<T, 8> {
  static inline void apply(Complex<T> *a, const T *) {
    four(a[0], a[2], a[4], a[6]);
    four(a[1], a[3], a[5], a[7]);
    const T r = T(0.70710678118654752440);
    Complex<T> one = {(a[3].re + a[3].im) * r, (a[3].im - a[3].re) * r};
    Complex<T> two = {a[5].im, -a[5].re};
    Complex<T> three = {(a[7].im - a[7].re) * r, -(a[7].re + a[7].im) * r};
    Complex<T> e0 = a[0], e1 = a[2], e2 = a[4], e3 = a[6], o0 = a[1];
    a[0] = e0 + o0;
    a[1] = e1 + one;
    a[2] = e2 + two;
    a[3] = e3 + three;
    a[4] = e0 - o0;
    a[5] = e1 - one;
    a[6] = e2 - two;
    a[7] = e3 - three;
  }
};

// 4 x 4 points: the factors between are exp(-2 pi i j k / 16).
template <class T> struct Butterfly<T, 16> {
  static inline void apply(Complex<T> *a, const T *) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) four(a[i], a[i + 4], a[i + 8], a[i + 12]);
    const T r = T(0.70710678118654752440), c = T(0.92387953251128675613), d = T(0.38268343236508977173);
    a[5] = times(a[5], c, -d);
    a[6] = {(a[6].re + a[6].im) * r, (a[6].im - a[6].re) * r};
    a[7] = times(a[7], d, -c);
    a[9] = {(a[9].re + a[9].im) * r, (a[9].im - a[9].re) * r};
    a[10] = {a[10].im, -a[10].re};
    a[11] = {(a[11].im - a[11].re) * r, -(a[11].re + a[11].im) * r};
    a[13] = times(a[13], d, -c);
    a[14] = {(a[14].im - a[14].re) * r, -(a[14].re + a[14].im) * r};
    a[15] = times(a[15], -c, d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) four(a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]);
    Complex<T> b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) b[i] = a[i];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) a[i] = b[4 * (i % 4) + i / 4];
  }
};

// A B points: B transforms of A points, the factors exp(-2 pi i j k / A B), and A transforms of B points.
template <class T, int A, int B> struct Composite {
  static inline void apply(Complex<T> *a, const T *roots) {
    Complex<T> b[A * B];
#pragma GCC unroll 8
    for (int j = 0; j < B; ++j) {
      Complex<T> c[A];
#pragma GCC unroll 8
      for (int i = 0; i < A; ++i) c[i] = a[j + B * i];
      Butterfly<T, A>::apply(c, roots, B);
#pragma GCC unroll 8
      for (int k = 0; k < A; ++k) b[k * B + j] = j * k ? times(c[k], roots[2 * j * k], roots[2 * j * k + 1]) : c[k];
    }
#pragma GCC unroll 8
    for (int k = 0; k < A; ++k) {
      Butterfly<T, B>::apply(b + k * B, roots, A);
#pragma GCC unroll 8
      for (int l = 0; l < B; ++l) a[k + A * l] = b[k * B + l];
    }
  }
};

template <class T> struct Butterfly<T, 6> : Composite<T, 2, 3> {};
template <class T> struct Butterfly<T, 9> : Composite<T, 3, 3> {};
template <class T> struct Butterfly<T, 10> : Composite<T, 2, 5> {};
template <class T> struct Butterfly<T, 12> : Composite<T, 4, 3> {};

// The butterflies of one p. TWIDDLED: with the factors exp(-2 pi i p k / n); for p = 0 these factors are 1.
template <class T, int R, bool TWIDDLED>
static inline void butterflies(const T *x, T *y, index s, index apart, const T *twiddles, const T *roots) {
  typedef Lanes<T> L;
  for (index q = 0; q < s; ++q) {
#pragma GCC unroll 4
    for (int part = 0; part < L::PARTS; ++part) {
      Complex<T> a[R];
      const T *from = x + q * 2 * L::CELL + part * L::WIDTH;
      T *to = y + q * 2 * L::CELL + part * L::WIDTH;
#pragma GCC unroll 16
      for (int j = 0; j < R; ++j) {
        const T *cell = from + j * apart * 2 * L::CELL;
        a[j] = {L::load(cell), L::load(cell + L::CELL)};
      }
      Butterfly<T, R>::apply(a, roots);
#pragma GCC unroll 16
      for (int k = 0; k < R; ++k) {
        if (TWIDDLED && k) a[k] = times(a[k], twiddles[2 * (k - 1)], twiddles[2 * (k - 1) + 1]);
        T *cell = to + k * s * 2 * L::CELL;
        L::store(cell, a[k].re);
        L::store(cell + L::CELL, a[k].im);
      }
    }
  }
}

template <class T, int R> static void pass(const T *x, T *y, const Pass<T> &of) {
  constexpr index CELL = 2 * Lanes<T>::CELL;
  butterflies<T, R, false>(x, y, of.s, of.s * of.m, of.twiddles, of.roots);
  for (index p = 1; p < of.m; ++p)
    butterflies<T, R, true>(x + p * of.s * CELL, y + p * R * of.s * CELL, of.s, of.s * of.m,
                            of.twiddles + p * 2 * (R - 1), of.roots);
}

// A pass of any odd radix, by the definition of the transform.
template <class T> static void general_pass(const T *x, T *y, const Pass<T> &of) {
  typedef Lanes<T> L;
  constexpr index CELL = 2 * L::CELL;
  const index R = of.radix, apart = of.s * of.m * CELL;
  for (index p = 0; p < of.m; ++p)
    for (index q = 0; q < of.s; ++q)
      for (int part = 0; part < L::PARTS; ++part) {
        const T *from = x + (q + of.s * p) * CELL + part * L::WIDTH;
        T *to = y + (q + of.s * R * p) * CELL + part * L::WIDTH;
        const Complex<T> first = {L::load(from), L::load(from + L::CELL)};
        Complex<T> total = first;
        for (index j = 1; j < R; ++j)
          total = total + Complex<T>{L::load(from + j * apart), L::load(from + j * apart + L::CELL)};
        L::store(to, total.re);
        L::store(to + L::CELL, total.im);
        for (index k = 1; k <= (R - 1) / 2; ++k) {
          Complex<T> even = first, odd = {first.re * T(0), first.im * T(0)};
          for (index j = 1, jk = k; j <= (R - 1) / 2; ++j, jk = jk + k < R ? jk + k : jk + k - R) {
            const T *one = from + j * apart, *other = from + (R - j) * apart;
            const T cosine = of.roots[2 * jk], sine = -of.roots[2 * jk + 1];
            const Complex<T> a = {L::load(one), L::load(one + L::CELL)};
            const Complex<T> b = {L::load(other), L::load(other + L::CELL)};
            even.re += cosine * (a.re + b.re);
            even.im += cosine * (a.im + b.im);
            odd.re += sine * (a.re - b.re);
            odd.im += sine * (a.im - b.im);
          }
          const T *w = of.twiddles + 2 * (p * (R - 1));
          const Complex<T> low = times(minus_i(even, odd), w[2 * (k - 1)], w[2 * (k - 1) + 1]);
          const Complex<T> high = times(plus_i(even, odd), w[2 * (R - k - 1)], w[2 * (R - k - 1) + 1]);
          L::store(to + k * of.s * CELL, low.re);
          L::store(to + k * of.s * CELL + L::CELL, low.im);
          L::store(to + (R - k) * of.s * CELL, high.re);
          L::store(to + (R - k) * of.s * CELL + L::CELL, high.im);
        }
      }
}

// Transforms the tile `x` in the tiles `a` and `b`, and returns the tile that holds the result. `x` may be `b`.
template <class T> static T *transform(const Fourier<T> &of, const T *x, T *a, T *b) {
  typedef Lanes<T> L;
  if (of.count == 0) {
    for (int i = 0; i < 2 * L::CELL; ++i) a[i] = x[i];
    return a;
  }
  for (index i = 0; i < of.count; ++i) {
    const Pass<T> &one = of.passes[i];
    switch (one.radix) {
      case 2: pass<T, 2>(x, a, one); break;
      case 3: pass<T, 3>(x, a, one); break;
      case 4: pass<T, 4>(x, a, one); break;
      case 5: pass<T, 5>(x, a, one); break;
      case 6: pass<T, 6>(x, a, one); break;
      case 7: pass<T, 7>(x, a, one); break;
      case 8: pass<T, 8>(x, a, one); break;
#ifdef __AVX512F__  // other processors have too few registers
      case 9: pass<T, 9>(x, a, one); break;
      case 10: pass<T, 10>(x, a, one); break;
      case 12: pass<T, 12>(x, a, one); break;
      case 16: pass<T, 16>(x, a, one); break;
#endif
      default: general_pass<T>(x, a, one);
    }
    x = a;
    T *free = b;
    b = a;
    a = free;
  }
  return b;
}

}  // namespace SIMULATOR_ISA

#endif
