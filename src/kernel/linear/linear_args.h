/* linear_args.h - arguments of the kernels that stand in for library math.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_LINEAR_ARGS_H
#define MP_KERNEL_LINEAR_ARGS_H

#include "kernel/core/index_args.h"
#include "kernel/rows/before_args.h"

typedef struct mp_det_args {
    const void *x;
    void *out;
    double *work; /* as many elements as x */
    int64_t matrices, side;
} mp_det_args;

typedef struct mp_inverse_args {
    const void *x;
    void *out;
    void *work;        /* NULL: shared memory; or `work_size` bytes for each block */
    int64_t work_size; /* a multiple of 16 */
    int64_t matrices, side;
    k_divider by_side;
} mp_inverse_args;

enum { K_DEFORM_PLANES = 8 }; /* channels of a lane */

/* Of one pass over `images` images: x is [images][channels][in_h][in_w], columns is
 * [images][channels][kernel_h][kernel_w][out_h][out_w], offset is
 * [images][offset_groups][kernel_h][kernel_w][2][out_h][out_w], mask the same without the 2. */
typedef struct mp_deform_args {
    const void *x, *offset, *mask; /* mask may be NULL */
    void *columns;
    int64_t count; /* of items: images, offset groups, pieces, taps, outputs */
    int64_t channels, offset_groups;
    int64_t pieces; /* of an offset group's channels, K_DEFORM_PLANES each, the last what is left */
    int64_t in_h, in_w, out_h, out_w, kernel_h, kernel_w;
    int64_t stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
    k_divider by_points, by_taps, by_pieces, by_out_w, by_kernel_w;
    int32_t wide, unused; /* 2^31 items or more: dividers are not used */
} mp_deform_args;

enum { K_COLUMNS_RANK = 3 }; /* dimensions of an image; those in front may be 1 */

/* columns[plane][tap][output] = x[plane][where the tap of output `first` + output lies] */
typedef struct mp_columns_args {
    const void *x;
    void *columns;
    int64_t count; /* below 2^31, as taps and outputs of a plane are */
    int64_t in_plane;
    int64_t in[K_COLUMNS_RANK], stride[K_COLUMNS_RANK];
    int64_t dilation[K_COLUMNS_RANK], pad[K_COLUMNS_RANK];
    int32_t out[K_COLUMNS_RANK], kernel[K_COLUMNS_RANK];
    int32_t first, outputs; /* of each plane, in this pass */
    int32_t taps, unused;
    k_divider by_outputs, by_taps, by_out[K_COLUMNS_RANK], by_kernel[K_COLUMNS_RANK];
} mp_columns_args;

/* out[n][place] = sum of x[n][k][block] over all k, block that show this place of the image */
typedef struct mp_col2im_args {
    const void *x;
    void *out;
    int64_t count;
    int64_t taps;   /* elements of a block */
    int64_t blocks; /* how many there are of each channel */
    int32_t rank;   /* of the image, up to K_RANK_MAX - 2 */
    int32_t unused;
    int64_t image[K_RANK_MAX], kernel[K_RANK_MAX], across[K_RANK_MAX]; /* across: blocks */
    int64_t stride[K_RANK_MAX], dilation[K_RANK_MAX], pad[K_RANK_MAX];
} mp_col2im_args;

/* As mp_activation. */
enum {
    K_ACTIVATE_NONE,
    K_ACTIVATE_RELU,
    K_ACTIVATE_LEAKY_RELU,
    K_ACTIVATE_CLIP,
    K_ACTIVATE_SIGMOID,
    K_ACTIVATE_TANH,
    K_ACTIVATE_HARD_SIGMOID,
    K_ACTIVATE_HARD_SWISH,
    K_ACTIVATE_SILU,
    K_ACTIVATE_GELU,
    K_ACTIVATE_GELU_TANH,
    K_ACTIVATE_SWISH,
};

