/* Gradients to 3x3, 5x5, 1x7 and 7x1 filters in a quarter and 0.36 of the multiplications; XLA's own threads compute them
 * (`pool_common.c`). A handler that `pool_winograd.py` calls. Functions and structures, and the types, are those of
 * `pool_winograd.c`.
 *
 * The tiles are taken in groups: those of the data and of the gradient are taken to points, in parts; then at each point the
 * products of both are added to what the groups before have given, each point in a part of its own. At last sums at points
 * are taken back to taps. A part waits for those of the kind before it, which are all begun.
 *
 * Contract: the handler checks what it is given, and whatever is wrong becomes an error of XLA's that names the
 * operation. What it works in is a second result of the call.
 */
#if HAS_BLOCKS
/* in the place of two of the numbers of a call: tiles of a group, and of a part of it */
enum { W_GROUP = W_TILES, W_OF_A_PART = W_PLACES };
/* channels of the data, and vectors of channels of the gradient, that registers hold sums for */
enum { SUMMED_ROWS = 8, SUMMED_VECTORS = 2 };

typedef struct {
  WinogradJob tiles; /* its data are those of the convolution, its filter the gradient of the output */
  float *data_at_points, *grad_at_points, *sums;
  int64_t data_step, grad_step, sum_step; /* floats from a point to the next */
  int64_t groups, takes; /* parts that take the tiles of a whole group to points */
} FilterJob;

/* A, of four values, or two, that lie `step` vectors apart. */
OF_A_KIND void outputs_to_points(const __m512 *g, int step, __m512 *to, int outputs) {
  const __m512 two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), eight = _mm512_set1_ps(8);
  __m512 even = g[0], odd = g[step], far_even = g[0], far_odd = _mm512_mul_ps(two, g[step]);
  if (outputs == MOST_OUTPUTS) {
    even = _mm512_add_ps(even, g[2 * step]);
    odd = _mm512_add_ps(odd, g[3 * step]);
    far_even = _mm512_fmadd_ps(four, g[2 * step], far_even);
    far_odd = _mm512_fmadd_ps(eight, g[3 * step], far_odd);
  }
  to[0] = g[0];
  to[1] = _mm512_add_ps(even, odd);
  to[2] = _mm512_sub_ps(even, odd);
  to[3] = _mm512_add_ps(far_even, far_odd);
  to[4] = _mm512_sub_ps(far_even, far_odd);
  to[5] = g[(outputs - 1) * step];
}

/* G.T, of values at six points, for three taps or five. */
OF_A_KIND void taps_from_points(const __m512 *m, int step, __m512 *to, int taps) {
  const __m512 quarter = _mm512_set1_ps(1 / 4.f), sixth = _mm512_set1_ps(1 / 6.f), twelfth = _mm512_set1_ps(1 / 12.f);
  const __m512 small = _mm512_set1_ps(1 / 24.f), third = _mm512_set1_ps(1 / 3.f), most = _mm512_set1_ps(2 / 3.f);
  __m512 sum = _mm512_add_ps(m[step], m[2 * step]), difference = _mm512_sub_ps(m[2 * step], m[step]);
  __m512 far_sum = _mm512_add_ps(m[3 * step], m[4 * step]), far_difference = _mm512_sub_ps(m[3 * step], m[4 * step]);
  to[0] = _mm512_fmadd_ps(quarter, m[0], _mm512_fnmadd_ps(sixth, sum, _mm512_mul_ps(small, far_sum)));
  to[1] = _mm512_fmadd_ps(sixth, difference, _mm512_mul_ps(twelfth, far_difference));
  to[2] = _mm512_mul_ps(sixth, _mm512_sub_ps(far_sum, sum));
  if (taps == MOST_TAPS) {
    to[3] = _mm512_fmadd_ps(sixth, difference, _mm512_mul_ps(third, far_difference));
    to[4] = _mm512_fnmadd_ps(sixth, sum, _mm512_mul_ps(most, far_sum));
  }
  to[taps - 1] = _mm512_add_ps(to[taps - 1], m[5 * step]);
}

