/* Gradients to filters as direct sums, in blocks that stay in a core's caches; XLA's own threads compute them
 * (`pool_common.c`). A handler that `pool_filters.py` calls. Of float32, or of bfloat16 whose neighbours along a row are
 * multiplied in pairs (AVX512-BF16). Functions that read and write numbers of either type are those of `pool_winograd.c`.
 *
 * A step is a place of the output, in float32, or a pair of places, in bfloat16. A part takes some channels of the data and
 * of the gradient, and some of the steps, in groups: it packs a group, so that numbers lie in the order in which they are
 * multiplied, the data once for each column of taps, and adds its products to those of the groups before; registers hold sums
 * of 8 channels of the data by 3 vectors of channels of the gradient. What a part packs it alone reads: cores are slow to
 * read what another one has just written. Where steps are divided among parts, sums are added up at last, in parts as well.
 *
 * Contract: the handler checks what it is given, and whatever is wrong becomes an error of XLA's that names the
 * operation. What it works in is a second result of the call.
 */
#if HAS_BLOCKS
#define PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

/* what a call's array of numbers holds: of the data (numbers of a place, and how many a tap sees: those of a place, or, where
 * that has few, of all places that a row of taps sees, which is one tap then), of the gradient, and of the window; rows and
 * columns before the data that windows see; rows of a group, of one image, or images that it has whole; channels of either
 * side that a part takes, and among how many parts the steps are divided; places to work in */
enum {
  D_BATCH, D_ROWS, D_COLUMNS, D_PLACE, D_DEPTH, D_OUT_ROWS, D_OUT_COLUMNS, D_OUT_DEPTH, D_TAPS_DOWN, D_TAPS_ACROSS, D_STRIDE_DOWN,
  D_STRIDE_ACROSS, D_TOP, D_LEFT, D_GROUP_ROWS, D_GROUP_IMAGES, D_DATA_SPAN, D_GRAD_SPAN, D_SHARES, D_PLACES, D_NUMBERS
};
/* channels of the data, and vectors of channels of the gradient, whose sums registers hold; channels that are packed at a
 * time; bytes of a vector; how many steps before it is packed a step is asked for; bytes of a page */
enum { STEP_ROWS = 8, STEP_VECTORS = 3, STEP_CHANNELS = 32, STEP_BYTES = 64, STEPS_AHEAD = 16, PAGE = 4096 };

typedef struct {
  Job work;
  int64_t n[D_NUMBERS];
  const void *data, *grad;
  void *result;
  char *places;
  float *sums; /* [shares][taps][vectors][channels of the data][16] */
  int is_half;
  int64_t steps;     /* of a row */
  int64_t kinds;     /* of rows, that the window's rows see one after the other where it has strides */
  int64_t seen_rows; /* of a kind, that the rows of a group see */
  int64_t groups, groups_of_image;
  int64_t taps, rows, vectors; /* of the filter; channels of the data whose sums there are; vectors of the gradient's */
  int64_t data_bytes, grad_bytes; /* of a vector of either, in a group */
  int64_t packed_bytes, place_bytes; /* of the data, and of both */
  int64_t share_floats;
  int64_t data_spans, grad_spans, adds; /* parts that add up groups */
  atomic_ullong taken;
} FiltersJob;

/* Some channels, from one to another. */
typedef struct { int64_t begin, end; } Channels;

/* The images and rows of a group. */
typedef struct { int64_t image, images, row, rows; } StepGroup;

static StepGroup group_at(const FiltersJob *job, int64_t group) {
  const int64_t *n = job->n;
  if (job->groups_of_image == 1) {
    int64_t image = group * n[D_GROUP_IMAGES];
    return (StepGroup){image, least(n[D_GROUP_IMAGES], n[D_BATCH] - image), 0, n[D_OUT_ROWS]};
  }
  int64_t row = group % job->groups_of_image * n[D_GROUP_ROWS];
  return (StepGroup){group / job->groups_of_image, 1, row, least(n[D_GROUP_ROWS], n[D_OUT_ROWS] - row)};
}

