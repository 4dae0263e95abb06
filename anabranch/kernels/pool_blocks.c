/* Products of matrices of float32, and of bfloat16 where the processor multiplies tiles (AMX), in blocks that stay in its
 * caches; XLA's own threads compute them (`pool_common.c`). A handler that `pool_blocks.py` calls.
 *
 * A product is cut into spans of rows and of columns, whose factors are packed: the numbers lie in the order in which they
 * are multiplied. Then blocks of the result are computed of what was packed. Parts are begun in this order, so that a part
 * that waits for what is packed waits for threads that are at work.
 *
 * Sums of float32 are of float32, in an order that depends on the lengths alone; sums of bfloat16 are float32, rounded once.
 *
 * Contract: the handler checks what it is given, and whatever is wrong becomes an error of XLA's that names the
 * operation. What it works in is a second result of the call.
 */
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define HAS_BLOCKS 1
#else
#define HAS_BLOCKS 0
#endif

#if HAS_BLOCKS
#define VECTORS __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define TILES __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16")))

/* what a call's array of numbers holds: lengths, elements from a number to the next one along each axis of the factors
 * (one of the two is 1), how many products, elements from one to the next, bytes of a number, places to sum in */
enum {
  B_ROWS, B_COLUMNS, B_INNER, B_FIRST_ROW, B_FIRST_INNER, B_SECOND_INNER, B_SECOND_COLUMN, B_BATCH, B_FIRST_STEP,
  B_SECOND_STEP, B_WIDTH, B_ROW_SPAN, B_COLUMN_SPAN, B_DEPTH, B_BLOCK_ROWS, B_BLOCK_COLUMNS, B_PLACES, B_NUMBERS
};
/* rows and columns that registers hold sums for: of float32, of bfloat16; and columns of both */
enum { FLOAT_ROWS = 14, TILE_ROWS = 32, PANEL = 32, TILE_DEPTH = 32, GROUP = 8 };

typedef struct {
  Job work;
  int64_t n[B_NUMBERS];
  const char *first, *second;
  char *result, *packed_first, *packed_second, *sums;
  atomic_ullong taken; /* places to sum in */
} BlocksJob;

static int64_t least(int64_t one, int64_t other) { return one < other ? one : other; }
static int64_t ceiling(int64_t number, int64_t of) { return (number + of - 1) / of; }