/* An activation and its parameters. */
typedef struct mp_activate {
    int32_t kind; /* K_ACTIVATE_... */
    float alpha, beta;
} mp_activate;

enum {
    K_EXCITE_LANES = 512, /* of a block of squeeze_excite.cu */
    K_EXCITE_ROWS = 4,    /* of weights that a group of lanes walks along at once: no more than it
                           * has lanes */
    K_EXCITE_TURNS = 4,   /* in which pixels come that a block keeps: sums are made meanwhile */
    K_EXCITE_BOX = 16,    /* bytes of shared memory, for what counts what a cluster tells */
    K_EXCITE_QUAD = 4,    /* floats that are told at once */
    /* What a launch does. */
    K_EXCITE_SQUEEZE = 1, /* pixels become parts of the squeezed numbers */
    K_EXCITE_GATES = 2,   /* these become gates; without the above, of parts in memory */
    K_EXCITE_SCALE = 4,   /* and the image is multiplied by them */
    K_EXCITE_ADD = 8,     /* and added to that */
};

/* x[images][pixels][channels] to out[images][gates], or to x times those. Neighbouring blocks have
 * an image: block b of them slice b % slices of the channels, and of those piece b / slices of the
 * pixels. */
typedef struct mp_excite_args {
    const void *x;            /* rows of whole aligned packs of 16 bytes, as those of w1 are */
    const void *w1, *b1;      /* [inner][channels], [inner]; b1 may be NULL */
    const void *w2, *b2;      /* [gates][inner], [gates]; b2 may be NULL; all begin aligned */
    void *out;                /* [images][gates], or as x */
    float *parts;             /* [images][told][pitch], between two launches */
    int32_t pixels, channels; /* of an image */
    int32_t inner, gates;     /* numbers that its channels are squeezed to; gates */
    int32_t work;             /* K_EXCITE_... */
    int32_t blocks;           /* of an image */
    int32_t slices;           /* that its channels are dealt in */
    int32_t slice, piece;     /* channels, whole packs, and pixels of a block */
    int32_t rows2;  /* gates of a block, whole packs: those of its slice where it scales */
    int32_t told;   /* parts of a squeezed number, one of each block that has seen pixels */
    int32_t pitch;  /* floats from a block's parts to the next's, whole quads */
    int32_t across; /* lanes side by side in a row of a slice, a power of two */
    int32_t width1, width2,
        wide; /* lanes of a row of w1 and of w2; of a number's parts: the same */
    mp_activate squeezed, gating; /* behind the first product, behind the second */
    int32_t meets;                /* its blocks are a cluster, and tell one another the parts */
    int32_t held, keeps;          /* weights, pixels: they are in shared memory */
    int32_t constant;             /* the weights, which may be read early */
    /* Bytes of shared memory in front of: sums of lanes, means of a slice, the block's own parts,
     * all parts, squeezed numbers, gates, weights and what is added to them, pixels. */
    int32_t at_sums, at_mean, at_mine, at_told, at_inner, at_gate;
    int32_t at_w1, at_w2, at_b1, at_b2, at_x;
    float share; /* of a pixel in a mean */
} mp_excite_args;

enum {
    K_DEPTHWISE_PACK = 4, /* channels that are read at once */
    K_DEPTHWISE_TILE = 2, /* pixels of a lane of depthwise.cu: few, to keep a whole GPU busy */
};

/* What a block of depthwise_tile.cu makes, and what it holds for that: pixels, taps, bias, each as
 * far from the next as `pitch` says, so that lanes that read strips side by side meet other banks.
 */