/* ------------------------------------------------------------------ parts */
/* Takes a tile of the gradient to points, as `take_tile` does one of the data. */
OF_A_KIND void take_outputs_of(const WinogradJob *job, Tile tile, float *to, int64_t step, int64_t vector_step, int is_half,
                               int taps) {
  const int64_t *n = job->n;
  int64_t depth = n[W_OUT_DEPTH], row = n[W_OUT_COLUMNS] * depth;
  int64_t from = ((tile.image * n[W_OUT_ROWS] + tile.row) * n[W_OUT_COLUMNS] + tile.column) * depth;
  for (int64_t d = 0; d < whole(depth, ACROSS); d += FLOATS) { /* what is missing of the last pair of vectors is zero */
    __mmask16 read = lanes_of(depth - d);
    if (taps == LINE_TAPS) {
      int64_t left = n[W_AXES] == ALONG_COLUMNS ? n[W_OUT_COLUMNS] - tile.column : n[W_OUT_ROWS] - tile.row;
      int64_t next = n[W_AXES] == ALONG_COLUMNS ? depth : row;
      __m512 line[LINE_OUTPUTS], at[LINE_POINTS];
      for (int i = 0; i < LINE_OUTPUTS; i++)
        line[i] = i < left ? read_numbers(job->filter, from + i * next + d, read, is_half) : _mm512_setzero_ps();
      for (int i = LINE_OUTPUTS; i < 2 * LINE_OUTPUTS; i++) /* the next tile */
        WILL_READ(place_of(job->filter, from + i * next + d, is_half));
      polynomial_to_points(line, LINE_OUTPUTS, at);
      for (int p = 0; p < LINE_POINTS; p++) {
        float *place = to + p * step + d / FLOATS * vector_step;
        _mm512_storeu_ps(place, at[p]);
        WILL_WRITE(place + vector_step);
      }
      continue;
    }
    const int outputs = EDGE + 1 - taps;
    __m512 seen[MOST_OUTPUTS * MOST_OUTPUTS], down[EDGE * MOST_OUTPUTS], at[EDGE];
    for (int i = 0; i < outputs; i++)
      for (int j = 0; j < outputs; j++) {
        int is_inside = tile.row + i < n[W_OUT_ROWS] && tile.column + j < n[W_OUT_COLUMNS];
        seen[i * outputs + j] =
            is_inside ? read_numbers(job->filter, from + i * row + j * depth + d, read, is_half) : _mm512_setzero_ps();
      }
    for (int i = 0; i < outputs; i++) /* the next tile */
      for (int j = outputs; j < 2 * outputs; j++) WILL_READ(place_of(job->filter, from + i * row + j * depth + d, is_half));
    for (int j = 0; j < outputs; j++) {
      outputs_to_points(seen + j, outputs, at, outputs);
      for (int i = 0; i < EDGE; i++) down[i * outputs + j] = at[i];
    }
    for (int i = 0; i < EDGE; i++) {
      outputs_to_points(down + i * outputs, 1, at, outputs);
      for (int j = 0; j < EDGE; j++) {
        float *place = to + (i * EDGE + j) * step + d / FLOATS * vector_step;
        _mm512_storeu_ps(place, at[j]);
        WILL_WRITE(place + vector_step);
      }
    }
  }
}

/* Takes some tiles of a group to points, of the data and of the gradient: [points][vectors][tiles][16]. */
VECTORS static void take_some(const FilterJob *job, int64_t group, int64_t part) {
  const WinogradJob *tiles = &job->tiles;
  const int64_t *n = tiles->n;
  int64_t begin = group * n[W_GROUP], count = least(n[W_GROUP], tiles->tiles - begin);
  int64_t end = least(count, (part + 1) * n[W_OF_A_PART]);
  for (int64_t t = part * n[W_OF_A_PART]; t < end; t++) {
    Tile tile = tile_at(tiles, begin + t);
    take_tile(tiles, tile, job->data_at_points + t * FLOATS, job->data_step, n[W_GROUP] * FLOATS);
    float *to = job->grad_at_points + t * FLOATS;
    CALL_OF_A_KIND(tiles, take_outputs_of, tiles, tile, to, job->grad_step, n[W_GROUP] * FLOATS);
  }
}

/* Adds products of so many tiles to 8 x 32 sums; those that come next lie behind them. A group is summed by itself, since small
 * numbers lose least when they are added to small ones. */
