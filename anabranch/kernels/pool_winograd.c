/* Convolutions with 3x3, 5x5, 1x7 and 7x1 filters in a quarter and 0.36 of the multiplications (F(4x4, 3x3), see
 * `winograd.py`; F(2x2, 5x5), at the same points; F(4, 7), along one axis), in blocks that stay in the processor's caches;
 * XLA's own threads compute them (`pool_common.c`). A handler that `pool_winograd.py` calls, for a convolution and for its
 * gradient to the data, which is one with the filter turned. Of float32, or of bfloat16, which is widened as it is read and
 * rounded as it is written.
 *
 * First the filter is taken to points, in parts: for 32 columns (channels of the result) at each point a matrix. Then
 * each part takes some tiles of the data to points, multiplies at each point, and takes sums back to tiles of the result, 32
 * columns after another, so that nothing but the data, the filter and the result goes over memory. Parts are begun in this
 * order, so that a part that waits for the filter waits for threads that are at work.
 *
 * Contract: the handler checks what it is given, and whatever is wrong becomes an error of XLA's that names the
 * operation. What it works in is a second result of the call.
 */
#if HAS_BLOCKS
/* what a call's array of numbers holds: of the data, and of the result; rows and columns before the data that windows see;
 * whether the filter is turned; whether bias and ReLU follow; taps along an axis; which axes; tiles of a part; places to work
 * in */
enum {
  W_BATCH, W_ROWS, W_COLUMNS, W_DEPTH, W_OUT_ROWS, W_OUT_COLUMNS, W_OUT_DEPTH, W_TOP, W_LEFT, W_TURNED, W_BIASED, W_TAPS,
  W_AXES, W_TILES, W_PLACES, W_NUMBERS
};
/* taps along both axes, or along one of them: a line */
enum { BOTH_AXES, ALONG_ROWS, ALONG_COLUMNS };
/* points of a tile, along an axis and all; the most taps, and outputs of a tile, along an axis; numbers of a vector; columns,
 * and tiles, that registers hold sums for */
enum { EDGE = 6, POINTS = 36, MOST_TAPS = 5, MOST_OUTPUTS = 4, FLOATS = 16, ACROSS = 32, DOWN = 12 };
/* of a line: points, taps and outputs of a tile */
enum { LINE_POINTS = 10, LINE_TAPS = 7, LINE_OUTPUTS = 4 };

/* a result of so many bytes has left the caches when somebody reads it */
enum { STREAMED_BYTES = 1 << 24 };

typedef struct {
  Job work;
  int64_t n[W_NUMBERS];
  const void *data, *filter, *bias;
  void *result;
  float *at_points, *places;
  int points; /* of a tile */
  int outputs; /* of a tile, along an axis: as many values as there are points give them */
  int64_t high, wide; /* outputs of a tile, down and across */
  int64_t tiles_down, tiles_across, tiles, groups; /* groups of columns */
  int64_t place_floats;
  atomic_ullong taken;
  int is_half;     /* arrays are of bfloat16 */
  int is_streamed; /* the result, past the caches, which cannot hold it */
} WinogradJob;

/* What a core reads and writes here lies a row of images, or a point, apart, which it does not foresee by itself. So it is
 * told what comes next; what lies behind the end of an array does no harm. */
#define WILL_READ(place) __builtin_prefetch(place, 0)
#define WILL_WRITE(place) __builtin_prefetch(place, 1)

/* ------------------------------------------------------------------ numbers of either type */
/* A function for which a compiler knows whether the arrays are of bfloat16, or how many taps there are, wherever it is
 * called. */
#define OF_A_KIND VECTORS static inline __attribute__((always_inline))
/* Calls such a function, which returns nothing, for a job. */
#define CALL_OF_A_KIND(job, function, ...)                              \
  do {                                                                  \
    int64_t kind = 2 * (job)->n[W_TAPS] + ((job)->is_half ? 1 : 0);     \
    if (kind == 2 * 3) function(__VA_ARGS__, 0, 3);                     \
    if (kind == 2 * 3 + 1) function(__VA_ARGS__, 1, 3);                 \
    if (kind == 2 * MOST_TAPS) function(__VA_ARGS__, 0, MOST_TAPS);     \
    if (kind == 2 * MOST_TAPS + 1) function(__VA_ARGS__, 1, MOST_TAPS); \
    if (kind == 2 * LINE_TAPS) function(__VA_ARGS__, 0, LINE_TAPS);     \
    if (kind == 2 * LINE_TAPS + 1) function(__VA_ARGS__, 1, LINE_TAPS); \
  } while (0)

static inline const char *place_of(const void *array, int64_t at, int is_half) {
  return (const char *)array + at * (is_half ? 2 : 4);
}