enum {
    K_DEPTHWISE_ROWS = 8,
    K_DEPTHWISE_COLUMNS = 8,
    K_DEPTHWISE_STRIP = 4,     /* pixels side by side of a lane */
    K_DEPTHWISE_CHANNELS = 16, /* of 16 bits: 32 bytes, which memory moves at once */
    K_DEPTHWISE_PAIR = 2,      /* channels of a lane */
    K_DEPTHWISE_LANES = K_DEPTHWISE_ROWS * K_DEPTHWISE_COLUMNS / K_DEPTHWISE_STRIP *
                        K_DEPTHWISE_CHANNELS / K_DEPTHWISE_PAIR,
};
#define K_DEPTHWISE_SIDE(out, size, stride) (((out)-1) * (stride) + (size))
#define K_DEPTHWISE_PITCH(stride)           (K_DEPTHWISE_CHANNELS + 4 / (stride))
#define K_DEPTHWISE_HELD(size, stride)                         \
    (K_DEPTHWISE_SIDE(K_DEPTHWISE_ROWS, size, stride) *        \
         K_DEPTHWISE_SIDE(K_DEPTHWISE_COLUMNS, size, stride) + \
     (size) * (size) + 1)

/* y[n][c][..] = activation(sum of x[n][c][..] w[c][tap], + bias[c], + residual), where .. are three
 * dimensions. A lane makes a strip of a line. All counts are below 2^31. */
enum { K_VOLUME_STRIP = 4 };

typedef struct mp_volume_args {
    const void *x, *w, *bias, *residual; /* the last two may be NULL */
    void *y;
    int64_t count;  /* of strips */
    int32_t strips; /* of a line */
    int32_t channels;
    int32_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    k_divider by_strips, by_channels, by_out[2];
    int32_t activation; /* K_ACTIVATE_... */
    float alpha, beta;
    int32_t unused;
} mp_volume_args;

/* y[n][row][column][c] = activation(sum of x[n][..][..][c] w[tap][c], + bias[c], + residual) */
typedef struct mp_depthwise_args {
    const void *x, *w, *bias, *residual; /* the last two may be NULL */
    void *y;
    int64_t count; /* images * lines * tiles * packs, below 2^31 */
    int32_t channels, in_h, in_w, out_h, out_w, kernel_h, kernel_w;
    int32_t x_pitch, y_pitch; /* elements from one pixel to the next; of residual as of y */
    int32_t stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
    int32_t lines, tiles, packs; /* what an image is dealt in: lanes of depthwise.cu, each of one
                                  * line; blocks of depthwise_tile.cu */
    int32_t aligned;             /* all rows of channels begin at multiples of a pack */
    int32_t activation;
    float alpha, beta;
    k_divider by_packs, by_tiles, by_lines;
} mp_depthwise_args;

/* What a block of depthwise_line.cu makes: strips of pixels of some channels, a lane one strip of a
 * pair of channels. */
enum {
    K_LINE_STRIP = 16,
    K_LINE_STRIPS_LOG = 3,
    K_LINE_CHANNELS = 32,
    K_LINE_PAIRS = K_LINE_CHANNELS / K_DEPTHWISE_PAIR,
    K_LINE_LANES = K_LINE_PAIRS << K_LINE_STRIPS_LOG,
};
/* Rows of channels that it holds: the bias, `taps` taps, and what the strips need, which are dealt
 * to as many lines as have 2^strips_log of them. */
#define K_LINE_ROWS(taps, strips_log) ((K_LINE_STRIP << (strips_log)) + (taps)-1)
#define K_LINE_HELD(taps, strips_log) \
    (1 + (taps) + (K_LINE_ROWS(taps, strips_log) << (K_LINE_STRIPS_LOG - (strips_log))))

/* y[n][pixel][c] = activation(sum of x[n][..][c] w[tap][c], + bias[c], + residual). Of pixels that
 * share taps each is `dilation` behind the one before; they are taken for a line of their own. */