VECTORS __attribute__((noinline)) static void add_tiles(const float *data, const float *grad, int64_t vector_step,
                                                           int64_t tiles, int begins, float *to) {
  __m512 sums[SUMMED_ROWS][SUMMED_VECTORS];
  for (int r = 0; r < SUMMED_ROWS; r++)
    for (int v = 0; v < SUMMED_VECTORS; v++) sums[r][v] = _mm512_setzero_ps();
  for (int i = 0; i < SUMMED_ROWS * SUMMED_VECTORS; i++) WILL_WRITE(to + (SUMMED_ROWS * SUMMED_VECTORS + i) * FLOATS);
  for (int64_t t = 0; t < tiles; t++) {
    __m512 factors[SUMMED_VECTORS];
    for (int v = 0; v < SUMMED_VECTORS; v++) factors[v] = _mm512_loadu_ps(grad + v * vector_step + t * FLOATS);
    WILL_READ(data + vector_step + t * FLOATS);
    _Pragma("GCC unroll 8") for (int r = 0; r < SUMMED_ROWS; r++) {
      __m512 number = _mm512_set1_ps(data[t * FLOATS + r]);
      for (int v = 0; v < SUMMED_VECTORS; v++) sums[r][v] = _mm512_fmadd_ps(number, factors[v], sums[r][v]);
    }
  }
  for (int r = 0; r < SUMMED_ROWS; r++)
    for (int v = 0; v < SUMMED_VECTORS; v++) {
      float *place = to + (r * SUMMED_VECTORS + v) * FLOATS;
      _mm512_storeu_ps(place, begins ? sums[r][v] : _mm512_add_ps(_mm512_loadu_ps(place), sums[r][v]));
    }
}

/* Adds the products of a group at a point. */
static void add_point(const FilterJob *job, int64_t group, int64_t point) {
  const int64_t *n = job->tiles.n;
  int64_t count = least(n[W_GROUP], job->tiles.tiles - group * n[W_GROUP]), vector_step = n[W_GROUP] * FLOATS;
  const float *data = job->data_at_points + point * job->data_step, *grad = job->grad_at_points + point * job->grad_step;
  float *to = job->sums + point * job->sum_step;
  for (int64_t column = 0; column < n[W_OUT_DEPTH]; column += ACROSS)
    for (int64_t row = 0; row < n[W_DEPTH]; row += SUMMED_ROWS, to += SUMMED_ROWS * ACROSS)
      add_tiles(data + row / FLOATS * vector_step + row % FLOATS, grad + column / FLOATS * vector_step, vector_step, count,
                   group == 0, to);
}

/* Takes sums at points back to taps, for eight channels of the data. */
OF_A_KIND void give_taps_of(const FilterJob *job, int64_t rows, int is_half, int taps) {
  const int64_t *n = job->tiles.n;
  int64_t down = ceiling(n[W_DEPTH], SUMMED_ROWS);
  for (int64_t column = 0; column < n[W_OUT_DEPTH]; column += FLOATS) {
    __mmask16 written = lanes_of(n[W_OUT_DEPTH] - column);
    for (int64_t r = 0; r < least(SUMMED_ROWS, n[W_DEPTH] - rows * SUMMED_ROWS); r++) {
      const float *from = job->sums + ((column / ACROSS * down + rows) * SUMMED_ROWS + r) * ACROSS + column % ACROSS;
      __m512 at[POINTS], across[EDGE * MOST_TAPS], given[LINE_TAPS];
      for (int p = 0; p < (taps == LINE_TAPS ? LINE_POINTS : POINTS); p++) {
        at[p] = _mm512_loadu_ps(from + p * job->sum_step);
        WILL_READ(from + p * job->sum_step + 2 * ACROSS);
      }
      int64_t to = (rows * SUMMED_ROWS + r) * n[W_OUT_DEPTH] + column, tap = n[W_DEPTH] * n[W_OUT_DEPTH];
      if (taps == LINE_TAPS) {
        take_shares(at);
        polynomial_from_points(at, LINE_TAPS, given);
        for (int t = 0; t < taps; t++) write_numbers(job->tiles.result, to + t * tap, written, given[t], is_half);
        continue;
      }
      for (int i = 0; i < EDGE; i++) taps_from_points(at + i * EDGE, 1, across + i * taps, taps);
      for (int s = 0; s < taps; s++) {
        taps_from_points(across + s, taps, given, taps);
        for (int i = 0; i < taps; i++)
          write_numbers(job->tiles.result, to + (i * taps + s) * tap, written, given[i], is_half);
      }
    }
  }
}

VECTORS static void give_taps(const FilterJob *job, int64_t rows) {
  CALL_OF_A_KIND(&job->tiles, give_taps_of, job, rows);
}

