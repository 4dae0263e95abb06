/* Products of bfloat16 matrices by tiles (AMX), in blocks that stay in the processor's caches; XLA's own threads compute
 * them (`pool_common.c`). A handler that `pool_blocks.py` calls.
 *
 * A product is cut into spans of rows and of columns, whose factors are packed: the numbers lie in the order in which they
 * are multiplied. Then blocks of the result are computed of what was packed. Parts are begun in this order, so that a part
 * that waits for what is packed waits for threads that are at work.
 *
 * Sums are float32, in an order that depends on the lengths alone, and are rounded once.
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
 * (one of the two is 1), how many products, elements from one to the next, how they are cut, places to sum in */
enum {
  B_ROWS, B_COLUMNS, B_INNER, B_FIRST_ROW, B_FIRST_INNER, B_SECOND_INNER, B_SECOND_COLUMN, B_BATCH, B_FIRST_STEP,
  B_SECOND_STEP, B_ROW_SPAN, B_COLUMN_SPAN, B_DEPTH, B_BLOCK_ROWS, B_BLOCK_COLUMNS, B_PLACES, B_NUMBERS
};
/* rows and columns that tiles hold sums for; how deep tiles are; panels that are packed as a part */
enum { PANEL = 32, TILE_DEPTH = 32, GROUP = 8 };
/* of a number, of a sum, of two tiles */
enum { NUMBER_BYTES = 2, SUM_BYTES = 4, TILES_BYTES = 2048 };

typedef struct {
  Job work;
  int64_t n[B_NUMBERS];
  const uint16_t *first, *second;
  uint16_t *result;
  char *packed_first, *packed_second, *sums;
  atomic_ullong taken; /* places to sum in */
} BlocksJob;

static int64_t least(int64_t one, int64_t other) { return one < other ? one : other; }
static int64_t ceiling(int64_t number, int64_t of) { return (number + of - 1) / of; }
static int64_t whole(int64_t length, int64_t step) { return ceiling(length, step) * step; }

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

VECTORS static inline __mmask32 first_of(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0 : (__mmask32)((1u << count) - 1);
}

/* Packs panels of 32 numbers of bfloat16 across, 32 by 32: two tiles of [16][16 pairs], across and pairs along (`pairs_first`
 * 0), or pairs along and across. What is missing is zero; the depth is filled up to whole tiles. */