typedef struct mp_depthwise_line_args {
    const void *x, *w, *bias, *residual; /* the last two may be NULL */
    void *y;
    int64_t count; /* blocks' shares, below 2^31 */
    int32_t channels, in, out, taps, dilation, pad;
    int32_t classes;      /* lines that an image consists of */
    int32_t lines;        /* of all images */
    int32_t tiles, packs; /* what a line is dealt in, and its channels */
    int32_t strips_log;   /* of a tile */
    int32_t held_taps;    /* that are held at once */
    int32_t aligned;      /* all rows of channels begin at multiples of a pack */
    int32_t activation;
    float alpha, beta;
    k_divider by_packs, by_tiles, by_classes;
} mp_depthwise_line_args;

/* What a block of depthwise_planes.cu holds: of each plane in_rows rows, then of each its taps and
 * its bias. */
enum {
    K_PLANES_STRIP = 4, /* outputs side by side of a lane */
    K_PLANES_ROWS = 4,  /* and below each other */
    K_PLANES_LANES = 128,
    K_PLANES_SPARE = 4, /* floats of each lane, for what is none of a tile */
    /* Floats before all that is held: those, and room for what lies before its first row. */
    K_PLANES_BEFORE = K_PLANES_LANES * K_PLANES_SPARE + 4,
    /* Floats between rows, at least, what lies behind one before the next: by words, by two. */
    K_PLANES_APART = 2,
    K_PLANES_APART_WIDE = 3,
};
#define K_PLANES_SIDE(out, size, stride) (((out)-1) * (stride) + (size))
/* Loads of x that a lane has on their way, by the elements of one: what registers hold. */
#define K_PLANES_AT_ONCE(each) ((each) == 4 ? 8 : 10)
#define K_PLANES_TAPS(taps)    (((taps) + 4) / 4 * 4)

/* y[plane][row][column] = activation(sum of x[plane][..][..] w[c][tap], + bias[c], + residual),
 * where c is the plane's channel. */
typedef struct mp_planes_args {
    const void *x, *w, *bias, *residual; /* the last two may be NULL */
    void *y;
    int64_t count; /* blocks' shares, below 2^31 */
    int32_t all_planes, channels, in_h, in_w, out_h, out_w, pad_h, pad_w;
    int32_t planes;           /* of a block; more than one where each is one band of one tile */
    int32_t bands, tiles;     /* what a plane is dealt in, down and across */
    int32_t groups, strips;   /* of a tile, down and across: a lane makes one of both */
    int32_t in_rows, columns; /* of x that a tile needs */
    int32_t pitch;            /* from a row to the next, as they are held */
    int32_t across_log;       /* lanes that load neighbours, as a power of two */
    int32_t each;             /* elements of x that a lane loads at a time; rows are whole ones */
    int32_t packed;           /* all strips of y and residual are whole and aligned */
    int32_t taps, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int32_t activation;
    float alpha, beta;
    k_divider by_tiles, by_bands, by_channels, by_groups, by_strips, by_in_rows;
    k_divider by_taps; /* and the bias */
} mp_planes_args;

enum { K_APART_BYTES = 16 }; /* that conv_apart.cu reads at once, where all rows are whole packs */

/* y[plane][y, tap_y][x, tap_x] = product[plane][tap_y][tap_x][y][x] + bias[channel] */
typedef struct mp_apart_args {
    const void *product, *bias; /* bias may be NULL */
    void *y;
    int64_t count;    /* of what lanes move, below 2^31: elements or packs, of each row of taps */
    int64_t in_plane; /* in_h * in_w */
    int32_t channels, tap_rows, in_h, in_w;
    int32_t units, across; /* of a plane and of a row of x: elements or packs */
    int32_t packed, unused;
    k_divider by_units, by_tap_rows, by_across, by_channels;
} mp_apart_args;

enum { K_CONV_FEW = 8 }; /* outputs of a channel, of all images together */

/* y[place][c] = activation(sum of x[..] w[c][depth], + bias[c], + residual[place][c]), with
 * channels first. A place is one output of each channel. */