/* ------------------------------------------------------------------ packing */
/* Some numbers of a vector or two: those from one on, before another. */
VECTORS static inline __mmask32 between(int64_t begin, int64_t end) { return first_of(end) & ~first_of(begin); }

/* Reads 32 channels of a step: those that there are of a place, or of two, in pairs. */
OF_A_KIND void read_step(const char *one, __mmask32 of_one, const char *other, __mmask32 of_other, int is_half, __m512i *to) {
  const __m512i none = _mm512_setzero_si512();
  if (!is_half) {
    to[0] = of_one ? _mm512_maskz_loadu_epi32((__mmask16)of_one, one) : none;
    to[1] = of_one >> FLOATS ? _mm512_maskz_loadu_epi32((__mmask16)(of_one >> FLOATS), one + STEP_BYTES) : none;
    return;
  }
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4,
                                       35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  __m512i first = of_one ? _mm512_maskz_loadu_epi16(of_one, one) : none;
  __m512i second = of_other ? _mm512_maskz_loadu_epi16(of_other, other) : none;
  to[0] = _mm512_permutex2var_epi16(first, low, second);
  to[1] = _mm512_permutex2var_epi16(first, high, second);
}

/* A row of an array, of which a window's column of taps sees some numbers for each output: how many numbers it has, at which
 * the first output's begin, how far on the next one's do, and how many outputs there are; how many bytes behind them lies
 * what is asked for when they are read. */
typedef struct {
  const char *row; /* NULL: outside */
  int64_t numbers, first, stride, outputs, ahead;
} SeenRow;

/* Packs some channels of a row: [vectors][steps][16]. What is missing is zero. */
OF_A_KIND void pack_row_of(SeenRow row, Channels some, char *to, int64_t vector_bytes, int is_half) {
  const int64_t number = is_half ? 2 : 4, of_a_step = 1 + is_half;
  for (int64_t out = 0; out < row.outputs; out += of_a_step, to += STEP_BYTES) {
    const char *places[2] = {NULL, NULL};
    int64_t begins[2] = {0, 0}, ends[2] = {0, 0}; /* of what is inside */
    for (int i = 0; i < of_a_step && row.row; i++) {
      int64_t at = row.first + (out + i) * row.stride;
      places[i] = row.row + at * number;
      begins[i] = at < 0 ? -at : 0;
      ends[i] = out + i < row.outputs ? least(some.end, row.numbers - at) : 0;
    }
    int is_whole = begins[0] + begins[is_half] == 0 && ends[0] == some.end && ends[is_half] == some.end;
    for (int64_t c = some.begin; c < some.end; c += STEP_CHANNELS) {
      __m512i read[2];
      __mmask32 of_one = ~0u, of_other = ~0u;
      if (!is_whole || c + STEP_CHANNELS > some.end) {
        of_one = between(begins[0] - c, ends[0] - c);
        of_other = between(begins[1] - c, ends[1] - c);
      }
      if (row.row) {
        WILL_READ(places[0] + row.ahead + c * number);
        WILL_READ(places[is_half] + row.ahead + c * number + (is_half ? 0 : STEP_BYTES));
      }
      read_step(places[0] + c * number, of_one, places[1] + c * number, of_other, is_half, read);
      char *vector = to + (c - some.begin) / FLOATS * vector_bytes;
      _mm512_storeu_si512(vector, read[0]);
      if (c + FLOATS < some.end) _mm512_storeu_si512(vector + vector_bytes, read[1]);
    }
  }
}

VECTORS static void pack_row(SeenRow row, Channels some, char *to, int64_t vector_bytes, int is_half) {
  if (is_half)
    pack_row_of(row, some, to, vector_bytes, 1);
  else
    pack_row_of(row, some, to, vector_bytes, 0);
}