static int compute_filter(const Job *work, int part) {
  FilterJob *job = (FilterJob *)work;
  Job *shared = &job->tiles.work;
  /* after those of all groups come those that give taps, of which there may be more than of a group */
  int64_t of_a_group = job->takes + job->tiles.points, group = least(part / of_a_group, job->groups);
  int64_t at = part - group * of_a_group;
  int begin = (int)(group * of_a_group);
  if (group == job->groups) {
    wait_until(shared, begin);
    give_taps(job, at);
  } else if (at < job->takes) {
    wait_until(shared, begin); /* what lies there was used until then */
    take_some(job, group, at);
  } else {
    wait_until(shared, begin + (int)job->takes);
    add_point(job, group, at - job->takes);
  }
  return 0;
}

/* ------------------------------------------------------------------ calls */
/* The handler: data, the gradient of the output, one result and memory to work in; attributes are the operation's name and
 * the numbers. */
void *anabranch_pool_winograd_filter(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != W_NUMBERS || frame->arguments.count != 2 || frame->results.count != 2)
    return error_of(frame, "a call has fifteen numbers, two arrays, one result and memory to work in");
  const int64_t *n = numbers->data;
  const char *reason = unusable(frame);
  if (reason == NULL) reason = wrong_winograd(n);
  if (reason == NULL && (n[W_TURNED] || n[W_BIASED])) reason = "it is another convolution";
  if (reason == NULL && !anabranch_pool_winograd_can()) reason = "this processor cannot multiply so";
  if (reason != NULL) return error_of(frame, reason);
  const Buffer *data = frame->arguments.values[0], *grad = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0], *memory = frame->results.values[1];
  int64_t data_step = n[W_GROUP] * whole(n[W_DEPTH], FLOATS) + FLOATS;
  int64_t grad_step = n[W_GROUP] * whole(n[W_OUT_DEPTH], ACROSS) + FLOATS;
  int64_t sum_step = whole(n[W_DEPTH], SUMMED_ROWS) * whole(n[W_OUT_DEPTH], ACROSS) + FLOATS;
  if (!has_numbers(data) || !holds_as_many(frame, data, n[W_BATCH] * n[W_ROWS] * n[W_COLUMNS] * n[W_DEPTH]) ||
      !holds_as_many(frame, grad, n[W_BATCH] * n[W_OUT_ROWS] * n[W_OUT_COLUMNS] * n[W_OUT_DEPTH]) ||
      !holds_as_many(frame, result, taps_of(n) * n[W_DEPTH] * n[W_OUT_DEPTH]) ||
      elements_of(memory) < points_of(n) * (data_step + grad_step + sum_step) * (int64_t)sizeof(float) + 64)
    return error_of(frame, "the arrays are others than it was prepared for");
  FilterJob own, *shared = malloc(sizeof *shared), *job = shared != NULL ? shared : &own;
  memset(job, 0, sizeof *job);
  WinogradJob *tiles = &job->tiles;
  cut_into_tiles(tiles, n);
  tiles->data = data->data;
  tiles->filter = grad->data;
  tiles->result = result->data;
  tiles->is_half = data->type == BFLOAT16;
  job->data_step = data_step;
  job->grad_step = grad_step;
  job->sum_step = sum_step;
  job->data_at_points = (float *)((char *)memory->data + (64 - (uintptr_t)memory->data % 64) % 64);
  job->grad_at_points = job->data_at_points + tiles->points * data_step;
  job->sums = job->grad_at_points + tiles->points * grad_step;
  job->groups = ceiling(tiles->tiles, n[W_GROUP]);
  job->takes = ceiling(n[W_GROUP], n[W_OF_A_PART]);
  int64_t parts = job->groups * (job->takes + tiles->points) + ceiling(n[W_DEPTH], SUMMED_ROWS);
  if (parts > 1 << 30) {
    free(shared);
    return error_of(frame, "it is cut into too many blocks");
  }
  tiles->work.parts = (int)parts;
  tiles->work.compute = compute_filter;
  int64_t threads = shared == NULL ? 1 : threads_of(frame);
  int failed = do_work(&tiles->work, frame, (int)threads - 1, shared == NULL);
  return failed ? error_of(frame, "it failed while it ran") : NULL;
}
#else
void *anabranch_pool_winograd_filter(Frame *frame) {
  return tells_version(frame) ? NULL : error_of(frame, "the compiler knows no such convolutions");
}
#endif
