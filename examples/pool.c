/* pool.c - memory from the pool of the first GPU, or of the emulated device where there is none.
 * Build: cc pool.c -lmillpond
 * SPDX-License-Identifier: Apache-2.0 */
#include <millpond/millpond.h>
#include <stdio.h>

int main(void) {
    mp_pool *pool;
    mp_addr block;
    if (mp_pool_open("auto", MP_MEMORY_DEVICE, "example", NULL, &pool) != MP_OK ||
        mp_pool_alloc(pool, 1 << 20, NULL, &block) != MP_OK) {
        return fprintf(stderr, "%s\n", mp_error_message()), 1;
    }
    printf("1 MiB of device memory at 0x%zx\n", (size_t)block);
    mp_pool_free(pool, block); /* in the order of its stream, here the default one */
    mp_pool_close(pool);
}