typedef struct mp_conv_few_args {
    const void *x, *w, *bias, *residual; /* the last two may be NULL */
    void *y;
    int64_t x_at[K_CONV_FEW], y_at[K_CONV_FEW];  /* by place: where the first channel of its image
                                                  * begins; where it is itself, of the first */
    int64_t in_plane, out_plane;                 /* elements of a channel */
    int32_t row[K_CONV_FEW], column[K_CONV_FEW]; /* by place: what the first tap reads */
    int32_t places, channels;                    /* that are made */
    int32_t group_in, group_out;                 /* channels of a group */
    int32_t depth;                               /* group_in * kernel_h * kernel_w */
    int32_t in_h, in_w, kernel_h, kernel_w, dilation_h, dilation_w;
    int32_t activation;
    float alpha, beta;
    k_divider by_kernel_h, by_kernel_w;
} mp_conv_few_args;

enum {
    K_STEM_LANES = 256, /* at most; a warp makes 32 pixels, so a tile has one for each lane */
    K_STEM_RUN = 8,     /* pixels of a lane, side by side: a tile has no fewer columns */
    K_STEM_STEP = 8,    /* words along the sum that tensor cores take at once */
    K_STEM_TABLE = 16,  /* words of a step in the table of where these lie */
};

/* Words of the table of where the elements of a line belong: two of each, of pairs. */
#define K_STEM_PLACES(length) (((length) + 3) / 2 * 4)

/* y[n][c] = activation(sum of x[n][..] w[c][taps], + bias[c]) of images with few channels. What is
 * held are words: neighbouring taps of a row, two of 16 bits or one of 32. A word of the image at
 * `e` has what taps there and `dilation_w` further see; those whose numbers leave the same rest by
 * stride_w lie side by side, so pixels do, too, whatever the stride is. */
typedef struct mp_stem_args {
    const void *x, *w, *bias; /* bias may be NULL */
    void *y;
    int64_t x_image, y_image; /* elements of an image */
    int32_t count;            /* tiles, of all images */
    int32_t pixels;           /* of a tile: lanes of a block */
    int32_t down, across;     /* tiles of an image */
    int32_t columns_log;      /* of a tile, whose columns are a power of two */
    int32_t x_plane, x_row;   /* elements from a channel to the next, where it is a plane; from a
                               * row to the next */
    int32_t pixel;            /* channels side by side in x: 1, or all */
    int32_t in_h, in_w, out_h, out_w, in_channels, channels;
    int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
    int32_t in_rows, in_columns, lines; /* of x that a tile needs; lines of neighbours in memory */
    int32_t rest, pitch, plane;         /* words from a rest to the next, a row, a channel */
    int32_t aside_log;                  /* warps that load neighbours, as a power of two */
    int32_t taps, line_words, words;    /* of a channel's sum: taps, words of a row of them, all */
    int32_t steps, groups;              /* of K_STEM_STEP words; of K_WIDE channels */
    int32_t w_last, y_last;             /* channels come last in w; in y */
    int32_t constant;                   /* w and bias are, and may be read before the kernel before
                                         * has ended */
    int32_t loads_words; /* all rows of x begin at multiples of 4 bytes, and end there */
    int32_t packed;      /* what a lane stores side by side is whole and aligned */
    int32_t activation;
    float alpha, beta;
    k_divider by_across, by_down, by_in_rows, by_pixel, by_stride_w, by_taps, by_in_channels;
    k_divider by_kernel_h, by_kernel_w, by_line_words;
} mp_stem_args;

/* conv_groups.cu: a block makes the outputs of a part of a group, K_WIDE channels at most, and a
 * warp of it K_GROUP_PIXELS pixels at a time. */
enum { K_GROUP_LANES = 128, K_GROUP_PIXELS = 16, K_GROUP_ITEM = 4 /* numbers that say one */ };

/* Words of shared memory: what each item of the sum reads, and the weights of it as tensor cores
 * want them. An item is two words of each lane, of one tap. */
#define K_GROUP_SHARED(items, tiles) ((items)*K_GROUP_ITEM + (items) * (tiles)*64)