/* Packs some channels of the data: [vectors][columns of taps][kinds of rows][images][rows][steps][16]. */
static void pack_data(const FiltersJob *job, StepGroup group, Channels some, char *to) {
  const int64_t *n = job->n, number = job->is_half ? 2 : 4;
  int64_t numbers = n[D_COLUMNS] * n[D_PLACE], stride = n[D_STRIDE_ACROSS] * n[D_PLACE];
  int64_t seen = group.rows + job->seen_rows - n[D_GROUP_ROWS];
  /* some steps, or the row that is seen next */
  int64_t ahead = n[D_STRIDE_DOWN] > 1 ? n[D_STRIDE_DOWN] * numbers : STEPS_AHEAD * (1 + job->is_half) * stride;
  for (int64_t tap = 0; tap < n[D_TAPS_ACROSS]; tap++)
    for (int64_t kind = 0; kind < job->kinds; kind++)
      for (int64_t image = 0; image < group.images; image++)
        for (int64_t r = 0; r < seen; r++) {
          int64_t at = (group.row + r) * n[D_STRIDE_DOWN] + kind - n[D_TOP];
          int64_t before = ((tap * job->kinds + kind) * n[D_GROUP_IMAGES] + image) * job->seen_rows + r;
          SeenRow row = {NULL, numbers, (tap - n[D_LEFT]) * n[D_PLACE], stride, n[D_OUT_COLUMNS], ahead * number};
          if (at >= 0 && at < n[D_ROWS])
            row.row = (const char *)job->data + ((group.image + image) * n[D_ROWS] + at) * numbers * number;
          pack_row(row, some, to + before * job->steps * STEP_BYTES, job->data_bytes, job->is_half);
        }
}

/* Packs some channels of the gradient: [vectors][images][rows][steps][16]. */
static void pack_grad(const FiltersJob *job, StepGroup group, Channels some, char *to) {
  const int64_t *n = job->n, depth = n[D_OUT_DEPTH], number = job->is_half ? 2 : 4;
  int64_t numbers = n[D_OUT_COLUMNS] * depth, ahead = STEPS_AHEAD * (1 + job->is_half) * depth * number;
  for (int64_t image = 0; image < group.images; image++)
    for (int64_t r = 0; r < group.rows; r++) {
      int64_t at = (group.image + image) * n[D_OUT_ROWS] + group.row + r;
      SeenRow row = {(const char *)job->grad + at * numbers * number, numbers, 0, depth, n[D_OUT_COLUMNS], ahead};
      pack_row(row, some, to + (image * n[D_GROUP_ROWS] + r) * job->steps * STEP_BYTES, job->grad_bytes, job->is_half);
    }
}

/* ------------------------------------------------------------------ sums */
/* What registers sum up: images, and steps of each; where they lie, and the sums. */
typedef struct {
  const char *data, *grad;
  int64_t images, steps, data_image, grad_image, grad_bytes;
  float *sums;
  int64_t sums_step; /* floats from a vector to the next */
  int begins, ends;
  void *result;
  int64_t at, depth, rows, columns; /* in the result: the first number, its channels, and how many there are of both */
} Summed;