OF_A_KIND __m512 read_numbers(const void *array, int64_t at, __mmask16 read, int is_half) {
  if (!is_half) return _mm512_maskz_loadu_ps(read, place_of(array, at, 0));
  __m256i halves = _mm256_maskz_loadu_epi16(read, place_of(array, at, 1));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Rounds to the nearest, of two to the even one; what is no number stays none. */
OF_A_KIND void write_numbers(void *array, int64_t at, __mmask16 written, __m512 numbers, int is_half) {
  char *place = (char *)place_of(array, at, is_half);
  if (!is_half) {
    _mm512_mask_storeu_ps(place, written, numbers);
    return;
  }
  __m512i bits = _mm512_castps_si512(numbers), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 none = _mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, none, bits, _mm512_set1_epi32(1 << 22));
  _mm256_mask_storeu_epi16(place, written, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

/* ------------------------------------------------------------------ lines */
/* F(4, 7) at these points and infinity, which is the last: pairs whose product is one or minus one, so that neither a high
 * power of them nor of what is one by them becomes large. */
static const float LINE_AT[LINE_POINTS - 1] = {0, 1, -1, 3 / 2.f, -3 / 2.f, 2 / 3.f, -2 / 3.f, 1 / 4.f, -4};
/* one by the product of a point's distances from all others */
static const float LINE_SHARE[LINE_POINTS - 1] = {1, -24 / 125.f, 24 / 125.f, 256 / 17875.f, -256 / 11375.f,
                                                  6561 / 11375.f, -6561 / 17875.f, -196608 / 163625.f, 3 / 163625.f};
/* B.T: the polynomials whose roots are the other points */
static const float LINE_DATA[LINE_POINTS][LINE_POINTS] = {
    {1, -15 / 4.f, -169 / 36.f, 665 / 48.f, 133 / 18.f, -665 / 48.f, -169 / 36.f, 15 / 4.f, 1, 0},
    {0, -1, 11 / 4.f, 67 / 9.f, -923 / 144.f, -1987 / 144.f, 1 / 18.f, 19 / 4.f, 1, 0},
    {0, 1, -19 / 4.f, 1 / 18.f, 1987 / 144.f, -923 / 144.f, -67 / 9.f, 11 / 4.f, 1, 0},
    {0, -2 / 3.f, 37 / 18.f, 9 / 2.f, -449 / 72.f, -109 / 12.f, 229 / 72.f, 21 / 4.f, 1, 0},
    {0, 2 / 3.f, -53 / 18.f, -7 / 6.f, 721 / 72.f, -7 / 4.f, -581 / 72.f, 9 / 4.f, 1, 0},
    {0, -3 / 2.f, 27 / 8.f, 581 / 48.f, -21 / 8.f, -721 / 48.f, -7 / 4.f, 53 / 12.f, 1, 0},
    {0, 3 / 2.f, -63 / 8.f, 229 / 48.f, 109 / 8.f, -449 / 48.f, -27 / 4.f, 37 / 12.f, 1, 0},
    {0, -4, -1, 133 / 9.f, 133 / 36.f, -133 / 9.f, -133 / 36.f, 4, 1, 0},
    {0, 1 / 4.f, -1, -133 / 144.f, 133 / 36.f, 133 / 144.f, -133 / 36.f, -1 / 4.f, 1, 0},
    {0, 1, -15 / 4.f, -169 / 36.f, 665 / 48.f, 133 / 18.f, -665 / 48.f, -169 / 36.f, 15 / 4.f, 1},
};
#define UNROLLED _Pragma("GCC unroll 10")

VECTORS static inline void line_to_points(const __m512 *values, __m512 *to) {
  UNROLLED for (int p = 0; p < LINE_POINTS; p++) {
    __m512 sum = _mm512_setzero_ps();
    UNROLLED for (int i = 0; i < LINE_POINTS; i++)
      if (LINE_DATA[p][i] != 0) sum = _mm512_fmadd_ps(_mm512_set1_ps(LINE_DATA[p][i]), values[i], sum);
    to[p] = sum;
  }
}

/* The values of a polynomial, of taps or outputs, at the points. */
OF_A_KIND void polynomial_to_points(const __m512 *factors, int count, __m512 *to) {
  UNROLLED for (int p = 0; p < LINE_POINTS - 1; p++) {
    __m512 value = factors[count - 1];
    UNROLLED for (int i = count - 2; i >= 0; i--) value = _mm512_fmadd_ps(_mm512_set1_ps(LINE_AT[p]), value, factors[i]);
    to[p] = value;
  }
  to[LINE_POINTS - 1] = factors[count - 1];
}

/* The other way round: sums of what is at the points, times their powers. What is there is changed. */
OF_A_KIND void polynomial_from_points(__m512 *at, int count, __m512 *to) {
  UNROLLED for (int i = 0; i < count; i++) {
    __m512 sum = i == count - 1 ? at[LINE_POINTS - 1] : _mm512_setzero_ps();
    UNROLLED for (int p = 0; p < LINE_POINTS - 1; p++) {
      sum = _mm512_add_ps(sum, at[p]);
      at[p] = _mm512_mul_ps(at[p], _mm512_set1_ps(LINE_AT[p]));
    }
    to[i] = sum;
  }
}

VECTORS static inline void take_shares(__m512 *at) {
  UNROLLED for (int p = 0; p < LINE_POINTS - 1; p++) at[p] = _mm512_mul_ps(at[p], _mm512_set1_ps(LINE_SHARE[p]));
}

/* ------------------------------------------------------------------ to points and back */
/* B.T, of six values that lie `step` vectors apart. */
VECTORS static inline void data_to_points(const __m512 *d, int step, __m512 *to) {
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), five = _mm512_set1_ps(5);
  __m512 d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step];
  __m512 even = _mm512_fnmadd_ps(four, d2, d4), odd = _mm512_fnmadd_ps(four, d1, d3);
  __m512 outer = _mm512_sub_ps(d4, d2), inner = _mm512_mul_ps(two, _mm512_sub_ps(d3, d1));
  to[0] = _mm512_fmadd_ps(four, d[0], _mm512_fnmadd_ps(five, d2, d4));
  to[1] = _mm512_add_ps(even, odd);
  to[2] = _mm512_sub_ps(even, odd);
  to[3] = _mm512_add_ps(outer, inner);
  to[4] = _mm512_sub_ps(outer, inner);
  to[5] = _mm512_fmadd_ps(four, d1, _mm512_fnmadd_ps(five, d3, d[5 * step]));
}