/* A convolution in groups, all with their channels last. */
typedef struct mp_group_conv_args {
    const void *x, *w, *bias, *residual; /* the last two may be NULL */
    void *y;
    int64_t x_image; /* elements */
    int32_t count;   /* tiles of pixels */
    int32_t pixels;  /* of all images of y */
    int32_t in_h, in_w, out_h, out_w, in_channels, out_channels;
    int32_t groups, width, group; /* channels of a group in x, and in y */
    int32_t parts, part;          /* of a group; channels of one, but for the last */
    int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
    int32_t steps, items; /* of a tap; of all */
    int32_t constant;     /* w and bias are, and may be read before the kernel before has
                           * ended */
    int32_t activation;
    float alpha, beta;
    k_divider by_out_w, by_out_h, by_steps, by_kernel_w;
} mp_group_conv_args;

enum {
    K_FEW_ROWS = 4,         /* rows at most */
    K_FEW_ROWS_MATRIX = 16, /* by tensor cores */
    K_FEW_ROWS_LANES = 256,
    K_FEW_ROWS_ACROSS = 8, /* lanes side by side, at most */
    K_FEW_ROWS_SPLIT = 3,  /* blocks of a cluster at most, as a power of two */
    K_FEW_ROWS_TURNED = 8, /* columns of a block where b is turned */
    K_FEW_ROWS_BOX = 16,   /* bytes of shared memory, for what counts what a cluster gives */
    /* The same by tensor cores, as powers of two. */
    K_FEW_ROWS_MATRIX_SHIFT = 6,
    K_FEW_ROWS_MATRIX_TURNED_SHIFT = 4,
};

/* Floats that the blocks of a cluster give each other: of as many columns as a block has. */
#define K_FEW_ROWS_GIVEN(rows) ((rows)*K_FEW_ROWS_ACROSS * 8)

/* Bytes of shared memory that a warp has for itself: where weights are turned, 32 rows of 128
 * bytes; and its sums, with a gap behind each column. */
#define K_FEW_ROWS_MATRIX_AREA(rows, turned)                                  \
    ((turned)      ? (1 << K_FEW_ROWS_MATRIX_TURNED_SHIFT) * ((rows) + 1) * 4 \
     : (rows) == 8 ? 32 * 128                                                 \
                   : (1 << K_FEW_ROWS_MATRIX_SHIFT) * ((rows) + 1) * 4)

/* out[m][n] = alpha a[m][k] b[k][n] + beta d[m][n] + bias[n], where all rows of b can be read 16
 * bytes at a time; b[n][k] where it is turned. */
typedef struct mp_few_rows_args {
    const void *a, *b, *bias, *d; /* the last two may be NULL */
    void *out;
    int64_t n, k;
    int32_t m;
    int32_t across;   /* lanes side by side, each with 16 bytes of a row of b: a power of two */
    int32_t constant; /* b is one, and may be read before the kernel before has ended */
    float alpha, beta;
    int32_t split;   /* 2^split blocks, a cluster, deal out k of the same columns */
    k_before before; /* of K_BEFORE kinds but K_BEFORE_NOTHING: what a is made of */
} mp_few_rows_args;

/* A block of rows_mma.cu: a ring of stages for each warp, of a chunk of each row of A and what that
 * is multiplied by, then what other blocks of a cluster give it. `size`: of an element. */
enum {
    K_ROWS_MMA_LANES = 128,
    K_ROWS_MMA_CHUNK = 64,     /* bytes along k */
    K_ROWS_MMA_SPLITS_MAX = 8, /* blocks of a tile */
};
/* Bytes of a line of B, and floats of a row of sums, each with what keeps neighbours in other
 * banks; bytes of a stage; stages of a warp. */