/* Sums of 8 channels of the data by some vectors of the gradient's. */
#define SUM_STEPS(name, FOR, WIDE, IS_HALF)                                                                                    \
  FOR __attribute__((noinline)) static void name(const Summed *of) {                                                           \
    __m512 sums[STEP_ROWS][WIDE];                                                                                              \
    for (int r = 0; r < STEP_ROWS; r++)                                                                                        \
      for (int v = 0; v < WIDE; v++) {                                                                                         \
        sums[r][v] = _mm512_setzero_ps();                                                                                      \
        WILL_WRITE(of->sums + v * of->sums_step + r * FLOATS);                                                                 \
      }                                                                                                                        \
    for (int64_t image = 0; image < of->images; image++) {                                                                     \
      const char *data = of->data + image * of->data_image, *grad = of->grad + image * of->grad_image;                         \
      const char *one = grad + of->grad_bytes, *two = one + of->grad_bytes;                                                    \
      for (int64_t s = 0; s < of->steps * STEP_BYTES; s += STEP_BYTES) {                                                       \
        __m512 factors[STEP_VECTORS];                                                                                          \
        factors[0] = _mm512_loadu_ps(grad + s);                                                                                \
        if (WIDE > 1) factors[1] = _mm512_loadu_ps(one + s);                                                                   \
        if (WIDE > 2) factors[2] = _mm512_loadu_ps(two + s);                                                                   \
        _Pragma("GCC unroll 8") for (int r = 0; r < STEP_ROWS; r++) {                                                          \
          __m512 number = _mm512_set1_ps(((const float *)(data + s))[r]);                                                      \
          _Pragma("GCC unroll 3") for (int v = 0; v < WIDE; v++)                                                               \
              sums[r][v] = PRODUCTS_##IS_HALF(sums[r][v], number, factors[v]);                                                 \
        }                                                                                                                      \
      }                                                                                                                        \
    }                                                                                                                          \
    for (int v = 0; v < WIDE; v++) {                                                                                           \
      __mmask16 written = lanes_of(of->columns - v * FLOATS);                                                                  \
      for (int r = 0; r < STEP_ROWS; r++) {                                                                                    \
        float *place = of->sums + v * of->sums_step + r * FLOATS;                                                              \
        if (!of->begins) sums[r][v] = _mm512_add_ps(sums[r][v], _mm512_loadu_ps(place));                                       \
        if (!of->ends)                                                                                                         \
          _mm512_storeu_ps(place, sums[r][v]);                                                                                 \
        else if (r < of->rows)                                                                                                 \
          write_numbers(of->result, of->at + r * of->depth + v * FLOATS, written, sums[r][v], IS_HALF);                        \
      }                                                                                                                        \
    }                                                                                                                          \
  }
#define PRODUCTS_0(sum, one, other) _mm512_fmadd_ps(one, other, sum)
#define PAIRS_OF(numbers) ((__m512bh)_mm512_castps_si512(numbers))
#define PRODUCTS_1(sum, one, other) _mm512_dpbf16_ps(sum, PAIRS_OF(one), PAIRS_OF(other))
SUM_STEPS(sum_floats_1, VECTORS, 1, 0)
SUM_STEPS(sum_floats_2, VECTORS, 2, 0)
SUM_STEPS(sum_floats_3, VECTORS, 3, 0)
SUM_STEPS(sum_pairs_1, PAIRS, 1, 1)
SUM_STEPS(sum_pairs_2, PAIRS, 2, 1)
SUM_STEPS(sum_pairs_3, PAIRS, 3, 1)
static void (*const STEP_SUMS[2][STEP_VECTORS])(const Summed *) = {{sum_floats_1, sum_floats_2, sum_floats_3},
                                                                   {sum_pairs_1, sum_pairs_2, sum_pairs_3}};

/* Adds the products of a group, for a tap and some channels of both. */
static void add_tap(const FiltersJob *job, int64_t tap, Channels data, Channels grad, Summed of) {
  const int64_t *n = job->n;
  int64_t down = tap / n[D_TAPS_ACROSS], across = tap % n[D_TAPS_ACROSS];
  int64_t before = (across * job->kinds + down % n[D_STRIDE_DOWN]) * n[D_GROUP_IMAGES] * job->seen_rows + down / n[D_STRIDE_DOWN];
  const char *first = of.data + before * job->steps * STEP_BYTES, *second = of.grad;
  float *sums = of.sums + tap * job->vectors * of.sums_step;
  for (int64_t column = grad.begin; column < grad.end;) {
    int64_t left = ceiling(grad.end - column, FLOATS);
    int wide = left == 4 ? 2 : (int)least(left, STEP_VECTORS); /* two and two take less time than three and one */
    of.grad = second + (column - grad.begin) / FLOATS * job->grad_bytes;
    of.columns = n[D_OUT_DEPTH] - column;
    for (int64_t row = data.begin; row < data.end; row += STEP_ROWS) {
      of.data = first + (row - data.begin) / FLOATS * job->data_bytes + (row - data.begin) % FLOATS * (int64_t)sizeof(float);
      of.sums = sums + column / FLOATS * of.sums_step + row * FLOATS;
      of.rows = n[D_DEPTH] - row;
      of.at = (tap * n[D_DEPTH] + row) * n[D_OUT_DEPTH] + column;
      STEP_SUMS[job->is_half][wide - 1](&of);
    }
    column += wide * FLOATS;
  }
}