/* A.T, of values at six points, for four outputs or two. */
OF_A_KIND void from_points(const __m512 *m, int step, __m512 *to, int to_step, int outputs) {
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), eight = _mm512_set1_ps(8);
  __m512 sum = _mm512_add_ps(m[step], m[2 * step]), difference = _mm512_sub_ps(m[step], m[2 * step]);
  __m512 far_sum = _mm512_add_ps(m[3 * step], m[4 * step]), far_difference = _mm512_sub_ps(m[3 * step], m[4 * step]);
  to[0] = _mm512_add_ps(m[0], _mm512_add_ps(sum, far_sum));
  to[to_step] = _mm512_fmadd_ps(two, far_difference, difference);
  if (outputs == 2) {
    to[to_step] = _mm512_add_ps(m[5 * step], to[to_step]);
    return;
  }
  to[2 * to_step] = _mm512_fmadd_ps(four, far_sum, sum);
  to[3 * to_step] = _mm512_add_ps(m[5 * step], _mm512_fmadd_ps(eight, far_difference, difference));
}

/* G, of three taps or five, that lie `step` vectors apart. */
OF_A_KIND void taps_to_points(const __m512 *taps, int step, __m512 *to, int count) {
  const __m512 quarter = _mm512_set1_ps(1 / 4.f), sixth = _mm512_set1_ps(-1 / 6.f), small = _mm512_set1_ps(1 / 24.f);
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), eight = _mm512_set1_ps(8), most = _mm512_set1_ps(16);
  __m512 even = _mm512_add_ps(taps[0], taps[2 * step]), far_even = _mm512_fmadd_ps(four, taps[2 * step], taps[0]);
  __m512 odd = taps[step], far_odd = _mm512_mul_ps(two, taps[step]);
  if (count == MOST_TAPS) {
    even = _mm512_add_ps(even, taps[4 * step]);
    far_even = _mm512_fmadd_ps(most, taps[4 * step], far_even);
    odd = _mm512_add_ps(odd, taps[3 * step]);
    far_odd = _mm512_fmadd_ps(eight, taps[3 * step], far_odd);
  }
  to[0] = _mm512_mul_ps(quarter, taps[0]);
  to[1] = _mm512_mul_ps(sixth, _mm512_add_ps(even, odd));
  to[2] = _mm512_mul_ps(sixth, _mm512_sub_ps(even, odd));
  to[3] = _mm512_mul_ps(small, _mm512_add_ps(far_even, far_odd));
  to[4] = _mm512_mul_ps(small, _mm512_sub_ps(far_even, far_odd));
  to[5] = taps[(count - 1) * step];
}

VECTORS static inline __mmask16 lanes_of(int64_t count) { return (__mmask16)first_of(least(FLOATS, count)); }