#define K_ROWS_MMA_LINE(columns, size) ((columns) * (size) + 8 * (size))
#define K_ROWS_MMA_PITCH(columns)      ((columns) + 8)
#define K_ROWS_MMA_STAGE(rows, columns, turned, size)            \
    ((rows)*K_ROWS_MMA_CHUNK + ((turned)                         \
                                    ? (columns)*K_ROWS_MMA_CHUNK \
                                    : K_ROWS_MMA_CHUNK / (size)*K_ROWS_MMA_LINE(columns, size)))
#define K_ROWS_MMA_AHEAD(rows, columns) \
    ((rows) + (columns) > 64 ? 3 : (rows) + (columns) > 48 ? 4 : 6)
#define K_ROWS_MMA_HELD(rows, columns, turned, size, splits)   \
    (K_ROWS_MMA_LANES / 32 * K_ROWS_MMA_AHEAD(rows, columns) * \
         K_ROWS_MMA_STAGE(rows, columns, turned, size) +       \
     ((splits) > 1 ? (rows)*K_ROWS_MMA_PITCH(columns) * (int32_t)sizeof(float) : 0))

/* A block of rows_wgmma.cu: a ring of stages for each of its groups of 128 lanes, then what other
 * blocks give it; what is multiplied lies at multiples of K_ROWS_WGMMA_ALIGN. */
enum {
    K_ROWS_WGMMA_LANES = 256,
    K_ROWS_WGMMA_ROWS = 64,
    K_ROWS_WGMMA_CHUNK = 128, /* bytes along k */
    K_ROWS_WGMMA_ALIGN = 1024,
};
#define K_ROWS_WGMMA_STAGE(columns) ((K_ROWS_WGMMA_ROWS + (columns)) * K_ROWS_WGMMA_CHUNK)
#define K_ROWS_WGMMA_AHEAD(columns) ((columns) > 32 ? 3 : 4)
#define K_ROWS_WGMMA_HELD(columns, splits)                                                  \
    (K_ROWS_WGMMA_ALIGN +                                                                   \
     K_ROWS_WGMMA_LANES / 128 * K_ROWS_WGMMA_AHEAD(columns) * K_ROWS_WGMMA_STAGE(columns) + \
     ((splits) > 1 ? K_ROWS_WGMMA_ROWS * K_ROWS_MMA_PITCH(columns) * (int32_t)sizeof(float) : 0))

/* A block of tile_wgmma.cu: a ring of stages, of K_TILE_WGMMA_ROWS rows of A and as many of B as
 * there are columns, where the sums lie at the end. */
enum {
    K_TILE_WGMMA_ROWS = 128,
    K_TILE_WGMMA_LANES = K_TILE_WGMMA_ROWS * 2 + 128, /* that multiply; that copy */
    K_TILE_WGMMA_STAGES = 5,
};
#define K_TILE_WGMMA_STAGE(columns) ((K_TILE_WGMMA_ROWS + (columns)) * K_ROWS_WGMMA_CHUNK)
#define K_TILE_WGMMA_HELD(columns) \
    (K_ROWS_WGMMA_ALIGN + K_TILE_WGMMA_STAGES * K_TILE_WGMMA_STAGE(columns))

/* out[m][n] = activation(alpha a[m][k] b[k][n] + beta d[m][n] + bias[n]), where all rows can be
 * read 16 bytes at a time, and for rows_mma.cu k are whole chunks. */
typedef struct mp_rows_mma_args {
    const void *a, *b, *bias, *d; /* the last two may be NULL; b may be stored turned */
    void *out;
    int64_t lda, ldb, ldc; /* elements between rows as stored; ldc serves out and d */
    int32_t m, n, k_bytes; /* the last of a row of a */
    int32_t row_tiles;     /* tiles below each other */
    int32_t splits_log;    /* blocks of a tile, as a power of two */
    int32_t constant;      /* b is one, and may be read before the kernel before has ended */
    int32_t activation;
    float alpha, beta;
    float activation_alpha, activation_beta;
    int32_t unused;
} mp_rows_mma_args;

#endif