/* ------------------------------------------------------------------ packing */
/* Turns 16 x 16 numbers of 32 bits. */
VECTORS static inline void turn(__m512i *v) {
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    v[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    v[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    v[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

VECTORS static inline __mmask16 first_of(int64_t count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

VECTORS static inline __mmask32 first_halves(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0 : (__mmask32)((1u << count) - 1);
}

/* Packs panels of `size` numbers across and `depth` deep of float32: [panel][depth][size]. `across`, `along`: elements from
 * a number to the next one. `count`: how many numbers there are across; what is missing in the last panel is zero. */
VECTORS static void pack_floats(const float *from, int64_t across, int64_t along, int64_t count, int64_t depth, int size,
                             float *to) {
  int64_t panels = ceiling(count, size);
  if (across == 1) {
    for (int64_t k = 0; k < depth; k++)
      for (int64_t p = 0; p < panels; p++) {
        const float *row = from + k * along + p * size;
        float *place = to + (p * depth + k) * size;
        for (int at = 0; at < size; at += 16)
          _mm512_mask_storeu_ps(place + at, first_of(size - at),
                                _mm512_maskz_loadu_ps(first_of(least(size, count - p * size) - at), row + at));
      }
    return;
  }
  for (int64_t p = 0; p < panels; p++)
    for (int at = 0; at < size; at += 16) {
      int64_t here = least(least(16, size - at), count - p * size - at);
      __mmask16 kept = first_of(size - at);
      for (int64_t k = 0; k < depth; k += 16) {
        __m512i v[16];
        __mmask16 read = first_of(depth - k);
        for (int i = 0; i < 16; i++)
          v[i] = i < here ? _mm512_maskz_loadu_epi32(read, from + (p * size + at + i) * across + k) : _mm512_setzero_si512();
        turn(v);
        for (int64_t i = 0; i < least(16, depth - k); i++)
          _mm512_mask_storeu_epi32(to + (p * depth + k + i) * size + at, kept, v[i]);
      }
    }
}

/* Packs panels of 32 numbers of bfloat16 across, 32 by 32: two tiles of [16][16 pairs], across and pairs along (`pairs_first`
 * 0), or pairs along and across. What is missing is zero; the depth is filled up to whole tiles. */
VECTORS static void pack_halves(const uint16_t *from, int64_t across, int64_t along, int64_t count, int64_t depth,
                             int pairs_first, char *to) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4,
                                       35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  int64_t panels = ceiling(count, PANEL), steps = ceiling(depth, TILE_DEPTH);
  for (int64_t s = 0; s < steps; s++) {
    int64_t deep = least(TILE_DEPTH, depth - s * TILE_DEPTH);
    for (int64_t p = 0; p < panels; p++) {
      int64_t wide = least(PANEL, count - p * PANEL);
      char *place = to + (p * steps + s) * 2048;
      __m512i v[2][16];
      if (across == 1) { /* pairs along, then across */
        __mmask32 read = first_halves(wide);
        const uint16_t *row = from + s * TILE_DEPTH * along + p * PANEL;
        for (int i = 0; i < 16; i++) {
          __m512i one = 2 * i < deep ? _mm512_maskz_loadu_epi16(read, row + 2 * i * along) : _mm512_setzero_si512();
          __m512i two = 2 * i + 1 < deep ? _mm512_maskz_loadu_epi16(read, row + (2 * i + 1) * along) : _mm512_setzero_si512();
          v[0][i] = _mm512_permutex2var_epi16(one, low, two);
          v[1][i] = _mm512_permutex2var_epi16(one, high, two);
        }
      } else {
        __mmask32 read = first_halves(deep);
        for (int i = 0; i < 32; i++)
          v[i / 16][i % 16] = i < wide ? _mm512_maskz_loadu_epi16(read, from + (p * PANEL + i) * across + s * TILE_DEPTH)
                                       : _mm512_setzero_si512();
      }
      for (int half = 0; half < 2; half++) {
        if ((across == 1) != (pairs_first == 1)) turn(v[half]);
        for (int i = 0; i < 16; i++) _mm512_storeu_si512(place + half * 1024 + i * 64, v[half][i]);
      }
    }
  }
}

/* ------------------------------------------------------------------ sums in registers */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13)

/* The sum of 14 x 32 over a depth; it is written to the result, or added to it. `ahead`: what is read soon. */
VECTORS static void sum_floats(const float *first, const float *second, int64_t depth, float *result, int64_t step, int64_t rows,
                            int64_t columns, int adds, const char *ahead) {
#define BEGIN(r) __m512 x##r = _mm512_setzero_ps(), y##r = _mm512_setzero_ps();
  EACH_ROW(BEGIN)
  int is_whole = rows >= FLOAT_ROWS && columns >= PANEL;
  if (is_whole)
    for (int r = 0; r < FLOAT_ROWS; r++) {
      _mm_prefetch((const char *)(result + r * step), _MM_HINT_T1);
      _mm_prefetch((const char *)(result + r * step + 16), _MM_HINT_T1);
    }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; k++, first += FLOAT_ROWS, second += PANEL) {
    if (k % 8 == 0) _mm_prefetch(ahead + k * 8, _MM_HINT_T1);
    __m512 b0 = _mm512_loadu_ps(second), b1 = _mm512_loadu_ps(second + 16);
    _mm_prefetch((const char *)(second + 16 * PANEL), _MM_HINT_T0);
    _mm_prefetch((const char *)(second + 16 * PANEL + 16), _MM_HINT_T0);
#define MULTIPLY(r)                              \
  {                                              \
    __m512 a = _mm512_set1_ps(first[r]);         \
    x##r = _mm512_fmadd_ps(a, b0, x##r);         \
    y##r = _mm512_fmadd_ps(a, b1, y##r);         \
  }
    EACH_ROW(MULTIPLY)
  }
  if (is_whole) {
#define WRITE(r)                                                                                  \
  {                                                                                               \
    float *row = result + r * step;                                                               \
    _mm512_storeu_ps(row, adds ? _mm512_add_ps(_mm512_loadu_ps(row), x##r) : x##r);               \
    _mm512_storeu_ps(row + 16, adds ? _mm512_add_ps(_mm512_loadu_ps(row + 16), y##r) : y##r);     \
  }
    EACH_ROW(WRITE)
    return;
  }
  float kept[FLOAT_ROWS * PANEL];
#define KEEP(r) _mm512_storeu_ps(kept + r * PANEL, x##r), _mm512_storeu_ps(kept + r * PANEL + 16, y##r);
  EACH_ROW(KEEP)
  for (int64_t r = 0; r < least(rows, FLOAT_ROWS); r++)
    for (int at = 0; at < PANEL; at += 16) {
      __mmask16 mask = first_of(columns - at);
      float *row = result + r * step + at;
      __m512 value = _mm512_loadu_ps(kept + r * PANEL + at);
      if (adds) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, row));
      _mm512_mask_storeu_ps(row, mask, value);
    }
}

/* eight tiles of 16 rows of 64 bytes */
static const struct {
  uint8_t palette, start, others[14];
  uint16_t bytes[16];
  uint8_t lengths[16];
} TILE_SHAPES = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* What is read soon: so many lines at each step. */
typedef struct { const char *first, *second; int first_lines, second_lines; } Ahead;

/* The sum of 32 x 32 over so many tiles, from what `sums` holds on (unless it begins); it is left there. */
TILES static void sum_tiles(const char *first, const char *second, int64_t steps, float *sums, int begins, Ahead ahead) {
  __asm__ volatile("" ::: "memory"); /* compilers do not know what loads of tiles read */
  if (begins) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, PANEL * 4);
    _tile_loadd(1, sums + 16, PANEL * 4);
    _tile_loadd(2, sums + 16 * PANEL, PANEL * 4);
    _tile_loadd(3, sums + 16 * PANEL + 16, PANEL * 4);
  }
  for (int64_t s = 0; s < steps; s++, first += 2048, second += 2048) {
    _tile_loadd(6, second, 64);
    _tile_loadd(4, first, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, second + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, first + 1024, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    for (int i = 0; i < ahead.first_lines; i++, ahead.first += 64) _mm_prefetch(ahead.first, _MM_HINT_T1);
    for (int i = 0; i < ahead.second_lines; i++, ahead.second += 64) _mm_prefetch(ahead.second, _MM_HINT_T1);
  }
  _tile_stored(0, sums, PANEL * 4);
  _tile_stored(1, sums + 16, PANEL * 4);
  _tile_stored(2, sums + 16 * PANEL, PANEL * 4);
  _tile_stored(3, sums + 16 * PANEL + 16, PANEL * 4);
}

TILES static void round_sums(const float *sums, uint16_t *result, int64_t step, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < least(rows, TILE_ROWS); r++)
    for (int at = 0; at < PANEL; at += 16)
      _mm256_mask_storeu_epi16(result + r * step + at, first_of(columns - at),
                               (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(sums + r * PANEL + at)));
}

/* ------------------------------------------------------------------ parts */
/* Packs a group of panels of the first or the second factor, at one depth. */
static void pack(const BlocksJob *job, int64_t batch, int is_second, int64_t start, int64_t span, int64_t group, int64_t deep) {
  const int64_t *n = job->n;
  int width = (int)n[B_WIDTH], size = is_second ? PANEL : width == 4 ? FLOAT_ROWS : TILE_ROWS;
  int64_t across = n[is_second ? B_SECOND_COLUMN : B_FIRST_ROW], along = n[is_second ? B_SECOND_INNER : B_FIRST_INNER];
  int64_t begin = deep * n[B_DEPTH], depth = least(n[B_DEPTH], n[B_INNER] - begin);
  int64_t at = group * GROUP * size, count = least(GROUP * size, span - at), panels = ceiling(span, size);
  const char *from = (is_second ? job->second : job->first) +
                     (batch * n[is_second ? B_SECOND_STEP : B_FIRST_STEP] + (start + at) * across + begin * along) * width;
  int64_t filled = width == 4 ? depth : ceiling(depth, TILE_DEPTH) * TILE_DEPTH, before = width == 4 ? 0 : panels * begin;
  char *to = (is_second ? job->packed_second : job->packed_first) + (before + group * GROUP * filled) * size * width;
  if (width == 4)
    pack_floats((const float *)from, across, along, count, depth, size, (float *)to);
  else
    pack_halves((const uint16_t *)from, across, along, count, depth, is_second, to);
}

/* Adds to a block of the result what one depth gives. Lengths: rows and columns of the spans. */
VECTORS static void float_block(const BlocksJob *job, float *result, int64_t rows, int64_t columns, int64_t row, int64_t column,
                                int64_t deep) {
  const int64_t *n = job->n;
  int64_t end_row = least(rows, row + n[B_BLOCK_ROWS]), end_column = least(columns, column + n[B_BLOCK_COLUMNS]);
  int64_t depth = least(n[B_DEPTH], n[B_INNER] - deep * n[B_DEPTH]);
  const float *first = (const float *)job->packed_first, *second = (const float *)job->packed_second;
  for (int64_t r = row; r < end_row; r += FLOAT_ROWS)
    for (int64_t c = column; c < end_column; c += PANEL)
      sum_floats(first + r * depth, second + c * depth, depth, result + r * n[B_COLUMNS] + c, n[B_COLUMNS], rows - r,
                 columns - c, deep > 0, (const char *)(first + (r + FLOAT_ROWS) * depth) + (c - column) / PANEL * depth * 8);
}

/* Computes a block of the result. */
TILES static void half_block(const BlocksJob *job, uint16_t *result, int64_t rows, int64_t columns, int64_t row,
                             int64_t column, float *sums) {
  const int64_t *n = job->n;
  int64_t end_row = least(rows, row + n[B_BLOCK_ROWS]), end_column = least(columns, column + n[B_BLOCK_COLUMNS]);
  int64_t row_panels = ceiling(rows, TILE_ROWS), column_panels = ceiling(columns, PANEL);
  _tile_loadconfig(&TILE_SHAPES);
  for (int64_t begin = 0; begin < n[B_INNER]; begin += n[B_DEPTH]) {
    int64_t depth = least(n[B_DEPTH], n[B_INNER] - begin), steps = ceiling(depth, TILE_DEPTH);
    int ends = begin + depth == n[B_INNER];
    const char *first = job->packed_first + row_panels * TILE_ROWS * begin * 2;
    const char *second = job->packed_second + column_panels * PANEL * begin * 2;
    int64_t down = ceiling(end_row - row, TILE_ROWS), across = ceiling(end_column - column, PANEL);
    const char *next = first + (row_panels * steps + row / TILE_ROWS * steps) * 2048;
    Ahead ahead = {next, second, (int)least(4, ceiling(32, across)), (int)least(4, ceiling(32, down))};
    for (int64_t c = column; c < end_column; c += PANEL)
      for (int64_t r = row; r < end_row; r += TILE_ROWS) {
        ahead.second = second + (c / PANEL + 1) * steps * 2048 + (r - row) / TILE_ROWS * steps * ahead.second_lines * 64;
        int64_t at = (c - column) / PANEL * ceiling(end_row - row, TILE_ROWS) + (r - row) / TILE_ROWS;
        float *place = sums + (begin == 0 && ends ? 0 : at) * TILE_ROWS * PANEL;
        sum_tiles(first + r / TILE_ROWS * steps * 2048, second + c / PANEL * steps * 2048, steps, place, begin == 0, ahead);
        ahead.first += steps * ahead.first_lines * 64;
        if (ends) round_sums(place, result + r * n[B_COLUMNS] + c, n[B_COLUMNS], rows - r, columns - c);
      }
  }
  _tile_release();
}

/* Waits until so many parts are done, of which each was begun. */
static void wait_until(Job *job, int parts) {
  for (int looks = 0, done; (done = atomic_load(&job->done)) < parts;)
    if (++looks < LOOKS) {
      __builtin_ia32_pause();
    } else {
      atomic_fetch_add(&job->waiting, 1);
      syscall(SYS_futex, &job->done, FUTEX_WAIT_PRIVATE, done, NULL, NULL, 0);
      atomic_fetch_sub(&job->waiting, 1);
    }
}

/* Numbers the parts: for each product, span of columns, depth and span of rows, groups of panels that are packed, then
 * blocks. In bfloat16 the depths are packed together, since a block is summed up before it is rounded. */
typedef struct {
  int64_t batch, row, rows, column, columns; /* the spans */
  int64_t deep, depths, first_groups, second_groups, blocks_down, blocks;
} Spans;

/* Finds the spans of a part, and the number of their first one; gives the number of all parts where it is none of them. */
static int64_t parts_of(const BlocksJob *job, Spans *spans, int64_t wanted, int64_t *begin) {
  const int64_t *n = job->n;
  int64_t at = 0, size = n[B_WIDTH] == 4 ? FLOAT_ROWS : TILE_ROWS, depths = ceiling(n[B_INNER], n[B_DEPTH]);
  int64_t turns = n[B_WIDTH] == 4 ? depths : 1;
  spans->depths = depths / turns;
  for (spans->batch = 0; spans->batch < n[B_BATCH]; spans->batch++)
    for (spans->column = 0; spans->column < n[B_COLUMNS]; spans->column += n[B_COLUMN_SPAN])
      for (spans->deep = 0; spans->deep < turns; spans->deep++)
        for (spans->row = 0; spans->row < n[B_ROWS]; spans->row += n[B_ROW_SPAN]) {
          spans->rows = least(n[B_ROW_SPAN], n[B_ROWS] - spans->row);
          spans->columns = least(n[B_COLUMN_SPAN], n[B_COLUMNS] - spans->column);
          spans->first_groups = ceiling(spans->rows, GROUP * size) * spans->depths;
          spans->second_groups = spans->row > 0 ? 0 : ceiling(spans->columns, GROUP * PANEL) * spans->depths;
          spans->blocks_down = ceiling(spans->rows, n[B_BLOCK_ROWS]);
          spans->blocks = spans->blocks_down * ceiling(spans->columns, n[B_BLOCK_COLUMNS]);
          int64_t here = spans->first_groups + spans->second_groups + spans->blocks;
          if (wanted >= at && wanted < at + here) {
            *begin = at;
            return 0;
          }
          at += here;
        }
  return at;
}

static int compute_blocks(const Job *work, int part) {
  BlocksJob *job = (BlocksJob *)work;
  const int64_t *n = job->n;
  Spans s;
  int64_t begin = 0;
  parts_of(job, &s, part, &begin);
  int64_t at = part - begin, packed = s.first_groups + s.second_groups;
  if (at < packed) {
    wait_until(&job->work, (int)begin); /* what lies there was used until then */
    if (at < s.first_groups)
      pack(job, s.batch, 0, s.row, s.rows, at / s.depths, s.deep + at % s.depths);
    else
      pack(job, s.batch, 1, s.column, s.columns, (at - s.first_groups) / s.depths,
           s.deep + (at - s.first_groups) % s.depths);
    return 0;
  }
  wait_until(&job->work, (int)(begin + packed));
  at -= packed;
  int64_t row = at % s.blocks_down * n[B_BLOCK_ROWS], column = at / s.blocks_down * n[B_BLOCK_COLUMNS];
  char *result = job->result + ((s.batch * n[B_ROWS] + s.row) * n[B_COLUMNS] + s.column) * n[B_WIDTH];
  if (n[B_WIDTH] == 4) {
    float_block(job, (float *)result, s.rows, s.columns, row, column, s.deep);
    return 0;
  }
  int place = 0; /* there are as many as threads */
  for (unsigned long long taken = atomic_load(&job->taken);;) {
    place = taken == ~0ull ? 0 : __builtin_ctzll(~taken);
    if (place < n[B_PLACES] && atomic_compare_exchange_weak(&job->taken, &taken, taken | 1ull << place)) break;
    if (place >= n[B_PLACES]) taken = atomic_load(&job->taken);
  }
  float *sums = (float *)(job->sums + place * n[B_BLOCK_ROWS] * n[B_BLOCK_COLUMNS] * 4);
  half_block(job, (uint16_t *)result, s.rows, s.columns, row, column, sums);
  atomic_fetch_and(&job->taken, ~(1ull << place));
  return 0;
}

/* ------------------------------------------------------------------ calls */
/* Whether the processor, and the system, let numbers of so many bytes be multiplied so. */
int anabranch_pool_blocks_can(int width) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("fma"))
    return 0;
  if (width == 4) return 1;
  enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* of `asm/prctl.h`; the answer holds for all threads of the process */
  return width == 2 && __builtin_cpu_supports("avx512bf16") && syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

static int64_t aligned(int64_t bytes) { return ceiling(bytes, 64) * 64; }

/* How much memory is needed for each factor, and for sums. */
static void memory_of(const int64_t *n, int64_t *first, int64_t *second, int64_t *sums) {
  int64_t size = n[B_WIDTH] == 4 ? FLOAT_ROWS : TILE_ROWS;
  int64_t inner = n[B_WIDTH] == 4 ? least(n[B_INNER], n[B_DEPTH]) : ceiling(n[B_INNER], TILE_DEPTH) * TILE_DEPTH;
  *first = aligned(ceiling(least(n[B_ROW_SPAN], n[B_ROWS]), size) * size * inner * n[B_WIDTH]);
  *second = aligned(ceiling(least(n[B_COLUMN_SPAN], n[B_COLUMNS]), PANEL) * PANEL * inner * n[B_WIDTH]);
  *sums = n[B_WIDTH] == 4 ? 0 : n[B_PLACES] * n[B_BLOCK_ROWS] * n[B_BLOCK_COLUMNS] * 4;
}

/* What is wrong with the numbers of a call; NULL if nothing. */
static const char *wrong(const int64_t *n) {
  static const int64_t MOST = 1 << 28;
  int64_t size = n[B_WIDTH] == 4 ? FLOAT_ROWS : TILE_ROWS;
  if (n[B_WIDTH] != 4 && n[B_WIDTH] != 2) return "its numbers have another width";
  for (int at = 0; at < B_NUMBERS; at++)
    if (n[at] > MOST || n[at] < (at == B_FIRST_STEP || at == B_SECOND_STEP ? 0 : 1)) return "a length is no length";
  int64_t one = n[B_ROWS] * n[B_INNER], other = n[B_INNER] * n[B_COLUMNS];
  if (!(n[B_FIRST_ROW] == n[B_INNER] && n[B_FIRST_INNER] == 1) && !(n[B_FIRST_ROW] == 1 && n[B_FIRST_INNER] == n[B_ROWS]))
    return "the first factor lies in another way";
  if (!(n[B_SECOND_INNER] == n[B_COLUMNS] && n[B_SECOND_COLUMN] == 1) &&
      !(n[B_SECOND_INNER] == 1 && n[B_SECOND_COLUMN] == n[B_INNER]))
    return "the second factor lies in another way";
  if ((n[B_FIRST_STEP] != 0 && n[B_FIRST_STEP] != one) || (n[B_SECOND_STEP] != 0 && n[B_SECOND_STEP] != other))
    return "the factors of a batch lie in another way";
  if (n[B_ROW_SPAN] % size || n[B_COLUMN_SPAN] % PANEL || n[B_DEPTH] % TILE_DEPTH || n[B_BLOCK_ROWS] % size ||
      n[B_BLOCK_COLUMNS] % PANEL || n[B_PLACES] > 64)
    return "it is cut into other blocks";
  return NULL;
}

static int holds(const Buffer *buffer, int64_t width, int64_t elements) {
  return buffer->type == (width == 4 ? FLOAT32 : BFLOAT16) && elements_of(buffer) == elements;
}

/* The handler: two factors, one result and memory to work in; attributes are the operation's name and the numbers. */
void *anabranch_pool_blocks(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != B_NUMBERS || frame->arguments.count != 2 || frame->results.count != 2)
    return error_of(frame, "a call has seventeen numbers, two factors, one result and memory to work in");
  const int64_t *n = numbers->data;
  const char *reason = unusable(frame);
  if (reason == NULL) reason = wrong(n);
  if (reason != NULL) return error_of(frame, reason);
  if (!anabranch_pool_blocks_can((int)n[B_WIDTH])) return error_of(frame, "this processor cannot multiply so");
  const Buffer *first = frame->arguments.values[0], *second = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0], *memory = frame->results.values[1];
  int64_t one = n[B_ROWS] * n[B_INNER], other = n[B_INNER] * n[B_COLUMNS], to_first, to_second, to_sums;
  memory_of(n, &to_first, &to_second, &to_sums);
  if (!holds(first, n[B_WIDTH], n[B_FIRST_STEP] ? one * n[B_BATCH] : one) ||
      !holds(second, n[B_WIDTH], n[B_SECOND_STEP] ? other * n[B_BATCH] : other) ||
      !holds(result, n[B_WIDTH], n[B_BATCH] * n[B_ROWS] * n[B_COLUMNS]) ||
      elements_of(memory) < to_first + to_second + to_sums + 64)
    return error_of(frame, "the arrays are others than it was prepared for");
  BlocksJob own, *shared = malloc(sizeof *shared), *job = shared != NULL ? shared : &own;
  memset(job, 0, sizeof *job);
  memcpy(job->n, n, sizeof job->n);
  Spans spans;
  int64_t begin = 0, parts = parts_of(job, &spans, -1, &begin);
  if (parts > 1 << 30) {
    free(shared);
    return error_of(frame, "it is cut into too many blocks");
  }
  job->work.parts = (int)parts;
  job->work.compute = compute_blocks;
  job->first = first->data;
  job->second = second->data;
  job->result = result->data;
  job->packed_first = (char *)memory->data + (64 - (uintptr_t)memory->data % 64) % 64;
  job->packed_second = job->packed_first + to_first;
  job->sums = job->packed_second + to_second;
  int64_t threads = shared == NULL ? 1 : least(parts, least(threads_of(frame), n[B_PLACES]));
  int failed = do_work(&job->work, frame, (int)threads - 1, shared == NULL);
  return failed ? error_of(frame, "it failed while it ran") : NULL;
}
#else
int anabranch_pool_blocks_can(int width) { return (void)width, 0; }

void *anabranch_pool_blocks(Frame *frame) {
  return tells_version(frame) ? NULL : error_of(frame, "the compiler knows no such products");
}
#endif