/* A filter's taps at all points, for 16 numbers along its last axis; `tap` numbers from a tap to the next. */
OF_A_KIND void filter_to_points(const void *filter, int64_t from, int64_t tap, __mmask16 read, int is_turned, __m512 *to,
                                int is_half, int taps) {
  if (taps == LINE_TAPS) {
    __m512 line[LINE_TAPS];
    for (int t = 0; t < taps; t++) line[t] = read_numbers(filter, from + (is_turned ? taps - 1 - t : t) * tap, read, is_half);
    polynomial_to_points(line, LINE_TAPS, to);
    take_shares(to);
    return;
  }
  __m512 seen[MOST_TAPS], down[MOST_TAPS * EDGE];
  for (int s = 0; s < taps; s++) {
    for (int r = 0; r < taps; r++) {
      int at = is_turned ? (taps - 1 - r) * taps + taps - 1 - s : r * taps + s;
      seen[r] = read_numbers(filter, from + at * tap, read, is_half);
    }
    taps_to_points(seen, 1, down + s * EDGE, taps);
  }
  for (int i = 0; i < EDGE; i++) taps_to_points(down + i, EDGE, to + i * EDGE, taps);
}

/* Takes the filter to points for a group of columns: [points][depth][columns], a vector or two of columns. It is written past the
 * caches, which hold other things until it is read. */
OF_A_KIND void take_filter_of(const WinogradJob *job, int64_t group, int is_half, int taps) {
  const int64_t *n = job->n;
  int64_t depth = n[W_DEPTH], columns = n[W_OUT_DEPTH], begin = group * ACROSS, wide = columns - begin;
  int vectors = wide > FLOATS ? 2 : 1;
  int64_t tap = depth * columns, row = vectors * FLOATS;
  const int points = taps == LINE_TAPS ? LINE_POINTS : POINTS;
  float *to = job->at_points + begin * points * depth;
  for (int v = 0; v < vectors; v++) {
    int64_t first = begin + v * FLOATS;
    if (!n[W_TURNED]) /* [taps][taps][depth][columns] */
      for (int64_t d = 0; d < depth; d++) {
        __m512 at[POINTS];
        filter_to_points(job->filter, d * columns + first, tap, lanes_of(columns - first), 0, at, is_half, taps);
        for (int p = 0; p < points; p++) _mm512_stream_ps(to + (p * depth + d) * row + v * FLOATS, at[p]);
      }
    else /* [taps][taps][columns][depth] */
      for (int64_t d = 0; d < depth; d += FLOATS) {
        __m512 at[FLOATS][POINTS];
        for (int c = 0; c < FLOATS; c++)
          filter_to_points(job->filter, (first + c) * depth + d, tap, first + c < columns ? lanes_of(depth - d) : 0, 1, at[c],
                           is_half, taps);
        for (int p = 0; p < points; p++) {
          __m512i turned[FLOATS];
          for (int c = 0; c < FLOATS; c++) turned[c] = _mm512_castps_si512(at[c][p]);
          turn(turned);
          for (int i = 0; i < FLOATS && d + i < depth; i++)
            _mm512_stream_si512((__m512i *)(to + (p * depth + d + i) * row + v * FLOATS), turned[i]);
        }
      }
  }
  _mm_sfence(); /* before others are told that it is there */
}

VECTORS static void take_filter(const WinogradJob *job, int64_t group) {
  CALL_OF_A_KIND(job, take_filter_of, job, group);
}

/* ------------------------------------------------------------------ sums */
/* Sums of 12 tiles, whose numbers lie one after the other, with one or two vectors of columns; what follows is read ahead. */
#define SUMS(name, VECTORS_WIDE)                                                                                        \
  VECTORS __attribute__((noinline)) static void name(const float *first, int64_t row, const float *second, int64_t depth, \
                                                     float *to, const float *next_first, const float *next_second) {    \
    __m512 sums[DOWN][VECTORS_WIDE];                                                                                    \
    for (int r = 0; r < DOWN; r++)                                                                                      \
      for (int v = 0; v < VECTORS_WIDE; v++) sums[r][v] = _mm512_setzero_ps();                                          \
    for (int64_t d = 0; d < depth; d++) {                                                                               \
      __m512 factors[VECTORS_WIDE];                                                                                     \
      for (int v = 0; v < VECTORS_WIDE; v++) factors[v] = _mm512_loadu_ps(second + (d * VECTORS_WIDE + v) * FLOATS);     \
      _mm_prefetch((const char *)(next_second + d * FLOATS), _MM_HINT_T0);                                               \
      _mm_prefetch((const char *)(next_first + (d & 15) * row + (d & ~15)), _MM_HINT_T0);                               \
      _Pragma("GCC unroll 12") for (int r = 0; r < DOWN; r++) {                                                         \
        __m512 number = _mm512_set1_ps(first[r * row + d]);                                                             \
        for (int v = 0; v < VECTORS_WIDE; v++) sums[r][v] = _mm512_fmadd_ps(number, factors[v], sums[r][v]);            \
      }                                                                                                                 \
    }                                                                                                                   \
    for (int r = 0; r < DOWN; r++)                                                                                      \
      for (int v = 0; v < VECTORS_WIDE; v++) _mm512_storeu_ps(to + (r * VECTORS_WIDE + v) * FLOATS, sums[r][v]);         \
  }
