/* Tiles of a processor that has none, for `pool_blocks.c`: what its instructions do, number by number, as Intel's manual says.
 * Included before the source. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps

static _Thread_local unsigned char tile_bytes[8][16][64];

static void zero_tile(int tile) { memset(tile_bytes[tile], 0, sizeof tile_bytes[tile]); }

static void load_tile(int tile, const void *from, long step) {
  for (int row = 0; row < 16; row++) memcpy(tile_bytes[tile][row], (const char *)from + row * step, 64);
}

static void store_tile(int tile, void *to, long step) {
  for (int row = 0; row < 16; row++) memcpy((char *)to + row * step, tile_bytes[tile][row], 64);
}

/* The numbers of a tile of bfloat16: 32 of each row. */
static void read_tile(int tile, float numbers[16][32]) {
  for (int row = 0; row < 16; row++)
    for (int at = 0; at < 32; at++) {
      uint32_t bits = (uint32_t)(tile_bytes[tile][row][2 * at] | tile_bytes[tile][row][2 * at + 1] << 8) << 16;
      memcpy(&numbers[row][at], &bits, 4);
    }
}

__attribute__((optimize("O3"), target("avx512f,fma"))) static void multiply_tiles(int to, int first, int second) {
  float one[16][32], other[16][32], sums[16], factors[16];
  read_tile(first, one);
  read_tile(second, other);
  for (int row = 0; row < 16; row++) {
    memcpy(sums, tile_bytes[to][row], 64);
    for (int at = 0; at < 32; at++) {
      for (int column = 0; column < 16; column++) factors[column] = other[at / 2][2 * column + at % 2];
      for (int column = 0; column < 16; column++) sums[column] += one[row][at] * factors[column];
    }
    memcpy(tile_bytes[to][row], sums, 64);
  }
}

#define _tile_loadconfig(shapes) ((void)(shapes))
#define _tile_release() ((void)0)
#define _tile_zero zero_tile
#define _tile_loadd load_tile
#define _tile_stored store_tile
#define _tile_dpbf16ps multiply_tiles
/* the system lets everybody use them */
#define syscall(number, ...) ((number) == SYS_arch_prctl ? 0 : syscall(number, __VA_ARGS__))