/* Adds up a share of the groups, for some channels of both. */
static void add_groups(FiltersJob *job, int64_t part) {
  const int64_t *n = job->n;
  int64_t spans = job->data_spans * job->grad_spans, share = part / spans, span = part % spans;
  int64_t row = span / job->grad_spans * n[D_DATA_SPAN], column = span % job->grad_spans * n[D_GRAD_SPAN];
  Channels data = {row, least(n[D_DEPTH], row + n[D_DATA_SPAN])}, grad = {column, least(n[D_OUT_DEPTH], column + n[D_GRAD_SPAN])};
  int64_t begin = share * job->groups / n[D_SHARES], end = (share + 1) * job->groups / n[D_SHARES];
  int place = take_place(&job->taken, (int)n[D_PLACES]);
  char *packed = job->places + place * job->place_bytes;
  for (int64_t at = begin; at < end; at++) {
    StepGroup group = group_at(job, at);
    pack_data(job, group, data, packed);
    pack_grad(job, group, grad, packed + job->packed_bytes);
    Summed of = {.data = packed,
                 .grad = packed + job->packed_bytes,
                 .images = group.images,
                 .steps = group.rows * job->steps,
                 .data_image = job->seen_rows * job->steps * STEP_BYTES,
                 .grad_image = n[D_GROUP_ROWS] * job->steps * STEP_BYTES,
                 .grad_bytes = job->grad_bytes,
                 .sums = job->sums + share * job->share_floats,
                 .sums_step = job->rows * FLOATS,
                 .begins = at == begin,
                 .ends = n[D_SHARES] == 1 && at == end - 1,
                 .result = job->result,
                 .depth = n[D_OUT_DEPTH]};
    for (int64_t tap = 0; tap < job->taps; tap++) add_tap(job, tap, data, grad, of);
  }
  leave_place(&job->taken, place);
}

/* Adds up the sums of all shares, for a tap and a vector of the gradient's channels. */
OF_A_KIND void add_shares_of(const FiltersJob *job, int64_t at, int is_half) {
  const int64_t *n = job->n;
  int64_t tap = at / job->vectors, vector = at % job->vectors;
  const float *from = job->sums + at * job->rows * FLOATS;
  __mmask16 written = lanes_of(n[D_OUT_DEPTH] - vector * FLOATS);
  for (int64_t row = 0; row < n[D_DEPTH]; row++, from += FLOATS) {
    __m512 sum = _mm512_loadu_ps(from);
    for (int64_t share = 1; share < n[D_SHARES]; share++)
      sum = _mm512_add_ps(sum, _mm512_loadu_ps(from + share * job->share_floats));
    write_numbers(job->result, (tap * n[D_DEPTH] + row) * n[D_OUT_DEPTH] + vector * FLOATS, written, sum, is_half);
  }
}

VECTORS static void add_shares(const FiltersJob *job, int64_t at) {
  if (job->is_half)
    add_shares_of(job, at, 1);
  else
    add_shares_of(job, at, 0);
}

static int compute_filters(const Job *work, int part) {
  FiltersJob *job = (FiltersJob *)work;
  if (part < job->adds) {
    add_groups(job, part);
  } else {
    wait_until(&job->work, (int)job->adds);
    add_shares(job, part - job->adds);
  }
  return 0;
}

/* ------------------------------------------------------------------ calls */
/* Whether the processor can compute them: of float32, or (1) of bfloat16. */
int anabranch_pool_filters_can(int is_half) {
  return anabranch_pool_winograd_can() && (!is_half || __builtin_cpu_supports("avx512bf16"));
}