SUMS(sum_two_vectors, 2)
SUMS(sum_one_vector, 1)

/* ------------------------------------------------------------------ parts */
/* Where a tile lies. */
typedef struct { int64_t image, row, column; } Tile;

static Tile tile_at(const WinogradJob *job, int64_t at) {
  int64_t of_image = job->tiles_down * job->tiles_across, in_image = at % of_image;
  return (Tile){at / of_image, in_image / job->tiles_across * job->high, in_image % job->tiles_across * job->wide};
}

/* Floats from the tiles at a point to those at the next, for numbers and for sums: no multiple of a page. */
static int64_t point_step(int64_t tiles, int64_t wide) { return whole(tiles, DOWN) * wide + FLOATS; }

/* Takes a tile of the data to points, which lie `step` floats apart; from 16 numbers to the next are `vector_step`. What lies
 * outside is zero. */
OF_A_KIND void take_tile_of(const WinogradJob *job, Tile tile, float *to, int64_t step, int64_t vector_step, int is_half) {
  const int64_t *n = job->n;
  int64_t top = tile.row - n[W_TOP], left = tile.column - n[W_LEFT], depth = n[W_DEPTH];
  int64_t from = ((tile.image * n[W_ROWS] + top) * n[W_COLUMNS] + left) * depth;
  for (int64_t d = 0; d < depth; d += FLOATS) {
    __mmask16 read = lanes_of(depth - d);
    __m512 seen[POINTS], down[POINTS], at[EDGE];
    for (int i = 0; i < EDGE; i++)
      for (int j = 0; j < EDGE; j++) {
        int is_inside = top + i >= 0 && top + i < n[W_ROWS] && left + j >= 0 && left + j < n[W_COLUMNS];
        int64_t at_place = from + (i * n[W_COLUMNS] + j) * depth + d;
        seen[i * EDGE + j] = is_inside ? read_numbers(job->data, at_place, read, is_half) : _mm512_setzero_ps();
      }
    for (int i = 0; i < EDGE; i++) /* what the next tile does not share with this one */
      for (int j = EDGE; j < EDGE + job->outputs; j++)
        WILL_READ(place_of(job->data, from + (i * n[W_COLUMNS] + j) * depth + d, is_half));
    for (int j = 0; j < EDGE; j++) {
      data_to_points(seen + j, EDGE, at);
      for (int i = 0; i < EDGE; i++) down[i * EDGE + j] = at[i];
    }
    for (int i = 0; i < EDGE; i++) {
      data_to_points(down + i * EDGE, 1, at);
      for (int j = 0; j < EDGE; j++) {
        float *place = to + (i * EDGE + j) * step + d / FLOATS * vector_step;
        _mm512_storeu_ps(place, at[j]);
        WILL_WRITE(place + vector_step);
      }
    }
  }
}

/* The same along a line. */
OF_A_KIND void take_line_of(const WinogradJob *job, Tile tile, float *to, int64_t step, int64_t vector_step, int is_half) {
  const int64_t *n = job->n;
  int is_across = n[W_AXES] == ALONG_COLUMNS;
  int64_t top = tile.row - n[W_TOP], left = tile.column - n[W_LEFT], depth = n[W_DEPTH];
  int64_t first = is_across ? left : top, length = is_across ? n[W_COLUMNS] : n[W_ROWS];
  int64_t from = ((tile.image * n[W_ROWS] + top) * n[W_COLUMNS] + left) * depth, next = is_across ? depth : n[W_COLUMNS] * depth;
  int is_inside = is_across ? top >= 0 && top < n[W_ROWS] : left >= 0 && left < n[W_COLUMNS];
  for (int64_t d = 0; d < depth; d += FLOATS) {
    __mmask16 read = lanes_of(depth - d);
    __m512 seen[LINE_POINTS], at[LINE_POINTS];
    for (int i = 0; i < LINE_POINTS; i++)
      seen[i] = is_inside && first + i >= 0 && first + i < length ? read_numbers(job->data, from + i * next + d, read, is_half)
                                                                  : _mm512_setzero_ps();
    for (int i = LINE_POINTS; i < LINE_POINTS + LINE_OUTPUTS; i++) WILL_READ(place_of(job->data, from + i * next + d, is_half));
    line_to_points(seen, at);
    for (int p = 0; p < LINE_POINTS; p++) {
      float *place = to + p * step + d / FLOATS * vector_step;
      _mm512_storeu_ps(place, at[p]);
      WILL_WRITE(place + vector_step);
    }
  }
}