VECTORS static void pack_panels(const uint16_t *from, int64_t across, int64_t along, int64_t count, int64_t depth,
                             int pairs_first, char *to) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4,
                                       35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  int64_t panels = ceiling(count, PANEL), steps = ceiling(depth, TILE_DEPTH);
  for (int64_t s = 0; s < steps; s++) {
    int64_t deep = least(TILE_DEPTH, depth - s * TILE_DEPTH);
    for (int64_t p = 0; p < panels; p++) {
      int64_t wide = least(PANEL, count - p * PANEL);
      char *place = to + (p * steps + s) * TILES_BYTES;
      __m512i v[2][16];
      if (across == 1) { /* pairs along, then across */
        __mmask32 read = first_of(wide);
        const uint16_t *row = from + s * TILE_DEPTH * along + p * PANEL;
        for (int i = 0; i < 16; i++) {
          __m512i one = 2 * i < deep ? _mm512_maskz_loadu_epi16(read, row + 2 * i * along) : _mm512_setzero_si512();
          __m512i two = 2 * i + 1 < deep ? _mm512_maskz_loadu_epi16(read, row + (2 * i + 1) * along) : _mm512_setzero_si512();
          v[0][i] = _mm512_permutex2var_epi16(one, low, two);
          v[1][i] = _mm512_permutex2var_epi16(one, high, two);
        }
      } else {
        __mmask32 read = first_of(deep);
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

/* ------------------------------------------------------------------ sums in tiles */
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
    _tile_loadd(0, sums, PANEL * SUM_BYTES);
    _tile_loadd(1, sums + 16, PANEL * SUM_BYTES);
    _tile_loadd(2, sums + 16 * PANEL, PANEL * SUM_BYTES);
    _tile_loadd(3, sums + 16 * PANEL + 16, PANEL * SUM_BYTES);
  }
  for (int64_t s = 0; s < steps; s++, first += TILES_BYTES, second += TILES_BYTES) {
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
  _tile_stored(0, sums, PANEL * SUM_BYTES);
  _tile_stored(1, sums + 16, PANEL * SUM_BYTES);
  _tile_stored(2, sums + 16 * PANEL, PANEL * SUM_BYTES);
  _tile_stored(3, sums + 16 * PANEL + 16, PANEL * SUM_BYTES);
}

TILES static void round_sums(const float *sums, uint16_t *result, int64_t step, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < least(rows, PANEL); r++)
    for (int at = 0; at < PANEL; at += 16)
      _mm256_mask_storeu_epi16(result + r * step + at, (__mmask16)first_of(least(16, columns - at)),
                               (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(sums + r * PANEL + at)));
}

/* ------------------------------------------------------------------ parts */
/* Packs a group of panels of the first or the second factor, at one depth. */
static void pack(const BlocksJob *job, int64_t batch, int is_second, int64_t start, int64_t span, int64_t group, int64_t deep) {
  const int64_t *n = job->n;
  int64_t across = n[is_second ? B_SECOND_COLUMN : B_FIRST_ROW], along = n[is_second ? B_SECOND_INNER : B_FIRST_INNER];
  int64_t begin = deep * n[B_DEPTH], depth = least(n[B_DEPTH], n[B_INNER] - begin), filled = whole(depth, TILE_DEPTH);
  int64_t at = group * GROUP * PANEL, count = least(GROUP * PANEL, span - at);
  int64_t from = batch * n[is_second ? B_SECOND_STEP : B_FIRST_STEP] + (start + at) * across + begin * along;
  char *to = is_second ? job->packed_second : job->packed_first;
  pack_panels((is_second ? job->second : job->first) + from, across, along, count, depth, is_second,
              to + (whole(span, PANEL) * begin + at * filled) * NUMBER_BYTES);
}

/* Computes a block of the result. */
TILES static void compute_block(const BlocksJob *job, uint16_t *result, int64_t rows, int64_t columns, int64_t row,
                             int64_t column, float *sums) {
  const int64_t *n = job->n;
  int64_t end_row = least(rows, row + n[B_BLOCK_ROWS]), end_column = least(columns, column + n[B_BLOCK_COLUMNS]);
  int64_t row_panels = ceiling(rows, PANEL), column_panels = ceiling(columns, PANEL);
  _tile_loadconfig(&TILE_SHAPES);
  for (int64_t begin = 0; begin < n[B_INNER]; begin += n[B_DEPTH]) {
    int64_t depth = least(n[B_DEPTH], n[B_INNER] - begin), steps = ceiling(depth, TILE_DEPTH);
    int ends = begin + depth == n[B_INNER];
    const char *first = job->packed_first + row_panels * PANEL * begin * 2;
    const char *second = job->packed_second + column_panels * PANEL * begin * 2;
    int64_t down = ceiling(end_row - row, PANEL), across = ceiling(end_column - column, PANEL);
    const char *next = first + (row_panels * steps + row / PANEL * steps) * TILES_BYTES;
    Ahead ahead = {next, second, (int)least(4, ceiling(32, across)), (int)least(4, ceiling(32, down))};
    for (int64_t c = column; c < end_column; c += PANEL)
      for (int64_t r = row; r < end_row; r += PANEL) {
        ahead.second = second + (c / PANEL + 1) * steps * TILES_BYTES + (r - row) / PANEL * steps * ahead.second_lines * 64;
        int64_t at = (c - column) / PANEL * ceiling(end_row - row, PANEL) + (r - row) / PANEL;
        float *place = sums + (begin == 0 && ends ? 0 : at) * PANEL * PANEL;
        sum_tiles(first + r / PANEL * steps * TILES_BYTES, second + c / PANEL * steps * TILES_BYTES, steps, place, begin == 0, ahead);
        ahead.first += steps * ahead.first_lines * 64;
        if (ends) round_sums(place, result + r * n[B_COLUMNS] + c, n[B_COLUMNS], rows - r, columns - c);
      }
  }
  _tile_release();
}

/* Numbers the parts: for each product, span of columns and span of rows, groups of panels that are packed, then
 * blocks. */
typedef struct {
  int64_t batch, row, rows, column, columns; /* the spans */
  int64_t depths, first_groups, second_groups, blocks_down, blocks;
} Spans;

/* Finds the spans of a part, and the number of their first one; gives the number of all parts where it is none of them. */
static int64_t parts_of(const BlocksJob *job, Spans *spans, int64_t wanted, int64_t *begin) {
  const int64_t *n = job->n;
  int64_t at = 0;
  spans->depths = ceiling(n[B_INNER], n[B_DEPTH]);
  for (spans->batch = 0; spans->batch < n[B_BATCH]; spans->batch++)
    for (spans->column = 0; spans->column < n[B_COLUMNS]; spans->column += n[B_COLUMN_SPAN])
      for (spans->row = 0; spans->row < n[B_ROWS]; spans->row += n[B_ROW_SPAN]) {
        spans->rows = least(n[B_ROW_SPAN], n[B_ROWS] - spans->row);
        spans->columns = least(n[B_COLUMN_SPAN], n[B_COLUMNS] - spans->column);
        spans->first_groups = ceiling(spans->rows, GROUP * PANEL) * spans->depths;
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
      pack(job, s.batch, 0, s.row, s.rows, at / s.depths, at % s.depths);
    else
      pack(job, s.batch, 1, s.column, s.columns, (at - s.first_groups) / s.depths,
           (at - s.first_groups) % s.depths);
    return 0;
  }
  wait_until(&job->work, (int)(begin + packed));
  at -= packed;
  int64_t row = at % s.blocks_down * n[B_BLOCK_ROWS], column = at / s.blocks_down * n[B_BLOCK_COLUMNS];
  int place = take_place(&job->taken, (int)n[B_PLACES]);
  float *sums = (float *)(job->sums + place * n[B_BLOCK_ROWS] * n[B_BLOCK_COLUMNS] * SUM_BYTES);
  compute_block(job, job->result + (s.batch * n[B_ROWS] + s.row) * n[B_COLUMNS] + s.column, s.rows, s.columns, row, column, sums);
  leave_place(&job->taken, place);
  return 0;
}

/* ------------------------------------------------------------------ calls */
/* Whether the processor multiplies tiles, and the system lets it. */
int anabranch_pool_blocks_can(void) {
  enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* of `asm/prctl.h`; the answer holds for all threads of the process */
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16") &&
         syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

/* How much memory is needed for each factor, and for sums: multiples of 64 bytes. */
static void memory_of(const int64_t *n, int64_t *first, int64_t *second, int64_t *sums) {
  int64_t deep = whole(n[B_INNER], TILE_DEPTH) * NUMBER_BYTES;
  *first = whole(least(n[B_ROW_SPAN], n[B_ROWS]), PANEL) * deep;
  *second = whole(least(n[B_COLUMN_SPAN], n[B_COLUMNS]), PANEL) * deep;
  *sums = n[B_PLACES] * n[B_BLOCK_ROWS] * n[B_BLOCK_COLUMNS] * SUM_BYTES;
}

/* What is wrong with the numbers of a call; NULL if nothing. */
static const char *wrong(const int64_t *n) {
  static const int64_t MOST = 1 << 28, MOST_OF_A_BLOCK = 1 << 14;
  for (int at = 0; at < B_NUMBERS; at++)
    if (n[at] > MOST || n[at] < (at == B_FIRST_STEP || at == B_SECOND_STEP ? 0 : 1)) return "a length is no length";
  int64_t one = n[B_ROWS] * n[B_INNER], other = n[B_INNER] * n[B_COLUMNS];
  if (one > MOST || other > MOST || n[B_ROWS] * n[B_COLUMNS] > MOST) return "a matrix is too large";
  if (!(n[B_FIRST_ROW] == n[B_INNER] && n[B_FIRST_INNER] == 1) && !(n[B_FIRST_ROW] == 1 && n[B_FIRST_INNER] == n[B_ROWS]))
    return "the first factor lies in another way";
  if (!(n[B_SECOND_INNER] == n[B_COLUMNS] && n[B_SECOND_COLUMN] == 1) &&
      !(n[B_SECOND_INNER] == 1 && n[B_SECOND_COLUMN] == n[B_INNER]))
    return "the second factor lies in another way";
  if ((n[B_FIRST_STEP] != 0 && n[B_FIRST_STEP] != one) || (n[B_SECOND_STEP] != 0 && n[B_SECOND_STEP] != other))
    return "the factors of a batch lie in another way";
  if (n[B_ROW_SPAN] % PANEL || n[B_COLUMN_SPAN] % PANEL || n[B_DEPTH] % TILE_DEPTH || n[B_BLOCK_ROWS] % PANEL ||
      n[B_BLOCK_COLUMNS] % PANEL || n[B_BLOCK_ROWS] > MOST_OF_A_BLOCK || n[B_BLOCK_COLUMNS] > MOST_OF_A_BLOCK ||
      n[B_PLACES] > 64)
    return "it is cut into other blocks";
  return NULL;
}

static int holds(const Buffer *buffer, int64_t elements) {
  return buffer->type == BFLOAT16 && elements_of(buffer) == elements;
}

/* The handler: two factors, one result and memory to work in; attributes are the operation's name and the numbers. */
void *anabranch_pool_blocks(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != B_NUMBERS || frame->arguments.count != 2 || frame->results.count != 2)
    return error_of(frame, "a call has sixteen numbers, two factors, one result and memory to work in");
  const int64_t *n = numbers->data;
  const char *reason = unusable(frame);
  if (reason == NULL) reason = wrong(n);
  if (reason != NULL) return error_of(frame, reason);
  if (!anabranch_pool_blocks_can()) return error_of(frame, "this processor cannot multiply so");
  const Buffer *first = frame->arguments.values[0], *second = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0], *memory = frame->results.values[1];
  int64_t one = n[B_ROWS] * n[B_INNER], other = n[B_INNER] * n[B_COLUMNS], to_first, to_second, to_sums;
  memory_of(n, &to_first, &to_second, &to_sums);
  if (!holds(first, n[B_FIRST_STEP] ? one * n[B_BATCH] : one) ||
      !holds(second, n[B_SECOND_STEP] ? other * n[B_BATCH] : other) ||
      !holds(result, n[B_BATCH] * n[B_ROWS] * n[B_COLUMNS]) ||
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
int anabranch_pool_blocks_can(void) { return 0; }

void *anabranch_pool_blocks(Frame *frame) {
  return tells_version(frame) ? NULL : error_of(frame, "the compiler knows no such products");
}
#endif