static int64_t groups_of(const int64_t *n) {
  return ceiling(n[D_BATCH], n[D_GROUP_IMAGES]) * ceiling(n[D_OUT_ROWS], n[D_GROUP_ROWS]);
}

/* What is wrong with the numbers of a call; NULL if nothing. */
static const char *wrong_filters(const int64_t *n) {
  static const int64_t MOST = 1 << 28, MOST_LENGTH = 1 << 24;
  for (int at = 0; at < D_NUMBERS; at++)
    if (n[at] > MOST_LENGTH || n[at] < (at == D_TOP || at == D_LEFT ? 0 : 1)) return "a length is no length";
  if (n[D_TAPS_DOWN] > 64 || n[D_TAPS_ACROSS] > 64) return "it has too many taps";
  int64_t rows = (n[D_OUT_ROWS] - 1) * n[D_STRIDE_DOWN] - n[D_TOP];
  int64_t columns = (n[D_OUT_COLUMNS] - 1) * n[D_STRIDE_ACROSS] - n[D_LEFT];
  int64_t across = n[D_TAPS_ACROSS] * (n[D_DEPTH] / n[D_PLACE]); /* places that a row of taps sees */
  if (n[D_DEPTH] % n[D_PLACE] || (n[D_DEPTH] > n[D_PLACE] && n[D_TAPS_ACROSS] > 1) || across > 64)
    return "taps see other numbers";
  if (n[D_TOP] >= n[D_TAPS_DOWN] || n[D_LEFT] >= across || rows > n[D_ROWS] + n[D_TAPS_DOWN] || columns > n[D_COLUMNS] + across)
    return "a window sees nothing";
  if (n[D_GROUP_ROWS] > n[D_OUT_ROWS] || n[D_GROUP_IMAGES] > n[D_BATCH] ||
      (n[D_GROUP_ROWS] < n[D_OUT_ROWS] && n[D_GROUP_IMAGES] > 1) || n[D_DATA_SPAN] % STEP_ROWS || n[D_GRAD_SPAN] % FLOATS ||
      n[D_PLACES] > 64)
    return "it is cut into other blocks";
  if (n[D_SHARES] > least(groups_of(n), 1 << 10) || n[D_DATA_SPAN] > whole(n[D_DEPTH], STEP_ROWS) ||
      n[D_GRAD_SPAN] > whole(n[D_OUT_DEPTH], FLOATS))
    return "it is cut into other parts";
  /* (a length is below 2^24, so that no product of two overflows) */
  int64_t images = n[D_ROWS] * n[D_COLUMNS], outputs = n[D_OUT_ROWS] * n[D_OUT_COLUMNS], filters = n[D_DEPTH] * n[D_OUT_DEPTH];
  if (images > MOST || outputs > MOST || filters > MOST || n[D_BATCH] * images > MOST || n[D_BATCH] * outputs > MOST ||
      n[D_BATCH] * images * n[D_PLACE] > MOST || n[D_BATCH] * outputs * n[D_OUT_DEPTH] > MOST ||
      filters * n[D_TAPS_DOWN] * n[D_TAPS_ACROSS] > MOST)
    return "an array is too large";
  return NULL;
}