VECTORS static void take_tile(const WinogradJob *job, Tile tile, float *to, int64_t step, int64_t vector_step) {
  if (job->n[W_AXES] != BOTH_AXES && job->is_half)
    take_line_of(job, tile, to, step, vector_step, 1);
  else if (job->n[W_AXES] != BOTH_AXES)
    take_line_of(job, tile, to, step, vector_step, 0);
  else if (job->is_half)
    take_tile_of(job, tile, to, step, vector_step, 1);
  else
    take_tile_of(job, tile, to, step, vector_step, 0);
}

/* Writes some outputs of a result, a row or a column of a tile, `next` numbers apart; bias and ReLU follow where they do. */
OF_A_KIND void write_outputs(const WinogradJob *job, const __m512 *out, int64_t count, int64_t to, int64_t next, __m512 bias,
                             __mmask16 written, int is_half) {
  for (int64_t j = 0; j < count; j++) {
    /* what is no number stays none: the second operand is taken then */
    __m512 found = job->n[W_BIASED] ? _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(out[j], bias)) : out[j];
    if (job->is_streamed)
      _mm512_stream_ps((float *)job->result + to + j * next, found);
    else
      write_numbers(job->result, to + j * next, written, found, is_half);
  }
}

/* Gives a tile of the result, 16 columns of it, from sums at points. */
OF_A_KIND void give_tile_of(const WinogradJob *job, Tile tile, const float *sums, int64_t step, int64_t column, int is_half,
                            int taps) {
  const int64_t *n = job->n;
  __mmask16 written = lanes_of(n[W_OUT_DEPTH] - column);
  __m512 bias = n[W_BIASED] ? read_numbers(job->bias, column, written, is_half) : _mm512_setzero_ps();
  int64_t below = n[W_OUT_COLUMNS] * n[W_OUT_DEPTH];
  int64_t to = ((tile.image * n[W_OUT_ROWS] + tile.row) * n[W_OUT_COLUMNS] + tile.column) * n[W_OUT_DEPTH] + column;
  if (taps == LINE_TAPS) {
    int is_across = n[W_AXES] == ALONG_COLUMNS;
    int64_t left = is_across ? n[W_OUT_COLUMNS] - tile.column : n[W_OUT_ROWS] - tile.row;
    int64_t next = is_across ? n[W_OUT_DEPTH] : below;
    __m512 at[LINE_POINTS], out[LINE_OUTPUTS];
    for (int p = 0; p < LINE_POINTS; p++) at[p] = _mm512_loadu_ps(sums + p * step);
    if (!job->is_streamed) /* the next tile */
      for (int i = LINE_OUTPUTS; i < 2 * LINE_OUTPUTS; i++) WILL_WRITE(place_of(job->result, to + i * next, is_half));
    polynomial_from_points(at, LINE_OUTPUTS, out);
    write_outputs(job, out, least(LINE_OUTPUTS, left), to, next, bias, written, is_half);
    return;
  }
  const int outputs = EDGE + 1 - taps;
  __m512 at[POINTS], down[MOST_OUTPUTS * EDGE], out[MOST_OUTPUTS];
  for (int p = 0; p < POINTS; p++) at[p] = _mm512_loadu_ps(sums + p * step);
  for (int j = 0; j < EDGE; j++) from_points(at + j, EDGE, down + j, EDGE, outputs);
  if (!job->is_streamed) /* the next tile */
    for (int i = 0; i < outputs; i++)
      for (int j = outputs; j < 2 * outputs; j++)
        WILL_WRITE(place_of(job->result, to + i * below + j * n[W_OUT_DEPTH], is_half));
  for (int i = 0; i < least(outputs, n[W_OUT_ROWS] - tile.row); i++) {
    from_points(down + i * EDGE, 1, out, 1, outputs);
    int64_t count = least(outputs, n[W_OUT_COLUMNS] - tile.column);
    write_outputs(job, out, count, to + i * below, n[W_OUT_DEPTH], bias, written, is_half);
  }
}

VECTORS static void give_tile(const WinogradJob *job, Tile tile, const float *sums, int64_t step, int64_t column) {
  CALL_OF_A_KIND(job, give_tile_of, job, tile, sums, step, column);
}

