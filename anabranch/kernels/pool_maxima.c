/* Maxima of windows over images, channels last, in parts (`pool_common.c`): what a plan of `pool_stages.c` may compute
 * instead of primitives. Data are float32 or bfloat16. Where each maximum was (the first of
 * equal ones) is a byte: the number of the place in its window, row by row. Channels come in sixteens.
 *
 * What is no number is passed over; the sum of a window tells that there may be some, and the caller is told.
 */

/* This structure is `pool_pooling.py`'s, too. */
typedef struct {
  int64_t images, height, width, channels, out_height, out_width;
  int64_t window_height, window_width, row_step, column_step, above, before; /* the last two: padding */
  int number_bytes, parts;
} Maxima;

typedef struct {
  Job work;
  const Maxima *of;
  void **arrays;
  atomic_int *odd;
} MaximaJob;

/* The places of a window that lie among the data. */
typedef struct { int64_t row, column, first_row, end_row, first_column, end_column; } Window;

static Window window_at(const Maxima *m, int64_t out_row, int64_t out_column) {
  Window w = {out_row * m->row_step - m->above, out_column * m->column_step - m->before, 0, 0, 0, 0};
  w.first_row = w.row < 0 ? -w.row : 0;
  w.first_column = w.column < 0 ? -w.column : 0;
  w.end_row = w.row + m->window_height > m->height ? m->height - w.row : m->window_height;
  w.end_column = w.column + m->window_width > m->width ? m->width - w.column : m->window_width;
  return w;
}

WIDE static int set_maxima(const Maxima *m, void **arrays, int64_t image) {
  const char *x = arrays[0];
  char *y = arrays[1];
  uint8_t *places = arrays[2];
  __mmask16 odd = 0;
  for (int64_t out_row = 0; out_row < m->out_height; out_row++)
    for (int64_t out_column = 0; out_column < m->out_width; out_column++) {
      Window w = window_at(m, out_row, out_column);
      int64_t to = ((image * m->out_height + out_row) * m->out_width + out_column) * m->channels;
      int64_t from = ((image * m->height + w.row) * m->width + w.column) * m->channels;
      for (int64_t c = 0; c < m->channels; c += LANES) {
        int64_t first = from + (w.first_row * m->width + w.first_column) * m->channels + c;
        __m512 largest = loaded(x, first, m->number_bytes), sum = _mm512_setzero_ps();
        __m512i place = _mm512_set1_epi32((int)(w.first_row * m->window_width + w.first_column));
        for (int64_t row = w.first_row; row < w.end_row; row++)
          for (int64_t column = w.first_column; column < w.end_column; column++) {
            __m512 seen = loaded(x, from + (row * m->width + column) * m->channels + c, m->number_bytes);
            __mmask16 larger = _mm512_cmp_ps_mask(seen, largest, _CMP_GT_OQ);
            largest = _mm512_mask_mov_ps(largest, larger, seen);
            place = _mm512_mask_mov_epi32(place, larger, _mm512_set1_epi32((int)(row * m->window_width + column)));
            sum = _mm512_add_ps(sum, seen);
          }
        /* where there is nothing but minus infinity, the padding is as large: the first place is taken, even there */
        __mmask16 none = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ);
        place = _mm512_mask_mov_epi32(place, none, _mm512_setzero_si512());
        odd |= _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
        stored(y, to + c, m->number_bytes, largest);
        _mm_storeu_si128((__m128i *)(places + to + c), _mm512_cvtepi32_epi8(place));
      }
    }
  return odd != 0;
}


static int compute_maxima(const Job *work, int part) {
  const MaximaJob *job = (const MaximaJob *)work;
  const Maxima *m = job->of;
  for (int64_t image = m->images * part / m->parts; image < m->images * (part + 1) / m->parts; image++)
    if (set_maxima(m, job->arrays, image)) atomic_store(job->odd, 1);
  return 0;
}

/* Computes on the arrays of a call; `odd` is set where maxima passed over something, or may have. */
static int run_maxima(const Maxima *m, const Frame *frame, void **arrays, atomic_int *odd) {
  int threads = m->parts > 1 ? threads_of(frame) : 1;
  MaximaJob own, *shared = threads > 1 ? malloc(sizeof *shared) : NULL, *job = shared ? shared : &own;
  memset(job, 0, sizeof *job);
  job->work.parts = m->parts;
  job->work.compute = compute_maxima;
  job->of = m;
  job->arrays = arrays;
  job->odd = odd;
  return do_work(&job->work, frame, shared ? (m->parts < threads ? m->parts : threads) - 1 : 0, !shared);
}