/* Finds what follows from the numbers, and gives how many bytes it works in. */
static int64_t cut_into_steps(FiltersJob *job) {
  const int64_t *n = job->n;
  job->steps = job->is_half ? ceiling(n[D_OUT_COLUMNS], 2) : n[D_OUT_COLUMNS];
  job->kinds = least(n[D_STRIDE_DOWN], n[D_TAPS_DOWN]);
  job->seen_rows = n[D_GROUP_ROWS] + (n[D_TAPS_DOWN] - 1) / n[D_STRIDE_DOWN];
  job->groups_of_image = ceiling(n[D_OUT_ROWS], n[D_GROUP_ROWS]);
  job->groups = groups_of(n);
  job->taps = n[D_TAPS_DOWN] * n[D_TAPS_ACROSS];
  job->rows = whole(n[D_DEPTH], STEP_ROWS);
  job->vectors = ceiling(n[D_OUT_DEPTH], FLOATS);
  /* a vector more: no multiple of a page */
  job->data_bytes = (n[D_TAPS_ACROSS] * job->kinds * n[D_GROUP_IMAGES] * job->seen_rows * job->steps + 1) * STEP_BYTES;
  job->grad_bytes = (n[D_GROUP_IMAGES] * n[D_GROUP_ROWS] * job->steps + 1) * STEP_BYTES;
  job->packed_bytes = ceiling(n[D_DATA_SPAN], FLOATS) * job->data_bytes;
  job->place_bytes = whole(job->packed_bytes + n[D_GRAD_SPAN] / FLOATS * job->grad_bytes, PAGE);
  job->share_floats = job->taps * job->vectors * job->rows * FLOATS;
  job->data_spans = ceiling(n[D_DEPTH], n[D_DATA_SPAN]);
  job->grad_spans = ceiling(n[D_OUT_DEPTH], n[D_GRAD_SPAN]);
  job->adds = n[D_SHARES] * job->data_spans * job->grad_spans;
  return n[D_PLACES] * job->place_bytes + n[D_SHARES] * job->share_floats * (int64_t)sizeof(float) + 64;
}

/* The handler: data, the gradient of the output, one result and memory to work in; attributes are the operation's name and
 * the numbers. */
void *anabranch_pool_filters(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != D_NUMBERS || frame->arguments.count != 2 || frame->results.count != 2)
    return error_of(frame, "a call has twenty numbers, two arrays, one result and memory to work in");
  const int64_t *n = numbers->data;
  const char *reason = unusable(frame);
  if (reason == NULL) reason = wrong_filters(n);
  const Buffer *data = frame->arguments.values[0], *grad = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0], *memory = frame->results.values[1];
  if (reason == NULL && !anabranch_pool_filters_can(data->type == BFLOAT16)) reason = "this processor cannot multiply so";
  if (reason != NULL) return error_of(frame, reason);
  FiltersJob own, *shared = malloc(sizeof *shared), *job = shared != NULL ? shared : &own;
  memset(job, 0, sizeof *job);
  memcpy(job->n, n, sizeof job->n);
  job->is_half = data->type == BFLOAT16;
  int64_t bytes = cut_into_steps(job), parts = job->adds + (n[D_SHARES] > 1 ? job->taps * job->vectors : 0);
  if (!has_numbers(data) || !holds_as_many(frame, data, n[D_BATCH] * n[D_ROWS] * n[D_COLUMNS] * n[D_PLACE]) ||
      !holds_as_many(frame, grad, n[D_BATCH] * n[D_OUT_ROWS] * n[D_OUT_COLUMNS] * n[D_OUT_DEPTH]) ||
      !holds_as_many(frame, result, n[D_TAPS_DOWN] * n[D_TAPS_ACROSS] * n[D_DEPTH] * n[D_OUT_DEPTH]) ||
      elements_of(memory) < bytes)
    reason = "the arrays are others than it was prepared for";
  if (reason == NULL && parts > 1 << 30) reason = "it is cut into too many blocks";
  if (reason != NULL) {
    free(shared);
    return error_of(frame, reason);
  }
  job->data = data->data;
  job->grad = grad->data;
  job->result = result->data;
  job->places = (char *)memory->data + (64 - (uintptr_t)memory->data % 64) % 64;
  job->sums = (float *)(job->places + n[D_PLACES] * job->place_bytes);
  job->work.parts = (int)parts;
  job->work.compute = compute_filters;
  int64_t threads = shared == NULL ? 1 : least(threads_of(frame), n[D_PLACES]);
  int failed = do_work(&job->work, frame, (int)threads - 1, shared == NULL);
  return failed ? error_of(frame, "it failed while it ran") : NULL;
}
#else
int anabranch_pool_filters_can(int is_half) {
  (void)is_half;
  return 0;
}

void *anabranch_pool_filters(Frame *frame) {
  return tells_version(frame) ? NULL : error_of(frame, "the compiler knows no such sums");
}
#endif