/* Computes some tiles of the result. */
VECTORS static void compute_tiles(const WinogradJob *job, int64_t first, int64_t count, float *place) {
  const int64_t *n = job->n;
  int64_t depth = n[W_DEPTH], row = whole(depth, FLOATS), filled = whole(count, DOWN);
  int64_t step = point_step(n[W_TILES], row), sum_step = point_step(n[W_TILES], ACROSS);
  float *numbers = place, *sums = place + job->points * step;
  for (int64_t t = 0; t < count; t++) take_tile(job, tile_at(job, first + t), numbers + t * row, step, FLOATS);
  for (int p = 0; p < job->points; p++) memset(numbers + p * step + count * row, 0, (filled - count) * row * sizeof(float));
  for (int64_t column = 0; column < n[W_OUT_DEPTH]; column += ACROSS) {
    int vectors = n[W_OUT_DEPTH] - column > FLOATS ? 2 : 1;
    int64_t wide = vectors * FLOATS;
    for (int p = 0; p < job->points; p++) {
      const float *factors = job->at_points + (column * job->points + p * wide) * depth;
      for (int64_t t = 0; t < filled; t += DOWN) {
        const float *from = numbers + p * step + t * row;
        const float *next = t + DOWN < filled ? from + DOWN * row : numbers + (p + 1) * step;
        /* the factors at the next point, by half in each of two turns */
        const float *next_factors = factors + depth * wide + t / DOWN % 2 * (depth * wide / 2);
        (vectors == 2 ? sum_two_vectors : sum_one_vector)(from, row, factors, depth, sums + p * sum_step + t * wide, next,
                                                          next_factors);
      }
    }
    for (int64_t t = 0; t < count; t++)
      for (int v = 0; v < vectors; v++)
        give_tile(job, tile_at(job, first + t), sums + t * wide + v * FLOATS, sum_step, column + v * FLOATS);
  }
  _mm_sfence(); /* before others are told that it is there */
}

static int compute_winograd(const Job *work, int part) {
  WinogradJob *job = (WinogradJob *)work;
  if (part < job->groups) {
    take_filter(job, part);
    return 0;
  }
  wait_until(&job->work, (int)job->groups);
  int64_t first = (part - job->groups) * job->n[W_TILES];
  int place = take_place(&job->taken, (int)job->n[W_PLACES]);
  compute_tiles(job, first, least(job->n[W_TILES], job->tiles - first), job->places + place * job->place_floats);
  leave_place(&job->taken, place);
  return 0;
}

/* ------------------------------------------------------------------ calls */
int anabranch_pool_winograd_can(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}

/* What is wrong with the numbers of a call; NULL if nothing. */
static const char *wrong_winograd(const int64_t *n) {
  static const int64_t MOST = 1 << 28;
  for (int at = 0; at < W_NUMBERS; at++)
    if (n[at] > MOST || n[at] < ((at >= W_TOP && at <= W_BIASED) || at == W_AXES ? 0 : 1)) return "a length is no length";
  int is_line = n[W_TAPS] == LINE_TAPS;
  if ((n[W_TAPS] != 3 && n[W_TAPS] != MOST_TAPS && !is_line) || n[W_AXES] > ALONG_COLUMNS ||
      is_line != (n[W_AXES] != BOTH_AXES) || n[W_TURNED] > 1 || n[W_BIASED] > 1)
    return "it is another convolution";
  if (n[W_TOP] >= (n[W_AXES] == ALONG_COLUMNS ? 1 : n[W_TAPS]) || n[W_LEFT] >= (n[W_AXES] == ALONG_ROWS ? 1 : n[W_TAPS]))
    return "it is another convolution";
  if (n[W_TILES] % DOWN || n[W_TILES] > 1 << 10 || n[W_PLACES] > 64 || n[W_DEPTH] > 1 << 14 || n[W_OUT_DEPTH] > 1 << 14)
    return "it is cut into other blocks";
  const int64_t lengths[2][4] = {{n[W_BATCH], n[W_ROWS], n[W_COLUMNS], n[W_DEPTH]},
                                 {n[W_BATCH], n[W_OUT_ROWS], n[W_OUT_COLUMNS], n[W_OUT_DEPTH]}};
  for (int array = 0; array < 2; array++) {
    int64_t elements = 1;
    for (int axis = 0; axis < 4; axis++)
      if ((elements *= lengths[array][axis]) > MOST) return "an array is too large";
  }
  return NULL;
}

/* Whether an array is of the type that the first has, and so large. */
static int holds_as_many(const Frame *frame, const Buffer *buffer, int64_t elements) {
  return buffer->type == ((const Buffer *)frame->arguments.values[0])->type && elements_of(buffer) == elements;
}

/* How many taps the filter of a call has, and at how many points a tile is. */
static int64_t taps_of(const int64_t *n) { return n[W_AXES] == BOTH_AXES ? n[W_TAPS] * n[W_TAPS] : n[W_TAPS]; }
static int64_t points_of(const int64_t *n) { return n[W_AXES] == BOTH_AXES ? POINTS : LINE_POINTS; }

/* Says in a job how it is cut into tiles. */
static void cut_into_tiles(WinogradJob *job, const int64_t *n) {
  memcpy(job->n, n, sizeof job->n);
  job->points = (int)points_of(n);
  job->outputs = n[W_AXES] == BOTH_AXES ? EDGE + 1 - (int)n[W_TAPS] : LINE_OUTPUTS;
  job->high = n[W_AXES] == ALONG_COLUMNS ? 1 : job->outputs;
  job->wide = n[W_AXES] == ALONG_ROWS ? 1 : job->outputs;
  job->tiles_down = ceiling(n[W_OUT_ROWS], job->high);
  job->tiles_across = ceiling(n[W_OUT_COLUMNS], job->wide);
  job->tiles = n[W_BATCH] * job->tiles_down * job->tiles_across;
}

/* Whether the data are of a type that can be convolved so. */
static int has_numbers(const Buffer *data) { return data->type == FLOAT32 || data->type == BFLOAT16; }

/* The handler: data, a filter and perhaps a bias, one result and memory to work in; attributes are the operation's name
 * and the numbers. */
void *anabranch_pool_winograd(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != W_NUMBERS || frame->results.count != 2)
    return error_of(frame, "a call has fifteen numbers, one result and memory to work in");
  const int64_t *n = numbers->data;
  const char *reason = unusable(frame);
  if (reason == NULL) reason = wrong_winograd(n);
  if (reason == NULL && frame->arguments.count != 2 + n[W_BIASED]) reason = "it is given data, a filter and perhaps a bias";
  if (reason == NULL && !anabranch_pool_winograd_can()) reason = "this processor cannot multiply so";
  if (reason != NULL) return error_of(frame, reason);
  const Buffer *data = frame->arguments.values[0], *filter = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0], *memory = frame->results.values[1];
  int64_t at_points = whole(n[W_OUT_DEPTH], ACROSS) * points_of(n) * n[W_DEPTH];
  int64_t place = points_of(n) * (point_step(n[W_TILES], whole(n[W_DEPTH], FLOATS)) + point_step(n[W_TILES], ACROSS));
  if (!has_numbers(data) || !holds_as_many(frame, data, n[W_BATCH] * n[W_ROWS] * n[W_COLUMNS] * n[W_DEPTH]) ||
      !holds_as_many(frame, filter, taps_of(n) * n[W_DEPTH] * n[W_OUT_DEPTH]) ||
      !holds_as_many(frame, result, n[W_BATCH] * n[W_OUT_ROWS] * n[W_OUT_COLUMNS] * n[W_OUT_DEPTH]) ||
      (n[W_BIASED] && !holds_as_many(frame, frame->arguments.values[2], n[W_OUT_DEPTH])) ||
      elements_of(memory) < (at_points + place * n[W_PLACES]) * (int64_t)sizeof(float) + 64)
    return error_of(frame, "the arrays are others than it was prepared for");
  WinogradJob own, *shared = malloc(sizeof *shared), *job = shared != NULL ? shared : &own;
  memset(job, 0, sizeof *job);
  cut_into_tiles(job, n);
  job->groups = ceiling(n[W_OUT_DEPTH], ACROSS);
  job->place_floats = place;
  job->data = data->data;
  job->filter = filter->data;
  job->bias = n[W_BIASED] ? ((const Buffer *)frame->arguments.values[2])->data : NULL;
  job->result = result->data;
  job->is_half = data->type == BFLOAT16;
  job->is_streamed = !job->is_half && n[W_OUT_DEPTH] % FLOATS == 0 && (uintptr_t)result->data % 64 == 0 &&
                     elements_of(result) * (int64_t)sizeof(float) >= STREAMED_BYTES;
  job->at_points = (float *)((char *)memory->data + (64 - (uintptr_t)memory->data % 64) % 64);
  job->places = job->at_points + at_points;
  job->work.parts = (int)(job->groups + ceiling(job->tiles, n[W_TILES]));
  job->work.compute = compute_winograd;
  int64_t threads = shared == NULL ? 1 : least(job->work.parts, least(threads_of(frame), n[W_PLACES]));
  int failed = do_work(&job->work, frame, (int)threads - 1, shared == NULL);
  return failed ? error_of(frame, "it failed while it ran") : NULL;
}
#else
int anabranch_pool_winograd_can(void) { return 0; }

void *anabranch_pool_winograd(Frame *frame) {
  return tells_version(frame) ? NULL : error_of(frame, "the compiler knows no such convolutions");
}
#endif
